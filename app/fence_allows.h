#pragma once

// Which opaque allows by address the kernel may pass by itself (supervisor/fence_ruleset.h), read from the compiled policy. Pure.
// What is left out here goes through the proxy, which judges it; UDP has no proxy, so a `udp` rule that is left out is an error.

#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ip.h"
#include "policy/snapshot.h"
#include "supervisor/fence_ruleset.h"

namespace sluice::app {

struct FenceAllows {
  std::vector<supervisor::FenceCidr> allow;
  std::vector<Cidr> deny;                        ///< the metadata addresses that no allow writes out
  std::optional<WallTime> until{};               ///< when the first of the rules behind them, or of any opaque allow, ends
  std::vector<policy::RuleRef> left_to_proxy{};  ///< `tcp` allows by address that the kernel cannot judge
  std::vector<policy::RuleRef> impossible{};     ///< `udp` allows by address that nobody here could judge
};

[[nodiscard]] FenceAllows FenceAllowsFor(const policy::Snapshot& snapshot, WallTime now);

}  // namespace sluice::app
