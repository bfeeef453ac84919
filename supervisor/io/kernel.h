#pragma once

// System calls and constants that are younger than the C library's headers. Thin: -1 and errno become a negative errno.

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace sluice::supervisor::kernel {

inline constexpr unsigned kPidfdThread = O_EXCL;  // Linux 6.9
inline constexpr int kSoNetnsCookie = 71;         // 5.14
inline constexpr int kSoCookie = 57;
inline constexpr uint64_t kNotifFdSyncWakeUp = 1;  // 6.6
inline constexpr unsigned long kIoctlNotifSetFlags = _IOW('!', 4, uint64_t);
inline constexpr int kRestartSyscall = 512;  // ERESTARTSYS: never leaves the kernel while a signal is pending

inline int PidfdOpen(pid_t pid, unsigned flags) {
  const long r = ::syscall(SYS_pidfd_open, pid, flags);
  return r < 0 ? -errno : static_cast<int>(r);
}

inline int PidfdGetfd(int pidfd, int fd) {
  const long r = ::syscall(SYS_pidfd_getfd, pidfd, fd, 0);
  return r < 0 ? -errno : static_cast<int>(r);
}

}  // namespace sluice::supervisor::kernel
