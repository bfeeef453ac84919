#pragma once

// The secrets of one supervisor: read at start, kept up to date, handed to exchanges. Files are looked at twice a second on a
// thread of its own, so that no worker ever waits for a disk or a command; tokens of OAuth are fetched by workers, one at a time
// each.
//
//   SecretStore store({.trees = …});
//   if (auto loaded = store.Load(snapshot->credentials()); !loaded) …exit 2…
//   SecretLookup found = store.Find(credential);          // any thread, any time
//
// A source that cannot be read at start is an error. One that fails later keeps its last value for a moment, then has none: what
// needs it is answered 502, never sent without.

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/spawner.h"
#include "policy/credential.h"
#include "proxy/credential/oauth.h"
#include "proxy/credential/secret.h"
#include "proxy/io/secret_origin.h"

namespace sluice::proxy {

inline constexpr std::chrono::milliseconds kSecretPoll{500};
/// Looks in a row that find a source unreadable before its last value is given up: a file is replaced in less.
inline constexpr unsigned kSecretGrace = 4;
inline constexpr std::chrono::seconds kTokenTrusted{10};  ///< a token this young is kept whatever an upstream says of it
inline constexpr size_t kMaxSecrets = 256;                ///< sources of one policy

struct SecretStoreOptions {
  SeenTrees trees;  ///< of the workload
};

struct SecretLookup {
  SecretPtr secret;
  std::string fault;  ///< where there is none: a sentence without its stop, for the client
};

/// A stand-in that the workload has in its environment.
struct EnvironmentStandIn {
  std::string variable;
  std::string text;
  std::string credential;
};

class SecretStore {
 public:
  explicit SecretStore(SecretStoreOptions options) : options_(std::move(options)) {}
  ~SecretStore();
  SecretStore(const SecretStore&) = delete;
  SecretStore& operator=(const SecretStore&) = delete;

  /// Reads what these need, and reads again what was read before. An error names credential or proxy, source and line, and
  /// changes nothing. May block for as long as a command may run. One call at a time.
  [[nodiscard]] Result<void> Load(std::span<const policy::Credential> credentials,
                                  std::span<const policy::UpstreamProxy> proxies = {});
  /// From here on files are watched. After whatever forks, and before anything of a workload's is held: what commands print is
  /// then read in time, whatever lingers here. Not during a Load.
  void Watch();

  /// kOauth sources have no value here; see TokenFor.
  [[nodiscard]] SecretLookup Find(const policy::Credential& credential) const;
  /// The same of a source alone: what a token is asked for with.
  [[nodiscard]] SecretLookup Find(const policy::SecretSource& source) const;

  /// Given once, at the first Load, and then for good: a workload's environment does not change.
  [[nodiscard]] const std::vector<EnvironmentStandIn>& stand_ins() const { return stand_ins_; }
  /// Files that secrets were read from, without links: the workload must not see them.
  [[nodiscard]] std::vector<std::string> files() const;
  /// Variables that were taken from the environment, with whose secret it is: "credential github".
  [[nodiscard]] const std::map<std::string, std::string>& variables() const { return variables_; }
  /// Whose secret stands in `text`, as in "credential github"; empty where none does. Secrets under 8 bytes are not looked for.
  [[nodiscard]] std::string SecretIn(std::string_view text) const;

  // Tokens. A worker asks, and where it is told to fetch it must answer with TokenCame or TokenFailed.
  enum class TokenStep : uint8_t {
    kUse,          ///< `lookup->secret`
    kUseAndFetch,  ///< that too, and the caller fetches the next one meanwhile
    kFetch,        ///< there is none: the caller fetches
    kWait,         ///< another fetches: ask again soon
    kFail,         ///< `lookup->fault`: the endpoint failed a moment ago
  };
  [[nodiscard]] TokenStep TokenFor(const policy::SecretSource& source, SteadyTime now, SecretLookup* lookup);
  void TokenCame(const policy::SecretSource& source, TokenAnswer&& answer, SteadyTime now);
  void TokenFailed(const policy::SecretSource& source, std::string fault, SteadyTime now);
  /// An upstream answered 401 to this token: unless it is so young that another would fare no better, the next request fetches
  /// one.
  void TokenRefused(const policy::SecretSource& source, const SecretPtr& token, SteadyTime now);

 private:
  struct Entry {
    policy::SecretSource source;
    std::string owner;  ///< the first that names it, for messages: "credential github", "proxy corp"
    SecretPtr secret;
    std::string fault;
    FileStamp stamp;  ///< of what was read
    FileStamp seen;   ///< at the last look: a file is read once it has stopped changing
    unsigned misses = 0;
    std::string warned;
  };
  struct Token {
    SecretPtr secret;
    SteadyTime came{};
    SteadyTime refresh{};
    SteadyTime expires{};
    SteadyTime again{};  ///< no fetch before
    unsigned failures = 0;
    bool fetching = false;
    std::string fault;
  };
  Result<void> Read(Entry* entry);
  Result<void> ReadFileInto(Entry* entry);
  [[nodiscard]] Result<void> CheckAll(std::span<const policy::Credential> credentials,
                                      std::span<const policy::UpstreamProxy> proxies) const;
  void GiveStandIns(std::span<const policy::Credential> credentials);
  void Look();
  void LookAt(const std::string& key, Entry entry);
  void Run();

  const SecretStoreOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;                       // under mutex_
  std::map<std::string, Entry> entries_;    // by SourceText; under mutex_
  std::map<std::string, Token> tokens_;     // by SourceText; under mutex_
  std::map<std::string, SecretPtr> taken_;  // variables; Load only
  std::map<std::string, std::string> variables_;
  std::vector<EnvironmentStandIn> stand_ins_;
  bool stand_ins_given_ = false;
  std::unique_ptr<Spawner> spawner_;  // from Watch on, where there is one
  std::thread thread_;
};

}  // namespace sluice::proxy
