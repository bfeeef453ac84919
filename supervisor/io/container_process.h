#pragma once

// The process of a container whose call waits: everything of it that matters is the kernel's word, not the runtime's. A pid in a
// message may be another's by the time it is read, and crun's is 0 for `exec`; the caller of a notification stands still while it
// is looked at, and the notification found waiting afterwards says that it was this one.

#include <linux/seccomp.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "supervisor/io/seccomp_channel.h"

namespace sluice::supervisor {

struct NamespaceId {
  uint64_t device = 0;
  uint64_t inode = 0;
  auto operator<=>(const NamespaceId&) const = default;
};

/// Of a program that a hook of the runtime's started in the container, the container's first process: the hook's ends.
struct ContainerProcess {
  pid_t pid = 0;              ///< its process, in this process's pid namespace
  uint64_t start_time = 0;    ///< clock ticks since boot
  pid_t innermost_pid = 0;    ///< 1: the container's first process, with which all of its pid namespace dies
  uint64_t capabilities = 0;  ///< that it has or may come to have
  std::string cgroup;         ///< cgroup 2 path that holds this container alone; empty: none
  NamespaceId network;
  NamespaceId pids;
  NamespaceId mounts;
  uid_t network_owner = 0;  ///< user who owns the user namespace that owns the network namespace
  UniqueFd pidfd;
  UniqueFd proc;               ///< its folder in /proc
  UniqueFd network_namespace;  ///< while it is held, `network` is no other's; so is `pids` by the next
  UniqueFd pid_namespace;
};

/// Who waits in this notification. kNotFound: it waits no longer. kPermission: this process may not look into it. kUnsupported:
/// it is in a pid namespace that is not below this process's.
[[nodiscard]] Result<ContainerProcess> ExamineCaller(const SeccompChannel& channel, const seccomp_notif& notification);

/// Whether the capture of its network namespace would hold it: namespaces of its own, and no capability that leads out of them.
/// `peer` asked for it, and may ask for its own containers only, unless it is root. kInvalid says what to change.
[[nodiscard]] Result<void> CheckContained(const ContainerProcess& process, uid_t peer);

}  // namespace sluice::supervisor
