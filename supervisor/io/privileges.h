#pragma once

// What a process gives up for good, each step in the calling process.

#include <cstdint>

#include "base/result.h"
#include "supervisor/mount_plan.h"

namespace sluice::supervisor {

/// no_new_privs, no capability in any set, secure bits locked, no core files, a session keyring of its own.
[[nodiscard]] Result<void> DropPrivileges();

/// No capability in the sets of this process; for one that executes nothing any more.
[[nodiscard]] Result<void> DropCapabilities();

/// For a service that runs no workload: no_new_privs, and of its capabilities only those to read what belongs to others, in files
/// and in /proc, with CAP_NET_ADMIN and CAP_NET_RAW where it fences a network. Before any thread exists. An ordinary user has
/// none to begin with.
enum class NetworkRights : uint8_t { kNone, kAdministration };
[[nodiscard]] Result<void> KeepReadingOnly(NetworkRights network = NetworkRights::kNone);

/// No core file of this process, and no other process of its user may trace it or look at its memory and descriptors. Once the
/// workload is launched: the kernel makes no light copy of such a process (light_process.h).
[[nodiscard]] Result<void> ForbidDumps();

/// The running kernel's Landlock ABI; 0 where it is off.
[[nodiscard]] int LandlockAbi();

/// Restricts the calling process to the plan's rules. After DropPrivileges, inside the view; descriptors 0 to 2 are the
/// workload's own.
[[nodiscard]] Result<void> EnterLandlock(const MountPlan& plan, int abi);

}  // namespace sluice::supervisor
