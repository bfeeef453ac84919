#pragma once

// Walks the granted trees once, before the start, for what must not be reached through them.

#include "base/result.h"
#include "supervisor/launch_spec.h"
#include "supervisor/mount_plan.h"

namespace sluice::supervisor {

/// Adds sockets and FIFOs of every granted tree, and in writable ones what the user's tools run later, to `facts`.
/// kExhausted where a bound of launch_facts.h is reached.
[[nodiscard]] Result<void> ScanTrees(const LaunchSpec& resolved, HostFacts& facts);

}  // namespace sluice::supervisor
