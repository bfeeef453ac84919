#pragma once

// Ends flows of this network namespace that the kernel passes by itself: conntrack entries (ctnetlink) and the sockets that hold
// them (sock_diag). Needs CAP_NET_ADMIN.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/socket_seal.h"
#include "supervisor/fence_ruleset.h"

namespace sluice::supervisor {

struct Purged {
  size_t flows = 0;      ///< conntrack entries deleted
  size_t sockets = 0;    ///< sockets whose owners got ECONNABORTED
  bool destroys = true;  ///< false: this kernel cannot destroy sockets (CONFIG_INET_DIAG_DESTROY); they are reset by the rules
};

/// A flow of TCP or UDP as the kernel tracks it.
struct Flow {
  uint8_t family = 0;
  std::optional<FenceElement> to;  ///< where its first packet went
  uint16_t from_port = 0;
  std::vector<uint8_t> tuple;  ///< the kernel's attribute that names it
  uint32_t mark = 0;
};

/// One thread at a time.
class FlowPurger {
 public:
  /// In the network namespace of the calling thread, to which it stays bound.
  static Result<std::unique_ptr<FlowPurger>> Open();
  virtual ~FlowPurger() = default;

  /// Those whose conntrack mark has bits in `mark_mask`. Blocks for a walk through the kernel's whole table, which all namespaces
  /// share: some 10 ms for one of 262,144 buckets, however few flows there are.
  [[nodiscard]] virtual Result<std::vector<Flow>> Flows(uint32_t mark_mask) = 0;
  /// Forgets what was asked of any resolver by UDP, so that each socket's next question is led anew: where a flow goes is decided
  /// by its first packet, which may have met other rules or none. Sluice's own are left.
  [[nodiscard]] virtual Result<void> ForgetLookups() = 0;
  /// Ends them. Sockets with `seal` are never touched. Blocks for a dump of the sockets where there are some, and about 2 µs
  /// each.
  [[nodiscard]] virtual Result<Purged> End(std::span<const Flow> flows, const SocketSeal& seal) = 0;
  /// Gives those that have other bits the bits of `mark`. One that has ended meanwhile is none.
  [[nodiscard]] virtual Result<void> Mark(uint32_t mark_mask, uint32_t mark, std::span<const Flow> flows) = 0;
};

}  // namespace sluice::supervisor
