#pragma once

// --policy-url: asks for the bundle again and again, and puts in force what is signed, whole and newer. A bad bundle never
// replaces a good one; failures are told once each and wait longer each time.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "app/policy_bundle.h"
#include "app/policy_state.h"
#include "base/result.h"

namespace sluice::app {

inline constexpr std::chrono::seconds kMaxPollBackoff{300};

struct FetchedBundle {
  int status = 0;
  std::string entity_tag;  ///< as sent, quotes included; empty: none
  std::string body;
};
/// One GET of `url`, with If-None-Match where a tag is given. Blocks, bounded in time and by `most` bytes.
using FetchUrl = std::function<Result<FetchedBundle>(const std::string& url, const std::string& entity_tag, size_t most)>;

struct PolicyPollOptions {
  std::string url;  ///< https
  BundleKeys keys;
  std::chrono::milliseconds every{30'000};
  FetchUrl fetch;
  /// Puts it in force; an error says why not.
  std::function<Result<void>(StoredPolicy)> apply;
};

/// What one look came to.
enum class PollOutcome : uint8_t { kSame, kNew };

/// One look: bundle, signature, serial, apply. `*last` is what is in force of it, and changes with kNew alone.
[[nodiscard]] Result<PollOutcome> PollOnce(const PolicyPollOptions& options, StoredPolicy* last);
/// Pause after `failures` in a row: the interval, doubled each time up to kMaxPollBackoff (or the interval where that is longer).
[[nodiscard]] std::chrono::milliseconds PollPause(std::chrono::milliseconds every, unsigned failures);
/// kInvalid: no https URL. A user, a query or a fragment is refused: the signature stands at URL.sig.
[[nodiscard]] Result<void> CheckPolicyUrl(std::string_view url);

class PolicyPoll {
 public:
  PolicyPoll(PolicyPollOptions options, StoredPolicy last);
  ~PolicyPoll();
  PolicyPoll(const PolicyPoll&) = delete;
  PolicyPoll& operator=(const PolicyPoll&) = delete;

 private:
  void Run();
  const PolicyPollOptions options_;
  StoredPolicy last_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace sluice::app
