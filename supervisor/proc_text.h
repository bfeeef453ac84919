#pragma once

// Reads the few lines of /proc/PID/status and /proc/PID/stat that identify a process. Pure, and wary: a process chooses its own
// name, which may hold spaces, parentheses and newlines (escaped by the kernel in status, not in stat).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::supervisor {

struct ProcStatus {
  std::string name;
  int32_t thread_group = 0;
  int32_t parent = 0;
  uint32_t uid = 0;           ///< effective
  int32_t innermost_pid = 0;  ///< in the innermost pid namespace: 1 is the sandbox's own init
  uint64_t pending = 0;       ///< signals for the thread or its process
  uint64_t blocked = 0;
};

/// Nothing when a needed line is missing or malformed.
[[nodiscard]] std::optional<ProcStatus> ParseProcStatus(std::string_view text);

/// Field 22 of /proc/PID/stat: clock ticks since boot.
[[nodiscard]] std::optional<uint64_t> ParseStartTime(std::string_view stat);

/// The mount points of /proc/PID/mountinfo, unescaped. A malformed line is skipped.
[[nodiscard]] std::vector<std::string> ParseMountPoints(std::string_view mountinfo);

/// One line of /proc/PID/mountinfo (proc_pid_mountinfo(5)).
struct MountLine {
  std::string device;  ///< "major:minor"
  std::string root;    ///< what of the file system is mounted
  std::string point;
  std::string type;
  bool read_only = false;  ///< the mount, or its file system
};
/// In its order. Paths are unescaped; a malformed line is skipped.
[[nodiscard]] std::vector<MountLine> ParseMounts(std::string_view mountinfo);

/// The flags of /proc/PID/fdinfo/N, as of open(2). Nothing where there are none.
[[nodiscard]] std::optional<int> ParseOpenFlags(std::string_view fdinfo);

/// The kernel's text for an executable that was unlinked, or that never had a name.
[[nodiscard]] bool IsNamedExecutable(std::string_view link);

}  // namespace sluice::supervisor
