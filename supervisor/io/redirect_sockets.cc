#include "supervisor/io/redirect_sockets.h"

#include <fmt/format.h>
#include <netinet/in.h>
// netinet/in.h comes before the kernel's headers: they define the same names.
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>

namespace sluice::supervisor {
namespace {

constexpr int kBacklog = 4096;
constexpr int kDnsBacklog = 256;
constexpr int kPortAttempts = 16;  // the kernel chose a port for UDP that is taken for TCP
constexpr std::string_view kDevice = "lo";

struct SocketOption {
  int level;
  int name;
};

Result<void> TurnOn(const UniqueFd& socket, std::span<const SocketOption> options) {
  const int on = 1;
  for (const SocketOption& option : options)
    if (setsockopt(socket.get(), option.level, option.name, &on, sizeof on) != 0)
      return FailErrno(fmt::format("cannot set socket option {} of level {}", option.name, option.level), errno);
  return {};
}

// Any address of `lo`. `port` is filled in where it is 0.
Result<UniqueFd> OpenOnLoopback(int type, const char* what, uint16_t* port) {
  UniqueFd socket(::socket(AF_INET6, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const bool dual = static_cast<bool>(socket);
  if (!dual) socket.Reset(::socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return FailErrno(fmt::format("cannot open the {}'s socket", what), errno);
  const int off = 0;
  if (dual && setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0)
    return FailErrno(fmt::format("cannot make the {}'s socket dual-stack", what), errno);
  // One that starts again finds its port held by connections of the one before.
  constexpr SocketOption kReuse[] = {{SOL_SOCKET, SO_REUSEADDR}};
  if (type == SOCK_STREAM)
    if (auto set = TurnOn(socket, kReuse); !set) return std::unexpected(set.error());
  if (setsockopt(socket.get(), SOL_SOCKET, SO_BINDTODEVICE, kDevice.data(), kDevice.size()) != 0)
    return FailErrno(fmt::format("cannot bind the {}'s socket to the device lo", what), errno);
  sockaddr_storage address{};
  address.ss_family = dual ? AF_INET6 : AF_INET;
  auto* const in6 = reinterpret_cast<sockaddr_in6*>(&address);
  auto* const in4 = reinterpret_cast<sockaddr_in*>(&address);
  (dual ? in6->sin6_port : in4->sin_port) = htons(*port);
  socklen_t size = dual ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    const int error = errno;
    if (error == EADDRINUSE) return Fail(Code::kInvalid, fmt::format("port {} for the {} is taken here", *port, what));
    return FailErrno(fmt::format("cannot bind the {} to port {}", what, *port), error);
  }
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return FailErrno(fmt::format("cannot read the {}'s port", what), errno);
  *port = ntohs(dual ? in6->sin6_port : in4->sin_port);
  constexpr SocketOption kInfo4[] = {{IPPROTO_IP, IP_PKTINFO}};
  constexpr SocketOption kInfo6[] = {{IPPROTO_IPV6, IPV6_RECVPKTINFO}};
  if (type == SOCK_DGRAM) {
    if (auto set = TurnOn(socket, kInfo4); !set) return std::unexpected(set.error());
    if (dual)
      if (auto set = TurnOn(socket, kInfo6); !set) return std::unexpected(set.error());
  }
  return socket;
}

Result<void> OpenResolver(uint16_t port, RedirectSockets* sockets) {
  for (int attempt = 0;; ++attempt) {
    sockets->dns_port = port;
    auto udp = OpenOnLoopback(SOCK_DGRAM, "resolver", &sockets->dns_port);
    if (!udp) return std::unexpected(udp.error());
    auto tcp = OpenOnLoopback(SOCK_STREAM, "resolver", &sockets->dns_port);
    if (!tcp && port == 0 && attempt < kPortAttempts) continue;
    if (!tcp) return std::unexpected(tcp.error());
    sockets->dns_udp = *std::move(udp);
    sockets->dns_tcp = *std::move(tcp);
    return {};
  }
}

}  // namespace

Result<void> RedirectSockets::Listen() {
  if (listen(listener.get(), kBacklog) != 0 || listen(dns_tcp.get(), kDnsBacklog) != 0)
    return FailErrno("cannot listen on lo", errno);
  return {};
}

Result<RedirectSockets> OpenRedirectSockets(uint16_t proxy_port, uint16_t dns_port) {
  RedirectSockets sockets;
  sockets.proxy_port = proxy_port;
  auto listener = OpenOnLoopback(SOCK_STREAM, "transparent proxy", &sockets.proxy_port);
  if (!listener) return std::unexpected(listener.error());
  sockets.listener = *std::move(listener);
  if (auto opened = OpenResolver(dns_port, &sockets); !opened) return std::unexpected(opened.error());
  return sockets;
}

std::optional<Endpoint> OriginalDestination(int socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) != 0) return std::nullopt;
  const auto here = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&own), size);
  if (!here) return std::nullopt;
  sockaddr_storage original{};
  size = sizeof original;
  const bool v4 = here->address.is_v4();
  if (getsockopt(socket, v4 ? SOL_IP : SOL_IPV6, v4 ? SO_ORIGINAL_DST : IP6T_SO_ORIGINAL_DST, &original, &size) != 0)
    return std::nullopt;
  const auto destination = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&original), size);
  if (!destination || *destination == *here) return std::nullopt;
  return destination;
}

}  // namespace sluice::supervisor
