#pragma once

// What is asked of a pinned socket before anything is decided about it. Each a getsockopt of a fraction of a microsecond.

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/ip.h"

namespace sluice::supervisor {

struct SocketFacts {
  int domain = 0;
  int type = 0;
  uint64_t netns_cookie = 0;
};

/// Nothing: not a socket.
[[nodiscard]] std::optional<SocketFacts> ReadSocketFacts(int fd);

/// Identifies the socket for its life, on this boot.
[[nodiscard]] uint64_t SocketCookie(int fd);

[[nodiscard]] bool IsNonBlocking(int fd);
/// Has a peer: connected, or was and the connection is closing.
[[nodiscard]] bool HasPeer(int fd);
/// SO_ERROR, which it clears.
[[nodiscard]] int TakeSocketError(int fd);
/// What longer ones are taken for, so that time can be added to it.
inline constexpr std::chrono::seconds kLongestSendWait = std::chrono::years(1);
/// SO_SNDTIMEO; nothing when unlimited.
[[nodiscard]] std::optional<std::chrono::microseconds> SendTimeout(int fd);

/// getsockname; port 0 when unbound or on failure.
[[nodiscard]] Endpoint LocalEnd(int fd);

/// connect(2) as 0 or an errno.
[[nodiscard]] int ConnectInPlace(int fd, const sockaddr* address, socklen_t length);
/// connect(AF_UNSPEC).
[[nodiscard]] int Dissolve(int fd);

/// Closes with a reset instead of a FIN. Never blocks.
void SetReset(int fd);

}  // namespace sluice::supervisor
