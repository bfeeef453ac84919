#pragma once

// What one policy lets out that another does not. Read this header first. The sets are computed from the same compiled snapshots
// that the enforcer runs, every witness is replayed through their Decide*, and what is too large to answer is kUnknown, never a
// pass. docs/prover.md has the model and its limits.
//
//   const prover::Proof proof = prover::Compare(*base, *head, {.at = now});
//   if (proof.verdict == prover::Verdict::kWidened) …proof.gains.front().witness…

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ip.h"
#include "policy/body.h"
#include "policy/decision.h"
#include "policy/query.h"
#include "policy/rule.h"
#include "policy/snapshot.h"

namespace sluice::prover {

enum class Verdict : uint8_t {
  kEqual,
  kNarrowed,
  kWidened,
  kIncomparable,  ///< something gained and something lost
  kUnknown,       ///< a bound was reached, or a witness did not replay; `Proof::why_unknown` says which
};
[[nodiscard]] std::string_view VerdictText(Verdict verdict);  ///< "equal", "narrowed", …

/// What the traffic is: how deep a policy looks into it. "dns", "udp", "tcp", "tls", "http", "unix". A git operation is HTTP.
enum class Layer : uint8_t { kDns, kUdp, kTcp, kTls, kHttp, kUnix };
[[nodiscard]] std::string_view LayerText(Layer layer);

struct WitnessAncestor {
  std::string exe{};
  std::optional<std::array<uint8_t, 32>> sha256{};
  bool operator==(const WitnessAncestor&) const = default;
};

/// Who asks in a witness.
struct WitnessProcess {
  enum class Kind : uint8_t {
    kAny,        ///< no rule in play names an executable
    kNamed,      ///< `exe`
    kUntrusted,  ///< a deleted or memfd executable, with the digest if one is set
    kUnknown,    ///< a process that could not be read
  };
  Kind kind = Kind::kAny;
  std::string exe{};                                ///< "/usr/bin/a"
  std::optional<std::array<uint8_t, 32>> sha256{};  ///< where a rule names a digest
  std::vector<WitnessAncestor> ancestors{};         ///< those that `under` needs
  bool operator==(const WitnessProcess&) const = default;
};

/// What the body of a request asks for. One item: see prover/request_bodies.h.
struct WitnessBody {
  enum class Kind : uint8_t {
    kNone,     ///< nothing that a rule looks at, or what cannot be read
    kJson,     ///< a JSON text with the values `json`
    kGraphql,  ///< `graphql`
    kRpc,      ///< `rpc`: JSON-RPC or MCP
    kPush,     ///< `push`; without a ref there is no command in it, by which git learns whether it may push
    kLfs,      ///< `lfs` alone
  };
  Kind kind = Kind::kNone;
  policy::GraphqlItem graphql{};
  policy::RpcItem rpc{};
  policy::RefUpdate push{};
  std::optional<policy::LfsOperation> lfs{};  ///< of a batch call of git LFS, which may be a GraphQL request or a call besides
  std::optional<policy::JsonLeaves> json{};   ///< what JSON pointers lead to, where it can be read so
  bool batch = false;                         ///< the message stands alone in a list
  bool operator==(const WitnessBody&) const = default;
  [[nodiscard]] bool PushesNothing() const { return kind == Kind::kPush && push.ref.empty(); }
};

/// "{a}", "mutation b{a}": an operation with that one root field.
[[nodiscard]] std::string GraphqlText(const policy::GraphqlItem& item);

/// How what is allowed travels. What is gained may be the way alone.
enum class Way : uint8_t {
  kAny,         ///< the traffic itself
  kCredential,  ///< with the credential of the witness
  kOwn,         ///< with what the workload has of its own in a field that the other policy replaces
  kVia,         ///< through the upstream proxy of the witness, or directly
  kUnpinned,    ///< to an upstream whose key the other policy does not accept
};

/// One concrete thing that may be done, shortest of its kind.
struct Witness {
  Layer layer = Layer::kHttp;
  WitnessProcess process{};
  std::string host{};                  ///< empty: by address literal
  std::optional<IpAddress> address{};  ///< set where the host is a literal or an address rule is in play; else any public one
  uint16_t port = 0;                   ///< 0 for dns and unix
  policy::Scheme scheme = policy::Scheme::kHttps;
  std::string method{};
  std::string path{};   ///< canonical, or the socket's path
  std::string query{};  ///< as sent, without '?'
  bool has_query = false;
  std::vector<std::pair<std::string, std::string>> headers{};
  policy::Upgrade upgrade = policy::Upgrade::kNone;
  WitnessBody body{};
  bool body_matters = false;  ///< some policy asks what is in the body
  Way way = Way::kAny;
  std::string way_name{};  ///< of the credential, the field or the upstream proxy; empty: none, directly
  uint16_t dns_type = 0;
  WallTime time{};                          ///< the instant asked about
  std::optional<policy::Verb> operation{};  ///< a git operation, where the request is one
  [[nodiscard]] bool ShowsBody() const { return layer == Layer::kHttp && body_matters; }
  /// "POST https://api.github.com/x?q=1 by /usr/bin/a", "TLS bytes to api.github.com:443", "lookup of api.github.com".
  [[nodiscard]] std::string Text() const;
};

/// One dimension of a region, in the author's own words.
struct RegionField {
  std::string name;  ///< "process", "layer", "host", "ip", "port", "scheme", "method", "path", "query", "header", "time"
  std::vector<std::string> values;    ///< as the rule writes them: "/v1/**"
  std::vector<std::string> except{};  ///< what the other policy has already, or a deny takes away
};
struct Region {
  std::vector<RegionField> fields;         ///< a hull: nothing gained by this rule lies outside
  [[nodiscard]] std::string Text() const;  ///< "GET,POST api.example.com/v1/** except /v1/*"
};

/// What one rule adds, along one changed dimension.
struct Difference {
  policy::RuleRef rule =
      policy::RuleRef::kNone;  ///< the allow that grants it, in the policy that has it; kNone for `mode: audit`
  policy::Reason refused_because =
      policy::Reason::kNoRule;                          ///< why the other policy refuses the witness: the dimension that changed
  policy::RuleRef refused_by = policy::RuleRef::kNone;  ///< the other policy's deny, where one decides
  /// Where the witness is a way (Witness::way) of what both let out: the other policy's, by its name; of
  /// Way::kOwn the credential that takes the field. Empty: none, directly.
  std::string other_way{};
  Region region;
  Witness witness;
};

struct Proof {
  Verdict verdict = Verdict::kUnknown;
  std::vector<Difference> gains;          ///< in the order of the head's rules
  std::vector<Difference> losses;         ///< rules of the base
  std::string why_unknown{};              ///< one sentence for a person; empty unless kUnknown
  bool replay_failed = false;             ///< a witness did not hold in Decide*: a fault of the prover
  std::vector<size_t> unused_accepted{};  ///< indexes into Options::accepted that took nothing away
  uint64_t steps = 0;                     ///< work done, for the bound and the bench
};

/// One executable that exists where the policy runs, from `--exe-manifest`.
struct ManifestEntry {
  std::string path;                  ///< as the kernel names it
  std::vector<std::string> links{};  ///< symlinks that lead to it
  std::optional<std::array<uint8_t, 32>> sha256{};
};

struct Options {
  WallTime at{};                                            ///< the interval of time begins here (exact point 17)
  uint64_t limit = 10'000'000;                              ///< steps before the answer is kUnknown
  std::vector<policy::Rule> accepted{};                     ///< allows: regions taken out of the gains before they are judged
  std::optional<std::vector<ManifestEntry>> executables{};  ///< nothing: any path may exist
};

/// gain = R(head) \ R(base), loss = R(base) \ R(head), each rule once per changed dimension.
[[nodiscard]] Proof Compare(const policy::Snapshot& base, const policy::Snapshot& head, const Options& options);

/// `never`: a rule read as a deny (widely). Gains are what the policy reaches inside it; kEqual is "holds", kWidened "broken".
[[nodiscard]] Proof CheckNever(const policy::Snapshot& policy, const policy::Rule& never, const Options& options);
/// `always`: a rule read as an allow (narrowly). Losses are what it asks for and the policy refuses; kEqual is "holds", kNarrowed
/// "broken".
[[nodiscard]] Proof CheckAlways(const policy::Snapshot& policy, const policy::Rule& always, const Options& options);

}  // namespace sluice::prover
