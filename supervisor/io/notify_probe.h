#pragma once

// What this kernel's seccomp notifications can do, found by doing it: a child with a filter of its own makes calls, this process
// answers them in each way that there is, and both compare what came of it (seccomp_unotify(2)). For `sluice doctor`.

#include <string>

#include "base/result.h"

namespace sluice::supervisor {

/// A feature that is absent is false; all of them are tried whatever the others gave.
struct NotifyFeatures {
  bool listener = false;       ///< SECCOMP_FILTER_FLAG_NEW_LISTENER (Linux 5.0)
  bool reply = false;          ///< the caller got the value it was to get
  bool id_valid = false;       ///< NOTIF_ID_VALID, of a waiting call and of one that is over
  bool carry_on = false;       ///< SECCOMP_USER_NOTIF_FLAG_CONTINUE (5.5)
  bool add_fd = false;         ///< NOTIF_ADDFD at a number of the kernel's choice (5.9)
  bool add_fd_at = false;      ///< SECCOMP_ADDFD_FLAG_SETFD (5.9)
  bool add_fd_send = false;    ///< SECCOMP_ADDFD_FLAG_SEND: descriptor and reply in one (5.14)
  bool wait_killable = false;  ///< SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (5.19)
  bool sync_wake_up = false;   ///< SECCOMP_IOCTL_NOTIF_SET_FLAGS (6.6)
  bool tsync_esrch = false;    ///< SECCOMP_FILTER_FLAG_TSYNC_ESRCH beside a listener (5.7)
  bool one_listener = false;   ///< a second listener is refused (EBUSY): the workload cannot put itself above this one
  bool pidfd_getfd = false;    ///< the caller's own socket, taken and connected in its place (5.6)
  bool thread_pidfd = false;   ///< PIDFD_THREAD (6.9): of threads that unshared their descriptors
  bool read_memory = false;    ///< process_vm_readv of the caller (CONFIG_CROSS_MEMORY_ATTACH)
  bool netns_cookie = false;   ///< SO_NETNS_COOKIE of the taken socket (5.14)
  std::string fault{};         ///< why there is no listener, or what the child said; empty: nothing went wrong
  int fault_errno = 0;
};

/// Forks: call it while this process has one thread. Blocks, a few milliseconds; kProbeLimitMs at most.
[[nodiscard]] NotifyFeatures ProbeNotifications();

inline constexpr int kProbeLimitMs = 5000;

}  // namespace sluice::supervisor
