#pragma once

// What /proc tells of a container's process: its capabilities, its cgroup, and which of its mounts are its own. Pure.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::supervisor {

/// Every capability of /proc/PID/status that the process has or may come to have: the union of its five sets, a bit each
/// (capabilities(7)). Nothing where a line is missing.
[[nodiscard]] std::optional<uint64_t> ParseCapabilities(std::string_view status);

/// Those among `capabilities` by which a process could change the namespace that captures it, or leave it, as a list for people
/// ("CAP_NET_ADMIN, CAP_SYS_ADMIN"); empty: none.
[[nodiscard]] std::string CapabilitiesThatLeadOut(uint64_t capabilities);

/// The path of a process in the cgroup 2 hierarchy ("0::/…" of /proc/PID/cgroup). Nothing where it is in none.
[[nodiscard]] std::optional<std::string> ParseCgroup2Path(std::string_view cgroup);

/// Whether killing or freezing `cgroup` hits a container alone: it is no root, and not `own` nor above it. Both absolute.
[[nodiscard]] bool IsCgroupOfItsOwn(std::string_view cgroup, std::string_view own);

/// Where the cgroup 2 hierarchy is mounted, of /proc/self/mountinfo. Empty: nowhere.
[[nodiscard]] std::string FindCgroup2Mount(std::string_view mountinfo);

/// The devices ("8:1") of every mount in a mountinfo.
[[nodiscard]] std::set<std::string, std::less<>> MountedDevices(std::string_view mountinfo);

/// Trees of a container by who else may have sockets there.
struct ContainerTrees {
  std::vector<std::string> own;     ///< its root file system when it may write there, and its private tmpfs
  std::vector<std::string> shared;  ///< every other mount: bound from the host, or read-only
};

/// `mountinfo` is the container's, `host_devices` what the host has mounted: a tmpfs of those is the host's.
[[nodiscard]] ContainerTrees FindContainerTrees(std::string_view mountinfo,
                                                const std::set<std::string, std::less<>>& host_devices);

}  // namespace sluice::supervisor
