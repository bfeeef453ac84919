#pragma once

// The processes of a sandbox, from fork to execve. Three of them: the entry joins the capture's namespaces and goes; init is
// process 1 of the new pid namespace, reaps and holds nothing; the command becomes the workload's program.

#include <linux/filter.h>

#include <array>
#include <cstdint>
#include <span>

#include "supervisor/io/capture.h"
#include "supervisor/io/opened_folders.h"
#include "supervisor/launch_spec.h"
#include "supervisor/mount_plan.h"

namespace sluice::supervisor {

inline constexpr int kStartTimeoutMs = 30'000;

/// What init tells the supervisor, in one write to its status pipe: first kInitSealed, then of the command. `status` is as
/// waitpid gives it: an exit, a signal, or a stop.
struct CommandStatus {
  int32_t status = 0;
};

/// Init holds nothing of the supervisor's any more, and nobody inside may look into it.
inline constexpr int32_t kInitSealed = -1;

/// Borrowed; lives in the supervisor until the entry has been forked.
struct SandboxPlan {
  const LaunchSpec* spec = nullptr;
  const MountPlan* mounts = nullptr;
  const BareFolders* bare = nullptr;
  const Capture* capture = nullptr;
  std::span<const sock_filter> filter;
  int landlock_abi = 0;
  const LimitsInForce* limits = nullptr;  ///< of these, the resource limits are the command's to set
  std::span<const int> entrances{};       ///< of control groups: cgroup.procs, open for writing
  int handshake = -1;                     ///< the child's end
  int supervisors_end = -1;               ///< of the handshake: a copy kept would hide that the supervisor is gone
  int status_pipe = -1;
  /// What descriptors 0 to 2 become; kTerminal: the workload's own terminal.
  std::array<int, 3> standard = {0, 1, 2};
  static constexpr int kTerminal = -1;
};

/// In a new child of the supervisor: runs the entry, and never returns.
[[noreturn]] void RunEntry(const SandboxPlan& plan);

}  // namespace sluice::supervisor
