#pragma once

// One rule of a policy, parsed: values that cannot hold what the language refuses. Defaults are filled in (an allow's port is
// there, a deny's empty list means every value), so the enforcer, `lint` and the prover read the same thing.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ip.h"
#include "policy/glob.h"
#include "policy/query.h"
#include "policy/snapshot.h"

namespace sluice::policy {

enum class Verb : uint8_t {
  kHttp,
  kGitFetchPack,
  kGitReceivePack,
  kWs,
  kGrpc,
  kGraphql,
  kJsonRpc,
  kMcp,
  kTls,
  kTcp,
  kUdp,
  kDns,
  kUnix,
};
/// The first word or words: "git fetch-pack", "graphql", "mcp". The kind or method after it is the rule's.
[[nodiscard]] std::string_view VerbText(Verb verb);
/// HTTP and what travels in it: judged request by request.
[[nodiscard]] constexpr bool IsInner(Verb verb) { return verb <= Verb::kMcp; }
[[nodiscard]] constexpr bool IsGit(Verb verb) { return verb == Verb::kGitFetchPack || verb == Verb::kGitReceivePack; }

struct PortRange {
  uint16_t first = 0;
  uint16_t last = 0;
  auto operator<=>(const PortRange&) const = default;
};

/// A host as a rule names it.
struct HostPattern {
  enum class Kind : uint8_t {
    kAny,      ///< "**": every name and every literal
    kName,     ///< one name
    kGlob,     ///< labels with wildcards
    kAddress,  ///< a literal, or for tcp and udp a prefix
  };
  Kind kind = Kind::kAny;
  std::string text;            ///< canonical: "**.example.com", "10.0.0.0/8"
  bool deep = false;           ///< kGlob: begins with "**", one or more labels before `labels`
  std::vector<Glob> labels{};  ///< kGlob: left to right, without the "**"
  std::optional<Cidr> cidr{};  ///< kAddress
  bool operator==(const HostPattern&) const = default;
};

/// `*` glued to other characters never stands for an A-label in an allow (exact point 9).
[[nodiscard]] bool LabelMatches(const Glob& label, std::string_view subject, bool allow);
/// Slow, for lint and advice: whether a canonical name matches. The decisions use the index.
[[nodiscard]] bool HostMatchesName(const HostPattern& host, std::string_view name, bool allow);

/// `by` and `under`: a path glob, or the digest of the file.
struct ExecutablePattern {
  std::string text;
  Glob path;
  std::optional<std::array<uint8_t, 32>> sha256{};
};

/// A query key or header name with the globs of its values.
struct ValueMatcher {
  std::string key;
  std::vector<Glob> values;
};

/// SHA-256 of a certificate's SubjectPublicKeyInfo (RFC 7469 section 2.4).
using Pin = std::array<uint8_t, 32>;

struct Rule {
  bool allow = false;
  Verb verb = Verb::kHttp;
  std::vector<std::string> methods{};  ///< kHttp: sorted; empty is every method
  std::optional<Scheme> scheme{};      ///< inner verbs; nothing is both
  HostPattern host{};
  std::vector<PortRange> ports{};  ///< sorted, apart; empty is every port
  std::vector<Glob>
      paths{};  ///< path, repo (lower-case, without ".git"), "/package.Service/Method" or socket; empty is every one
  std::vector<ExecutablePattern> by{};
  std::vector<ExecutablePattern> under{};
  std::vector<Cidr> ip{};
  std::vector<ValueMatcher> query{};
  std::vector<ValueMatcher> headers{};  ///< keys in lower case
  std::optional<std::vector<std::string>> query_keys{};
  std::vector<uint16_t> types{};    ///< kDns; empty is every type
  std::optional<WallTime> until{};  ///< first instant at which it no longer holds

  // What the body asks for. See ReadingOf.
  GraphqlKind graphql = GraphqlKind::kQuery;  ///< kGraphql
  std::vector<Glob> operation{};              ///< kGraphql; empty is every name and none
  std::vector<Glob> fields{};                 ///< kGraphql: root fields; empty is every one
  Glob rpc{};                                 ///< kJsonRpc, kMcp: the method
  std::vector<Glob> tool{};                   ///< kMcp with "tools/call"; empty is every one
  std::vector<ValueMatcher> json{};           ///< kHttp, kJsonRpc, kMcp: keys are pointers (RFC 6901)
  std::vector<Glob> refs{};                   ///< kGitReceivePack; empty is every one
  std::optional<RefChanges> ref_changes{};    ///< kGitReceivePack
  bool lfs = false;                           ///< git: the LFS calls of the repository too

  std::string with{};  ///< the credential's name; empty: none
  std::string via{};   ///< the upstream proxy's name; empty: what the settings say
  SourceSpan with_at{};
  SourceSpan via_at{};
  uint16_t credential = kNoIndex16;  ///< `with`, resolved: an index into Snapshot::credentials()
  uint16_t proxy = kNoIndex16;       ///< `via`, resolved: an index into Snapshot::proxies()
  std::vector<Pin> pins{};           ///< sorted; empty: any key that the roots vouch for
  bool routes = false;               ///< has a credential, a proxy or pins

  bool encoded_slash = false;
  bool path_params = false;
  bool method_override = false;
  std::string note{};
  std::string id{};
  SourceSpan span{};
  SourceSpan origin{};  ///< as RuleInfo's
};

/// Whether a git rule looks at the commands of a push.
[[nodiscard]] inline bool ReadsPush(const Rule& rule) { return !rule.refs.empty() || rule.ref_changes.has_value(); }
/// What a rule that reads pushes speaks of: an allow that names none means creation and update.
[[nodiscard]] inline RefChanges RefChangesOf(const Rule& rule) {
  constexpr RefChanges kWritten = kRefCreate | kRefUpdate;
  return rule.ref_changes.value_or(rule.allow ? kWritten : RefChanges{kWritten | kRefDelete});
}
/// Whether the body, in some reading, bears on what the rule says of a request.
[[nodiscard]] inline bool ReadsBody(const Rule& rule) {
  return rule.verb == Verb::kGraphql || rule.verb == Verb::kJsonRpc || rule.verb == Verb::kMcp || !rule.json.empty() ||
         rule.lfs || ReadsPush(rule);
}
/// Whether an allow of `mcp` has the method `initialize`, and with it the session: its event stream, its end, pings,
/// notifications and the answers that the client posts.
[[nodiscard]] inline bool HoldsMcpSession(const Rule& rule) {
  return rule.verb == Verb::kMcp && rule.json.empty() && rule.tool.empty() && rule.rpc.Matches("initialize");
}
[[nodiscard]] std::string_view GraphqlKindText(GraphqlKind kind);

/// An entry of `assert:`: what must hold in every version of a policy. The enforcer does not read it; `prove` and `lint` check
/// it.
struct Assertion {
  enum class Kind : uint8_t {
    kNever,   ///< nothing of `rule` is reached; `rule` is a deny, which reads widely
    kAlways,  ///< all of `rule` is reached; `rule` is an allow, which reads narrowly
  };
  Kind kind = Kind::kNever;
  Rule rule;
  RuleInfo info;
};

/// "GET,POST api.example.com:8443/v1/**": what follows `allow:`, without the keys beside the verb.
[[nodiscard]] std::string CompactText(const Rule& rule);
/// Everything that bears on the meaning, in one spelling; notes, ids and places are left out. For the digest.
[[nodiscard]] std::string CanonicalText(const Rule& rule);

/// RR types that policies may name. 0 where the text is none of them; empty where the number is.
[[nodiscard]] uint16_t DnsTypeNumber(std::string_view text);
[[nodiscard]] std::string DnsTypeText(uint16_t type);
inline constexpr uint16_t kDnsA = 1;
inline constexpr uint16_t kDnsAaaa = 28;

}  // namespace sluice::policy
