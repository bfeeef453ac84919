#pragma once

// Builds the view of a mount plan and makes it the root, in a process that has new user, mount and pid namespaces and has not
// dropped its capabilities over them. Uses the mount API of Linux 5.12 (mount_setattr).

#include <cstddef>
#include <functional>

#include "base/result.h"
#include "supervisor/io/opened_folders.h"
#include "supervisor/mount_plan.h"

namespace sluice::supervisor {

/// Writes the content of an overlay, by its number in the spec, into a new file.
using FillOverlay = std::function<Result<void>(size_t overlay, int file)>;

/// Afterwards the view is the root, and what it was built from is still mounted in it: SealView must follow before anything of
/// the workload's runs. An error names the path.
[[nodiscard]] Result<void> EnterView(const MountPlan& plan, const BareFolders& bare, const FillOverlay& fill);

/// Afterwards the old root is gone and the root is read-only but for the plan's writable trees. Verifies what the plan says
/// must be read-only. Takes long where many processors are busy: umount(2) waits for each.
[[nodiscard]] Result<void> SealView(const MountPlan& plan);

}  // namespace sluice::supervisor
