#pragma once

// Looks at the host for the plan of a view: canonical paths, what system trees there are, what must be hidden or locked
// inside granted trees.

#include <string>

#include "base/result.h"
#include "supervisor/io/opened_folders.h"
#include "supervisor/launch_spec.h"
#include "supervisor/mount_plan.h"

namespace sluice::supervisor {

/// Entries looked at in all granted trees together. A larger tree is refused: something in it could be overlooked.
inline constexpr size_t kMaxScannedEntries = 2'000'000;
/// Sockets and FIFOs hidden, and files locked, at most.
inline constexpr size_t kMaxFound = 4096;
/// Depth of folders followed.
inline constexpr size_t kMaxScanDepth = 128;

/// `spec` with its paths made canonical. kNotFound names a granted path that is not there.
[[nodiscard]] Result<LaunchSpec> ResolvePaths(const LaunchSpec& spec);

/// A path as it stands, not followed.
[[nodiscard]] HostEntry Look(std::string path);

/// That no link on the way to `path` stands in one of `trees`, canonical, which a workload may write: it could lead elsewhere.
/// kInvalid names it.
[[nodiscard]] Result<void> RefuseLinksInTrees(const std::string& path, const std::vector<std::string>& trees);

/// Of a spec from ResolvePaths; `given` is the spec as its user wrote it, for links that stand in writable trees. `bare` gets the
/// folders that facts.bare names.
[[nodiscard]] Result<HostFacts> GatherFacts(const LaunchSpec& resolved, const LaunchSpec& given, BareFolders& bare);

}  // namespace sluice::supervisor
