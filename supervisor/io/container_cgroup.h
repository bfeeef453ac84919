#pragma once

// Whether a cgroup is a container's alone, so that what is done to it as a whole is done to nobody else. A path does not say: a
// runtime that manages no cgroups leaves the container where it was started itself, in a session's with all that runs there. The
// processes in it say.

#include <string>

#include "supervisor/io/container_process.h"

namespace sluice::supervisor {

/// The folder of a cgroup 2 path, of a hierarchy mounted here that may be written. Empty: there is none, or the path is this
/// process's own or above it.
[[nodiscard]] std::string CgroupFolder(const std::string& path);

/// Whether every process in that folder and below it is in this pid namespace or one below that. False too where nobody knows.
/// It is true of the moment alone: a host may move another process there, which the container cannot.
[[nodiscard]] bool HoldsOnly(const std::string& folder, const NamespaceId& pids);

}  // namespace sluice::supervisor
