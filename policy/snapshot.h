#pragma once

// A compiled policy: read this header first. A Snapshot is immutable; workers hold a shared pointer and swap it whole.
// The meaning of every construct is docs/policy-language.md. The same object answers the enforcer, `explain`, `lint`
// and the prover, so that they cannot disagree.
//
//   auto snapshot = policy::LoadFile("policy.yaml");            // io/load.h
//   auto d = (*snapshot)->DecideConnect({.process = &p, .host = "api.github.com", .port = 443, .now = now});
//   if (d.verdict == policy::ConnectVerdict::kInspect) …judge each request with DecideRequest…

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/decision.h"
#include "policy/query.h"

namespace sluice::policy {

enum class Mode : uint8_t { kEnforce, kAudit };
/// With what the resolver answers an allowed name. Reach is the same.
enum class DnsMode : uint8_t {
  kSynthetic,  ///< addresses that stand for exactly that name
  kReal,       ///< the true addresses
};

struct Settings {
  DnsMode dns = DnsMode::kSynthetic;
  SourceSpan dns_at{};  ///< line 0 where the policy does not say
  int deny_errno = 13;  ///< EACCES, or ECONNREFUSED
  std::string via{};    ///< the upstream proxy of every allow that names none and no address; empty: none
  SourceSpan via_at{};
  uint16_t proxy = kNoIndex16;  ///< `via`, resolved
};

/// What people and records need to know of a rule.
struct RuleInfo {
  bool allow = false;
  std::string id;    ///< the author's `id`, else "<file name>:<line>"
  std::string text;  ///< compact form, "GET api.github.com/repos/**"
  std::string note;
  SourceSpan span;
  SourceSpan origin{};  ///< the line of a preset that the rule was made from: "preset:npm@1", 3. Line 0 where there is none
};
/// "policy.yaml:7", or "npm@1:3, from policy.yaml:7" for a preset's rule.
[[nodiscard]] std::string PlaceText(const SourceSpan& span, const SourceSpan& origin);

struct Assertion;      // rule.h
struct Credential;     // credential.h
struct UpstreamProxy;  // credential.h

class Snapshot {
 public:
  Snapshot(Snapshot&&) = delete;
  ~Snapshot();

  // Every Decide* is pure, takes no lock, does not allocate on the allow path, and is safe from any thread.

  [[nodiscard]] ConnectDecision DecideConnect(const ConnectQuery& query) const noexcept;
  [[nodiscard]] Decision DecideRequest(const RequestQuery& query) const noexcept;
  [[nodiscard]] NameDecision DecideName(const NameQuery& query) const noexcept;
  /// Whether some allow may lead from `query.host` to `query.address` on whatever port: what the resolver asks before it answers.
  /// Port and transport are not looked at. Denials, and the port, are the connection's to judge: this is no permission to dial.
  [[nodiscard]] Decision DecideAnswer(const ConnectQuery& query) const noexcept;
  /// The way of travel (via, pinned_by, credential) that all requests of an inspected connection have in common, so that the
  /// connection can be made before one of them was read. `credential` is a client certificate or none. Absent: they differ.
  [[nodiscard]] std::optional<Decision> DecideWay(const ConnectQuery& query) const noexcept;
  /// Whether some connection to the name goes through an upstream proxy, which then looks the name up in the resolver's place.
  [[nodiscard]] bool IsLookedUpByProxy(std::string_view name) const noexcept;
  /// No rule at all is a denial here too; the supervisor allows paths below the workload's writable trees itself.
  [[nodiscard]] Decision DecideUnix(const UnixQuery& query) const noexcept;

  // For refusals only: may allocate and take some microseconds.

  [[nodiscard]] Advice AdviseConnect(const ConnectQuery& query, const ConnectDecision& denied) const;
  [[nodiscard]] Advice AdviseRequest(const RequestQuery& query, const Decision& denied) const;
  [[nodiscard]] Advice AdviseName(const NameQuery& query, const NameDecision& denied) const;
  /// For an address that DecideAnswer refused.
  [[nodiscard]] Advice AdviseAnswer(const ConnectQuery& query) const;

  [[nodiscard]] std::span<const RuleInfo> rules() const;
  /// Null for RuleRef::kNone.
  [[nodiscard]] const RuleInfo* rule(RuleRef ref) const;
  /// The `assert:` lists of the policy and its includes, as data: nothing that is decided depends on them.
  [[nodiscard]] const std::vector<Assertion>& assertions() const;
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] Mode mode() const;
  [[nodiscard]] const Settings& settings() const;
  /// What Decision::credential and Decision::via count into. Names and sources, never a secret.
  [[nodiscard]] const std::vector<Credential>& credentials() const;
  [[nodiscard]] const std::vector<UpstreamProxy>& proxies() const;
  /// Keys that the upstream of the rule must have one of (SHA-256 of its SubjectPublicKeyInfo); empty for none.
  [[nodiscard]] std::span<const std::array<uint8_t, 32>> pins(RuleRef ref) const;
  /// Lower-case hexadecimal SHA-256 over the canonical form of every rule, sorted; equal meaning as written, equal digest.
  [[nodiscard]] const std::string& digest() const;
  /// Whether some rule names an executable by digest, so that Process::exe.sha256 must be filled.
  [[nodiscard]] bool NeedsDigests() const;
  /// Whether some rule, allow or deny, is about UNIX sockets.
  [[nodiscard]] bool HasUnixRules() const;
  /// UNIX socket globs of the allows, for the launcher to bind into the workload's view.
  [[nodiscard]] std::vector<std::string> UnixPaths() const;
  /// Files read: the policy and its includes, absolute, with links resolved. The workload must not be able to write them.
  [[nodiscard]] std::span<const std::string> files() const;
  /// The same files by the names they were opened by, absolute. A link on the way may lead elsewhere later.
  [[nodiscard]] std::span<const std::string> file_names() const;
  /// When the first of them was opened: what changed since is perhaps not in here.
  [[nodiscard]] std::chrono::system_clock::time_point read_from() const;
  /// Allows whose verb a capture namespace cannot carry (`udp`), for the launcher to refuse at start.
  [[nodiscard]] std::vector<RuleRef> UdpRules() const;

  struct Compiled;
  /// For the compiler and the prover alone.
  explicit Snapshot(std::unique_ptr<const Compiled> compiled);
  [[nodiscard]] const Compiled& compiled() const { return *compiled_; }

 private:
  std::unique_ptr<const Compiled> compiled_;
};

using SnapshotPtr = std::shared_ptr<const Snapshot>;

}  // namespace sluice::policy
