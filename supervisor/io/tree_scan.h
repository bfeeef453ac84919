#pragma once

// Walks trees of the host once, before the start, for what must not be reached through them.

#include <sys/stat.h>

#include <string>
#include <vector>

#include "base/result.h"
#include "supervisor/launch_spec.h"
#include "supervisor/mount_plan.h"

namespace sluice::supervisor {

/// Adds sockets and FIFOs of every granted tree, and in writable ones what the user's tools run later, to `facts`.
/// kExhausted where a bound of launch_facts.h is reached.
[[nodiscard]] Result<void> ScanTrees(const LaunchSpec& resolved, HostFacts& facts);

/// Whose rights decide what is shown of a system tree. The workload of root keeps root's number, which owns the system's files:
/// it gets what everybody may read, no more. Another user has its own rights.
enum class Reader : uint8_t { kSelf, kOthers };
[[nodiscard]] Reader ReaderOf(const std::string& tree);
/// Of a folder: to list and to enter it.
[[nodiscard]] bool MayRead(Reader reader, const struct stat& about);

/// Sockets, FIFOs, devices and what `reader` may not read below `tree`, but for the way to what is `needed`. For a system tree
/// that cannot be shielded.
[[nodiscard]] Result<std::vector<std::string>> FindHidden(const std::string& tree, Reader reader,
                                                          const std::vector<std::string>& needed);

}  // namespace sluice::supervisor
