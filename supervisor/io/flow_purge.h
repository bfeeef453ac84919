#pragma once

// Ends flows of this network namespace that the kernel passes by itself: conntrack entries (ctnetlink) and the sockets that hold
// them (sock_diag). Needs CAP_NET_ADMIN.

#include <cstdint>
#include <functional>
#include <vector>
#include <memory>

#include "base/result.h"
#include "base/socket_seal.h"
#include "supervisor/fence_ruleset.h"

namespace sluice::supervisor {

struct Purged {
  size_t flows = 0;      ///< conntrack entries deleted
  size_t sockets = 0;    ///< sockets whose owners got ECONNABORTED
  bool destroys = true;  ///< false: this kernel cannot destroy sockets (CONFIG_INET_DIAG_DESTROY); they are reset by the rules
};

/// One thread at a time.
class FlowPurger {
 public:
  /// In the network namespace of the calling thread, to which it stays bound.
  static Result<std::unique_ptr<FlowPurger>> Open();
  virtual ~FlowPurger() = default;

  /// Of the flows whose conntrack mark has bits in `mark_mask`, those whose first packet went where `gone` says. Sockets with
  /// `seal` are never touched. Blocks for a dump of the flows; about 7 µs for each that ends.
  [[nodiscard]] virtual Result<Purged> Purge(uint32_t mark_mask, const SocketSeal& seal,
                                             const std::function<bool(const FenceElement&)>& gone) = 0;
  /// Where such flows went, of those that `which` names; each once.
  [[nodiscard]] virtual Result<std::vector<FenceElement>> Places(uint32_t mark_mask,
                                                                 const std::function<bool(const FenceElement&)>& which) = 0;
  /// Gives those flows the bits of `mark`. A flow that ends meanwhile is none.
  [[nodiscard]] virtual Result<void> Remark(uint32_t mark_mask, uint32_t mark,
                                            const std::function<bool(const FenceElement&)>& which) = 0;
};

}  // namespace sluice::supervisor
