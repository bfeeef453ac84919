#pragma once

// The Landlock domain of the workload (landlock(7)), as values. A second lock behind the mounts, and the backstop of the
// notifications: a TCP connect that the supervisor did not make itself is refused by the kernel. Constants are written out
// because distributions' headers are older than their kernels.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "supervisor/mount_plan.h"

namespace sluice::supervisor {

/// Linux 6.7: CONNECT_TCP. Without it a connect that was never notified would reach the capture listener.
inline constexpr int kRequiredLandlockAbi = 4;
/// Linux 6.12: signals and abstract sockets stay inside the domain.
inline constexpr int kScopeLandlockAbi = 6;

/// Linux 7.1: a UNIX socket is reached, by whatever call, when the domain made it or a rule names it.
inline constexpr int kUnixLandlockAbi = 9;

/// struct landlock_ruleset_attr.
struct LandlockHandled {
  uint64_t access_fs = 0;
  uint64_t access_net = 0;
  uint64_t scoped = 0;
};

/// One LANDLOCK_RULE_PATH_BENEATH, of a path in the view.
struct LandlockRule {
  std::string path;
  uint64_t access = 0;
};

/// Whether the domain is about files. Whoever it holds to some can mount nothing, in whatever namespace (landlock(7)).
enum class LandlockFiles : uint8_t { kHeld, kLeftToMounts };

/// All that `abi` can handle of what the domain denies. kUnsupported below kRequiredLandlockAbi, naming the kernel needed.
[[nodiscard]] Result<LandlockHandled> HandledBy(int abi, LandlockFiles files = LandlockFiles::kHeld);

/// Read and execute the whole view, write only its writable trees and the harmless devices, reach the sockets of `unix` rules.
/// None where the plan leaves mounting to the workload.
[[nodiscard]] std::vector<LandlockRule> RulesFor(const MountPlan& plan, int abi);

/// What a file given as standard input, output or error may be reopened for (through /dev/stdout).
[[nodiscard]] uint64_t StandardFileAccess(int abi);

}  // namespace sluice::supervisor
