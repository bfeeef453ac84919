#pragma once

// System trees with something mounted below them (containers mount over files of /etc) cannot be shielded as one: the kernel
// refuses an overlay of a tree that hides mounts. Root may copy a folder without them, and lay them over the shield again. Where
// mounts are locked to each other (mount_namespaces(7)), and for another user, the folders down to each mount are shown entry by
// entry instead, which takes a mount for each entry.

#include <map>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "supervisor/launch_spec.h"
#include "supervisor/mount_plan.h"

namespace sluice::supervisor {

/// Entries shown one by one in one system tree; one that would need more is scanned instead (launch_view.cc).
inline constexpr size_t kMaxOpenedEntries = 4096;

/// Folders of the host without what is mounted below them: detached mounts, by path.
using BareFolders = std::map<std::string, UniqueFd>;

/// Fills facts.opened, or facts.bare and facts.mounted, and `bare`; facts.system must be there.
void OpenFolders(const LaunchSpec& resolved, HostFacts& facts, BareFolders& bare);

}  // namespace sluice::supervisor
