#pragma once

// Descriptors beside octets on a UNIX socket (SCM_RIGHTS, unix(7)).

#include <sys/types.h>

#include <cstddef>
#include <span>

namespace sluice {

/// SCM_MAX_FD: what one message can carry.
inline constexpr size_t kMostPassed = 253;

/// One sendmsg(2) of `bytes` with `fds`, at least one and at most kMostPassed, which stay the caller's. MSG_NOSIGNAL is set
/// beside `flags`. Answers as sendmsg does, errno included. Any thread; allocates nothing, so also between fork and exec.
[[nodiscard]] ssize_t SendDescriptors(int socket, std::span<const std::byte> bytes, std::span<const int> fds, int flags = 0);

}  // namespace sluice
