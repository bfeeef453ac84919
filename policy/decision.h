#pragma once

// What a policy answers. A denial is a value like any other, never an Error, and anything unexpected is a denial.

#include <cstdint>
#include <string>
#include <string_view>

#include "policy/body.h"

namespace sluice::policy {

/// Index of a rule in its Snapshot. Only meaningful together with the snapshot that gave it.
enum class RuleRef : uint32_t { kNone = 0xffffffff };

inline constexpr uint16_t kNoIndex16 = 0xffff;

/// Why. The texts (ReasonText) are stable: programs read them in denial bodies and audit records.
enum class Reason : uint8_t {
  kAllowed,            ///< "allowed"
  kNoRule,             ///< "no_rule": nothing mentions this host, address or path
  kMethod,             ///< "method": an allow matches all but the method
  kPath,               ///< "path"
  kQuery,              ///< "query"
  kHeader,             ///< "header"
  kOperation,          ///< "operation": an allow matches all but what the body asks for (GraphQL, JSON-RPC, refs, `json`)
  kBinary,             ///< "binary": an allow matches all but `by` or `under`
  kPort,               ///< "port"
  kDns,                ///< "dns": the name is not in the policy
  kPrivateAddress,     ///< "private_ip": the address guard refused where the name leads
  kDenyRule,           ///< "deny_rule"
  kExpired,            ///< "expired": the allow's `until` has passed
  kAuthorityMismatch,  ///< "authority_mismatch": SNI, Host and name do not agree (421)
  kProtocol,           ///< "protocol": malformed, ambiguous or never-forwarded request
  kUnsupported,        ///< "unsupported": a protocol Sluice does not carry here (UDP, for one)
  kUnattributed,       ///< "unattributed": no approval or process could be matched to it
  kLimit,              ///< "limit": a bound of docs/limits.md was reached
  kUpstream,           ///< "upstream": allowed, but the upstream could not be reached or verified
  kInternal,           ///< "internal": a fault of Sluice's own; denied all the same
};
[[nodiscard]] std::string_view ReasonText(Reason reason);

/// allow or deny, with the rule that decided.
struct Decision {
  bool allowed = false;
  Reason reason = Reason::kInternal;
  RuleRef rule = RuleRef::kNone;  ///< the allow that matched, or the deny that did
  bool audit_only = false;        ///< `mode: audit` let through what enforce would deny (allowed is true, reason says why not)
  /// Not decided yet (allowed is false): the body must be read in these ways first, and the question asked again.
  BodyKinds body_needed = 0;
  /// Index into Snapshot::credentials() of what is added to the request; none: nothing is. With beats without.
  uint16_t credential = kNoIndex16;
  /// Index into Snapshot::proxies(): the upstream proxy to go through; none: directly.
  uint16_t via = kNoIndex16;
  /// Index into Snapshot::rules() of an allow whose pins (Snapshot::pins) the upstream's key must be among; none: no pins.
  RuleRef pinned_by = RuleRef::kNone;
};

/// What becomes of a connection.
enum class ConnectVerdict : uint8_t {
  kDeny,
  kOpaqueTcp,  ///< relay bytes without looking
  kOpaqueTls,  ///< relay, after the ClientHello's SNI was seen to equal the name
  kInspect,    ///< terminate TLS (or read cleartext HTTP) and judge each request
};

struct ConnectDecision {
  ConnectVerdict verdict = ConnectVerdict::kDeny;
  Decision decision;
  [[nodiscard]] bool allowed() const { return verdict != ConnectVerdict::kDeny; }
};

enum class NameVerdict : uint8_t {
  kAllow,     ///< may be asked upstream
  kAncestor,  ///< not allowed itself, but a parent of an allowed name: NODATA, since NXDOMAIN would deny the subtree (RFC 8020)
  kDeny,      ///< NXDOMAIN with EDE 15
};

struct NameDecision {
  NameVerdict verdict = NameVerdict::kDeny;
  Decision decision;
};

/// Help for whoever was refused.
struct Advice {
  RuleRef nearest = RuleRef::kNone;  ///< the allow that came closest, if any mentions this host
  std::string suggest;               ///< smallest rule that would allow it, as written after `allow:`; empty when none may
  std::string explanation;           ///< one sentence for a person, without a final stop
};

}  // namespace sluice::policy
