#include "supervisor/io/redirect_sockets.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
// netinet/in.h comes before the kernel's headers: they define the same names.
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <sys/socket.h>

#include <cerrno>
#include <span>

#include "base/fault.h"

namespace sluice::supervisor {
namespace {

constexpr int kBacklog = 4096;
constexpr int kDnsBacklog = 256;
constexpr int kPortAttempts = 16;  // the kernel chose a port for UDP that is taken for TCP

struct SocketOption {
  int level;
  int name;
};

Result<void> TurnOn(const UniqueFd& socket, std::span<const SocketOption> options) {
  const int on = 1;
  for (const SocketOption& option : options)
    if (Faulty("redirect.option", [&] { return setsockopt(socket.get(), option.level, option.name, &on, sizeof on); }) != 0)
      return FailErrno(fmt::format("cannot set socket option {} of level {}", option.name, option.level), errno);
  return {};
}

enum class Family : uint8_t { kV4, kV6 };

// An IPv4 address is bound by an IPv6 socket, so that whoever reads from it sees one kind of address.
sockaddr_in6 LoopbackAddress(Family family, uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_addr = IN6ADDR_LOOPBACK_INIT;
  if (family == Family::kV4) inet_pton(AF_INET6, "::ffff:127.0.0.1", &address.sin6_addr);
  return address;
}

// `port` is filled in where it is 0. EADDRINUSE is told by the error's sys_errno.
Result<UniqueFd> OpenOnLoopback(Family family, int type, const char* what, uint16_t* port) {
  UniqueFd socket(Faulty("redirect.socket", [&] { return ::socket(AF_INET6, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }));
  if (!socket && errno == EAFNOSUPPORT) return Fail(Code::kUnsupported, "this kernel has IPv6 turned off (ipv6.disable)");
  if (!socket) return FailErrno(fmt::format("cannot open the {}'s socket", what), errno);
  const int only6 = family == Family::kV6 ? 1 : 0;
  const auto choose = [&] { return setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only6, sizeof only6); };
  if (Faulty("redirect.family", choose) != 0) return FailErrno(fmt::format("cannot choose the {}'s family", what), errno);
  // One that starts again finds its port held by connections of the one before.
  constexpr SocketOption kReuse[] = {{SOL_SOCKET, SO_REUSEADDR}};
  constexpr SocketOption kInfo[] = {{IPPROTO_IP, IP_PKTINFO}, {IPPROTO_IPV6, IPV6_RECVPKTINFO}};
  const auto set = type == SOCK_STREAM ? TurnOn(socket, kReuse) : TurnOn(socket, kInfo);
  if (!set) return std::unexpected(set.error());
  sockaddr_in6 address = LoopbackAddress(family, *port);
  socklen_t size = sizeof address;
  if (Faulty("redirect.bind", [&] { return bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size); }) != 0) {
    const int error = errno;
    if (error == EADDRINUSE)
      return std::unexpected(Error{Code::kInvalid, fmt::format("port {} for the {} is taken here", *port, what), error, {}});
    return FailErrno(fmt::format("cannot bind the {} to port {}", what, *port), error);
  }
  const auto name = [&] { return getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size); };
  if (Faulty("redirect.port", name) != 0) return FailErrno(fmt::format("cannot read the {}'s port", what), errno);
  *port = ntohs(address.sin6_port);
  return socket;
}

Result<RedirectFamily> OpenFamily(Family family, uint16_t* proxy_port, uint16_t* dns_port) {
  RedirectFamily opened;
  struct Wanted {
    UniqueFd* socket;
    int type;
    const char* what;
    uint16_t* port;
  };
  for (const Wanted& wanted :
       {Wanted{&opened.listener, SOCK_STREAM, "transparent proxy", proxy_port},
        Wanted{&opened.dns_udp, SOCK_DGRAM, "resolver", dns_port}, Wanted{&opened.dns_tcp, SOCK_STREAM, "resolver", dns_port}}) {
    auto socket = OpenOnLoopback(family, wanted.type, wanted.what, wanted.port);
    if (!socket) return std::unexpected(socket.error());
    *wanted.socket = *std::move(socket);
  }
  return opened;
}

Result<RedirectSockets> TryPorts(uint16_t proxy_port, uint16_t dns_port) {
  RedirectSockets sockets;
  sockets.proxy_port = proxy_port;
  sockets.dns_port = dns_port;
  for (const Family family : {Family::kV4, Family::kV6}) {
    auto opened = OpenFamily(family, &sockets.proxy_port, &sockets.dns_port);
    // A namespace without ::1 sends nothing over IPv6.
    if (!opened && family == Family::kV6 && opened.error().sys_errno == EADDRNOTAVAIL) continue;
    if (!opened) return std::unexpected(opened.error());
    sockets.families.push_back(*std::move(opened));
  }
  return sockets;
}

}  // namespace

Result<void> RedirectSockets::Listen() {
  for (const RedirectFamily& family : families)
    if (Faulty("redirect.listen", [&] { return listen(family.listener.get(), kBacklog); }) != 0 ||
        listen(family.dns_tcp.get(), kDnsBacklog) != 0)
      return FailErrno("cannot listen on lo", errno);
  return {};
}

Result<RedirectSockets> OpenRedirectSockets(uint16_t proxy_port, uint16_t dns_port) {
  for (int attempt = 0;; ++attempt) {
    auto sockets = TryPorts(proxy_port, dns_port);
    // A port that the kernel chose for one socket may be taken for the next.
    const bool chosen = proxy_port == 0 || dns_port == 0;
    if (sockets || sockets.error().sys_errno != EADDRINUSE || !chosen || attempt == kPortAttempts) return sockets;
  }
}

std::optional<Endpoint> OriginalDestination(int socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (Faulty("redirect.here", [&] { return getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size); }) != 0)
    return std::nullopt;
  const auto here = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&own), size);
  if (!here) return std::nullopt;
  sockaddr_storage original{};
  size = sizeof original;
  const bool v4 = here->address.is_v4();
  const auto ask = [&] {
    return getsockopt(socket, v4 ? SOL_IP : SOL_IPV6, v4 ? SO_ORIGINAL_DST : IP6T_SO_ORIGINAL_DST, &original, &size);
  };
  if (Faulty("redirect.original", ask) != 0) return std::nullopt;
  const auto destination = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&original), size);
  if (!destination || *destination == *here) return std::nullopt;
  return destination;
}

}  // namespace sluice::supervisor
