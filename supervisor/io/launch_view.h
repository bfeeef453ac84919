#pragma once

// Builds the view of a mount plan and makes it the root, in a process that has new user, mount and pid namespaces and has not
// dropped its capabilities over them. Uses the mount API of Linux 5.12 (mount_setattr).

#include <vector>

#include "base/result.h"
#include "supervisor/launch_spec.h"
#include "supervisor/mount_plan.h"

namespace sluice::supervisor {

/// Afterwards the old root is gone and the root is read-only but for the plan's writable trees. Verifies what the plan says
/// must be read-only. An error names the path.
[[nodiscard]] Result<void> EnterView(const MountPlan& plan, const std::vector<FileOverlay>& overlays);

}  // namespace sluice::supervisor
