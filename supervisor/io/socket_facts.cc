#include "supervisor/io/socket_facts.h"

#include <fcntl.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>

#include "base/fault.h"
#include "supervisor/io/kernel.h"

namespace sluice::supervisor {
namespace {

template <class T>
bool Get(int fd, int option, T* out) {
  socklen_t length = sizeof *out;
  return Faulty("socket.option", [&] { return getsockopt(fd, SOL_SOCKET, option, out, &length); }) == 0 && length == sizeof *out;
}

}  // namespace

std::optional<SocketFacts> ReadSocketFacts(int fd) {
  SocketFacts out;
  if (!Get(fd, SO_DOMAIN, &out.domain) || !Get(fd, SO_TYPE, &out.type) || !Get(fd, kernel::kSoNetnsCookie, &out.netns_cookie)) {
    return std::nullopt;
  }
  return out;
}

uint64_t SocketCookie(int fd) {
  uint64_t out = 0;
  return Get(fd, kernel::kSoCookie, &out) ? out : 0;
}

bool IsNonBlocking(int fd) {
  const int flags = Faulty("socket.flags", [&] { return fcntl(fd, F_GETFL); });
  return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

bool HasPeer(int fd) {
  sockaddr_storage peer;
  socklen_t length = sizeof peer;
  return Faulty("socket.peer", [&] { return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length); }) == 0;
}

int TakeSocketError(int fd) {
  int error = 0;
  return Get(fd, SO_ERROR, &error) ? error : EBADF;
}

std::optional<std::chrono::microseconds> SendTimeout(int fd) {
  timeval value{};
  if (!Get(fd, SO_SNDTIMEO, &value) || (value.tv_sec == 0 && value.tv_usec == 0)) return std::nullopt;
  // The kernel takes more seconds than a clock of nanoseconds can be ahead.
  return std::chrono::seconds(std::min<int64_t>(value.tv_sec, kLongestSendWait.count())) +
         std::chrono::microseconds(value.tv_usec);
}

Endpoint LocalEnd(int fd) {
  sockaddr_storage name;
  socklen_t length = sizeof name;
  if (Faulty("socket.name", [&] { return getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length); }) != 0) return {};
  return Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&name), length).value_or(Endpoint{});
}

int ConnectInPlace(int fd, const sockaddr* address, socklen_t length) {
  return Faulty("socket.connect", [&] { return connect(fd, address, length); }) == 0 ? 0 : errno;
}

int Dissolve(int fd) {
  const sockaddr none{AF_UNSPEC, {}};
  return ConnectInPlace(fd, &none, sizeof none);
}

void SetReset(int fd) {
  const linger reset{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

}  // namespace sluice::supervisor
