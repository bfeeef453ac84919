#pragma once

// What a process that waits in execve would carry into its program. A container's runtime leaves open what it was told to
// (--preserve-fds, LISTEN_FDS) and passes its own standard streams on: a socket made elsewhere is bounded by no namespace of the
// container's, and nobody is asked about a write or a sendmsg.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace sluice::supervisor {

inline constexpr size_t kMaxCarried = 1024;  ///< descriptors of one process that are looked at

/// `process` may be a thread, and stands still. kInvalid names a descriptor by which its program could get past the network
/// namespace whose sockets have `netns_cookie`: a socket of another, an io_uring, a device (tunnels, taps and vhost among them)
/// that is no terminal and not of the kind of /dev/null. Its runtime's UNIX stream stays as a standard stream, and what execve
/// closes is no matter. kExhausted: more than kMaxCarried. kPermission: they cannot be looked at.
[[nodiscard]] Result<void> CheckCarried(pid_t process, uint64_t netns_cookie);

}  // namespace sluice::supervisor
