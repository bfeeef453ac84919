#pragma once

// The policies compared, and what each of them lets out at one connection. A connection is a cell: host, address, port, process
// and time, on which every rule answers the same.

#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "policy/compiled.h"
#include "policy/layers.h"
#include "prover/requests.h"
#include "prover/ways.h"

namespace sluice::prover {

enum class SideKind : uint8_t {
  kPolicy,
  kAllBut,  ///< everything but what its one deny covers: the other side of `never`
};

struct Side {
  const policy::Snapshot* snapshot = nullptr;
  SideKind kind = SideKind::kPolicy;
  std::vector<uint32_t> classes{};  ///< by rule: equal numbers mean the same
  std::vector<InnerId> inner{};     ///< by rule, where it is HTTP or git
  Ways ways;

  [[nodiscard]] const std::vector<policy::Rule>& rules() const { return snapshot->compiled().rules; }
  [[nodiscard]] bool audit() const { return kind == SideKind::kPolicy && snapshot->mode() == policy::Mode::kAudit; }
};

/// Gives rules of all policies their numbers.
class Classes {
 public:
  [[nodiscard]] Side MakeSide(const policy::Snapshot& snapshot, SideKind kind, InnerRules* inner);

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
  Ways::Numbers ways_;
};

using RuleNumbers = std::vector<uint32_t>;  ///< ascending indexes into the rules of one side

/// What a side lets out at a cell over one scheme.
struct SchemeReach {
  enum class Kind : uint8_t { kNothing, kEverything, kRules } kind = Kind::kNothing;
  std::vector<InnerId> allows{};  ///< kRules: without doubles, sorted
  std::vector<InnerId> denies{};
  /// Where requests are judged, also in `mode: audit`: the allows of requests by number, and the denies.
  bool judged = false;
  RuleNumbers judged_allows{};
  std::vector<InnerId> judged_denies{};
};

struct CellReach {
  bool tcp = false;  ///< opaque bytes
  bool tls = false;  ///< opaque TLS; tcp implies it
  bool udp = false;
  bool audit = false;       ///< every request, by `mode: audit`; bytes where `tcp` or `tls` says so
  RuleNumbers tcp_rules{};  ///< the allows that open it
  RuleNumbers tls_rules{};
  RuleNumbers udp_rules{};
  std::array<SchemeReach, 2> schemes{};  ///< by policy::Scheme
  bool closes_below = false;             ///< kAllBut: what it lacks lies inside TLS or HTTP
  bool closes_tls = false;               ///< kAllBut: it lacks TLS
};

/// Whether what the allow covers goes through an upstream proxy, which then looks the name up: such a connection is judged for an
/// address that nobody knows, whatever the name's may be.
[[nodiscard]] bool GoesByProxy(const Side& side, uint32_t allow, const policy::ConnectQuery& query);
/// The same of what `mode: audit` alone lets through.
[[nodiscard]] bool AuditGoesByProxy(const Side& side, const policy::ConnectQuery& query);
/// What of a connection by name passes unread before its address is known. One allow of bytes names the proxy for all of them,
/// and what passes directly is looked up here, whatever proxies the allows of requests in it name.
struct Unread {
  bool tcp = false;
  bool tls = false;  ///< tcp implies it
  bool by_proxy = false;
};
[[nodiscard]] Unread UnreadAt(const Side& side, const policy::ConnectQuery& query);
/// What the enforcer says of the connection, judged in that way where it goes through a proxy unread.
[[nodiscard]] policy::ConnectDecision ConnectionAt(const Side& side, const policy::ConnectQuery& query);

/// `alive` are the side's rules that cover the connection: at its address, or at none where that is how it is judged.
[[nodiscard]] CellReach ReachAt(const Side& side, const RuleNumbers& alive, const policy::ConnectQuery& query);

}  // namespace sluice::prover
