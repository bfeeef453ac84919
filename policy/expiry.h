#pragma once

// When a policy next changes by itself.

#include <optional>

#include "base/clock.h"
#include "policy/snapshot.h"

namespace sluice::policy {

/// The first instant after `now` at which some rule's `until` passes. Looks at every rule.
[[nodiscard]] std::optional<WallTime> NextExpiry(const Snapshot& snapshot, WallTime now);

}  // namespace sluice::policy
