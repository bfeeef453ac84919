#pragma once

// System trees with something mounted below them (containers mount over files of /etc) cannot be shielded as one: the kernel
// refuses an overlay of a tree that hides mounts. Their folders down to each mount are shown entry by entry instead.

#include "base/result.h"
#include "supervisor/launch_spec.h"
#include "supervisor/mount_plan.h"

namespace sluice::supervisor {

/// Entries shown one by one in one system tree; one that would need more is scanned instead (launch_view.cc).
inline constexpr size_t kMaxOpenedEntries = 4096;

/// Fills facts.opened; facts.system must be there.
void OpenFolders(const LaunchSpec& resolved, HostFacts& facts);

}  // namespace sluice::supervisor
