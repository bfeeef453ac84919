#pragma once

// Where this process stands among control groups, from what /proc says: /proc/self/cgroup (cgroups(7)) and the mounts of
// /proc/self/mountinfo (proc_pid_mountinfo(5)). Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::supervisor {

/// The folder of this process's own group in one hierarchy.
struct CgroupPlace {
  std::string mount;   ///< where the hierarchy is mounted
  std::string folder;  ///< `mount`, or below it
  bool operator==(const CgroupPlace&) const = default;
};

/// Of the unified hierarchy. Nothing where it is not mounted, or where the mount does not show this process's group.
[[nodiscard]] std::optional<CgroupPlace> FindCgroup2(std::string_view cgroup, std::string_view mountinfo);

/// Of the version 1 hierarchy that `controller` ("memory", "pids") is attached to.
[[nodiscard]] std::optional<CgroupPlace> FindCgroup1(std::string_view controller, std::string_view cgroup,
                                                     std::string_view mountinfo);

/// One line of /proc/self/cgroup: a hierarchy by its controllers, and where it shows this process's group.
struct OwnCgroup {
  std::string name;
  std::optional<CgroupPlace> place;
};
[[nodiscard]] std::vector<OwnCgroup> FindCgroups(std::string_view cgroup, std::string_view mountinfo);

/// Whether the list of a cgroup.controllers or cgroup.subtree_control file names it.
[[nodiscard]] bool NamesController(std::string_view list, std::string_view controller);

/// The number after `key` in a file of "key number" lines, as memory.events is; nothing where it has no such line.
[[nodiscard]] std::optional<uint64_t> KeyedNumber(std::string_view text, std::string_view key);

}  // namespace sluice::supervisor
