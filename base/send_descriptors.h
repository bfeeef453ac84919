#pragma once

// Descriptors beside octets on a UNIX socket (SCM_RIGHTS, unix(7)).

#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>
#include <span>
#include <vector>

#include "base/unique_fd.h"

namespace sluice {

/// SCM_MAX_FD: what one message can carry.
inline constexpr size_t kMostPassed = 253;

/// One sendmsg(2) of `bytes` with `fds`, at least one and at most kMostPassed, which stay the caller's. MSG_NOSIGNAL is set
/// beside `flags`. Answers as sendmsg does, errno included. Any thread; allocates nothing, so also between fork and exec.
[[nodiscard]] ssize_t SendDescriptors(int socket, std::span<const std::byte> bytes, std::span<const int> fds, int flags = 0);

/// Adds the descriptors of a message that recvmsg(2) gave to `fds`: all of them, so that none stays open by mistake.
/// Close-on-exec where it was received with MSG_CMSG_CLOEXEC. Those that found no room are closed already, and MSG_CTRUNC says
/// so.
void TakeDescriptors(msghdr& message, std::vector<UniqueFd>* fds);

}  // namespace sluice
