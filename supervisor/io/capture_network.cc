#include "supervisor/io/capture_network.h"

#include <fmt/format.h>
#include <libmnl/libmnl.h>
#include <linux/if_addr.h>
#include <linux/in6.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/fault.h"
#include "nft/io/kernel_peer.h"
#include "nft/io/netlink_socket.h"
#include "supervisor/capture_ruleset.h"
#include "supervisor/io/small_file.h"

namespace sluice::supervisor {
namespace {

constexpr int kLoopbackIndex = 1;  // the first interface of any network namespace
constexpr int kFirstUnprivilegedPort = 1024;
constexpr const char* kBlindDevice = "eth0";
constexpr IpAddress kBlindAddress = IpAddress::FromV4(0x0a4d0002);  // 10.77.0.2
constexpr IpAddress kBlindGateway = IpAddress::FromV4(0x0a4d0001);
constexpr uint8_t kBlindPrefix = 24;

// Points of base/fault.h.
struct RoutePoints {
  static int Open(auto call) { return Faulty("capture.route.open", call); }
  static int Bind(auto call) { return call(); }
  static int Limit(auto call) { return call(); }
};
struct LinkPoints : RoutePoints {
  static int Open(auto call) { return Faulty("capture.links.open", call); }
};

template <class Points>
Result<nft::NetlinkSocket> OpenRoute() {
  return nft::OpenNetlink<Points>({.protocol = NETLINK_ROUTE, .what = "a routing netlink socket"});
}

// One request and its answer at a time.
class RouteSocket {
 public:
  Result<void> Open() {
    auto opened = OpenRoute<RoutePoints>();
    if (!opened) return std::unexpected(opened.error());
    socket_ = *std::move(opened);
    return {};
  }
  nlmsghdr* Start(uint16_t type, uint16_t flags) {
    nlmsghdr* header = mnl_nlmsg_put_header(buffer_.data());
    header->nlmsg_type = type;
    header->nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
    header->nlmsg_seq = ++sequence_;
    return header;
  }
  Result<void> Talk(const nlmsghdr* header, const char* what) {
    if (Faulty("capture.route", [&] { return mnl_socket_sendto(socket_.get(), header, header->nlmsg_len); }) < 0)
      return FailErrno(what, errno);
    const ssize_t got =
        Faulty("capture.route.answer", [&] { return mnl_socket_recvfrom(socket_.get(), buffer_.data(), buffer_.size()); });
    if (got < 0) return FailErrno(what, errno);
    if (mnl_cb_run(buffer_.data(), static_cast<size_t>(got), sequence_, mnl_socket_get_portid(socket_.get()), nullptr, nullptr) <
        0)
      return FailErrno(what, errno);
    return {};
  }

 private:
  nft::NetlinkSocket socket_;
  alignas(nlmsghdr) std::array<char, 4096> buffer_{};
  uint32_t sequence_ = 0;
};

std::span<const uint8_t> AddressBytes(const IpAddress& address) {
  const std::span<const uint8_t> all(address.bytes());
  return address.is_v4() ? all.subspan(12) : all;
}

Result<void> LinkUp(RouteSocket& socket) {
  nlmsghdr* header = socket.Start(RTM_NEWLINK, 0);
  auto* link = static_cast<ifinfomsg*>(mnl_nlmsg_put_extra_header(header, sizeof(ifinfomsg)));
  link->ifi_family = AF_UNSPEC;
  link->ifi_index = kLoopbackIndex;
  link->ifi_flags = IFF_UP;
  link->ifi_change = IFF_UP;
  return socket.Talk(header, "cannot bring lo up");
}

// What an earlier capture of the same namespace has set already stands as it is.
Result<void> Tolerate(NamespaceOrigin origin, Result<void> added) {
  if (added || origin == NamespaceOrigin::kOwn || added.error().sys_errno != EEXIST) return added;
  return {};
}

Result<void> AddAddress(RouteSocket& socket, const IpAddress& address) {
  const auto bytes = AddressBytes(address);
  nlmsghdr* header = socket.Start(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
  auto* message = static_cast<ifaddrmsg*>(mnl_nlmsg_put_extra_header(header, sizeof(ifaddrmsg)));
  message->ifa_family = address.is_v4() ? AF_INET : AF_INET6;
  message->ifa_prefixlen = static_cast<uint8_t>(bytes.size() * 8);
  message->ifa_flags = address.is_v4() ? 0 : IFA_F_NODAD;  // usable at once: there is no one to ask
  message->ifa_scope = RT_SCOPE_UNIVERSE;                  // RFC 6724 would not choose a narrower one for distant destinations
  message->ifa_index = kLoopbackIndex;
  mnl_attr_put(header, IFA_LOCAL, bytes.size(), bytes.data());
  mnl_attr_put(header, IFA_ADDRESS, bytes.size(), bytes.data());
  return socket.Talk(header, "cannot give lo an address");
}

Result<void> AddLocalDefault(RouteSocket& socket, const IpAddress& source) {
  const auto bytes = AddressBytes(source);
  nlmsghdr* header = socket.Start(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
  auto* route = static_cast<rtmsg*>(mnl_nlmsg_put_extra_header(header, sizeof(rtmsg)));
  route->rtm_family = source.is_v4() ? AF_INET : AF_INET6;
  route->rtm_table = RT_TABLE_LOCAL;
  route->rtm_protocol = RTPROT_STATIC;
  route->rtm_scope = source.is_v4() ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE;
  route->rtm_type = RTN_LOCAL;
  mnl_attr_put_u32(header, RTA_OIF, kLoopbackIndex);
  mnl_attr_put(header, RTA_PREFSRC, bytes.size(), bytes.data());
  return socket.Talk(header, "cannot make every address local");
}

// "dummy" swallows what it is given; half a veth pair does, too, where that is what the kernel has.
Result<void> AddDevice(RouteSocket& socket, const char* kind) {
  nlmsghdr* header = socket.Start(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
  auto* link = static_cast<ifinfomsg*>(mnl_nlmsg_put_extra_header(header, sizeof(ifinfomsg)));
  link->ifi_family = AF_UNSPEC;
  link->ifi_flags = IFF_UP;
  link->ifi_change = IFF_UP;
  mnl_attr_put_strz(header, IFLA_IFNAME, kBlindDevice);
  nlattr* info = mnl_attr_nest_start(header, IFLA_LINKINFO);
  mnl_attr_put_strz(header, IFLA_INFO_KIND, kind);
  mnl_attr_nest_end(header, info);
  return socket.Talk(header, "cannot make a network device");
}

Result<void> AddDeviceAddress(RouteSocket& socket, unsigned index, const IpAddress& address, uint8_t prefix) {
  const auto bytes = AddressBytes(address);
  nlmsghdr* header = socket.Start(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
  auto* message = static_cast<ifaddrmsg*>(mnl_nlmsg_put_extra_header(header, sizeof(ifaddrmsg)));
  message->ifa_family = AF_INET;
  message->ifa_prefixlen = prefix;
  message->ifa_scope = RT_SCOPE_UNIVERSE;
  message->ifa_index = index;
  mnl_attr_put(header, IFA_LOCAL, bytes.size(), bytes.data());
  mnl_attr_put(header, IFA_ADDRESS, bytes.size(), bytes.data());
  return socket.Talk(header, "cannot give a network device an address");
}

Result<void> AddDefaultRoute(RouteSocket& socket, unsigned index, const IpAddress& gateway) {
  const auto bytes = AddressBytes(gateway);
  nlmsghdr* header = socket.Start(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
  auto* route = static_cast<rtmsg*>(mnl_nlmsg_put_extra_header(header, sizeof(rtmsg)));
  route->rtm_family = AF_INET;
  route->rtm_table = RT_TABLE_MAIN;
  route->rtm_protocol = RTPROT_STATIC;
  route->rtm_scope = RT_SCOPE_UNIVERSE;
  route->rtm_type = RTN_UNICAST;
  mnl_attr_put(header, RTA_GATEWAY, bytes.size(), bytes.data());
  mnl_attr_put_u32(header, RTA_OIF, index);
  return socket.Talk(header, "cannot make a default route");
}

Result<void> SetSysctl(const std::string& name, std::string_view value) {
  const std::string path = "/proc/sys/net/" + name;
  auto written = WriteSmallFile(path, value);
  if (written) return {};
  // A read-only /proc/sys is no obstacle where the value already stands.
  if (const auto now = ReadSmallFile(path); now && now->starts_with(value) && now->size() <= value.size() + 1) return {};
  Error error = written.error();
  error.code = Code::kUnsupported;
  return std::unexpected(std::move(error));
}

Result<UniqueFd> OpenBound(int type, uint16_t port, std::span<const int> options) {
  UniqueFd socket(Faulty("capture.socket", [&] { return ::socket(AF_INET6, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }));
  if (!socket) {
    const int error = errno;
    if (error == EAFNOSUPPORT) return Fail(Code::kUnsupported, "this kernel has IPv6 turned off (ipv6.disable)");
    return FailErrno("cannot open a capture socket", error);
  }
  const int on = 1;
  const int off = 0;
  if (Faulty("capture.dual", [&] { return ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off); }) != 0)
    return FailErrno("cannot make a capture socket dual-stack", errno);
  for (const int option : options)
    if (Faulty("capture.option", [&] { return ::setsockopt(socket.get(), IPPROTO_IPV6, option, &on, sizeof on); }) != 0)
      return FailErrno(fmt::format("cannot set IPv6 socket option {}", option), errno);
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(port);
  if (Faulty("capture.bind", [&] { return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any); }) != 0)
    return FailErrno(fmt::format("cannot bind port {} of the capture namespace", port), errno);
  return socket;
}

}  // namespace

namespace {

// Each network namespace gets these with their modules, down and without an address (net.core.fb_tunnels_only_for_init_net). One
// whose other end is in another namespace was put there.
bool IsOwnTunnel(std::string_view kind, bool linked_elsewhere) {
  constexpr std::array<std::string_view, 10> kTunnels = {"ipip",   "gre", "gretap", "erspan", "sit",
                                                         "ip6tnl", "vti", "vti6",   "ip6gre", "ip6gretap"};
  return !linked_elsewhere && std::ranges::find(kTunnels, kind) != kTunnels.end();
}

struct LinkFacts {
  std::string name = "?";
  std::string kind;
  bool linked_elsewhere = false;
};

int ReadLinkInfo(const nlattr* attribute, void* facts) {
  if (mnl_attr_get_type(attribute) == IFLA_INFO_KIND && mnl_attr_validate(attribute, MNL_TYPE_NUL_STRING) >= 0)
    static_cast<LinkFacts*>(facts)->kind = mnl_attr_get_str(attribute);
  return MNL_CB_OK;
}

int ReadLinkAttribute(const nlattr* attribute, void* into) {
  auto* facts = static_cast<LinkFacts*>(into);
  const uint16_t type = mnl_attr_get_type(attribute);
  if (type == IFLA_IFNAME && mnl_attr_validate(attribute, MNL_TYPE_NUL_STRING) >= 0) facts->name = mnl_attr_get_str(attribute);
  if (type == IFLA_LINK_NETNSID) facts->linked_elsewhere = true;
  return type == IFLA_LINKINFO ? mnl_attr_parse_nested(attribute, ReadLinkInfo, facts) : MNL_CB_OK;
}

// Names the interface when it is one by which something could leave.
int CheckLink(const nlmsghdr* message, void* name_of_other) {
  const auto* link = static_cast<const ifinfomsg*>(mnl_nlmsg_get_payload(message));
  LinkFacts facts;
  if (mnl_attr_parse(message, sizeof *link, ReadLinkAttribute, &facts) < 0) return MNL_CB_ERROR;
  const bool loopback = (link->ifi_flags & IFF_LOOPBACK) != 0 && link->ifi_index == kLoopbackIndex;
  if (!loopback && !IsOwnTunnel(facts.kind, facts.linked_elsewhere))
    *static_cast<std::string*>(name_of_other) = std::move(facts.name);
  return MNL_CB_OK;
}

}  // namespace

Result<void> CheckOnlyLoopback() {
  const auto opened = OpenRoute<LinkPoints>();
  if (!opened) return std::unexpected(opened.error());
  mnl_socket* const socket = opened->get();
  alignas(nlmsghdr) std::array<char, 32768> buffer{};  // a dump's messages may be this large (NLMSG_GOODSIZE)
  nlmsghdr* header = mnl_nlmsg_put_header(buffer.data());
  header->nlmsg_type = RTM_GETLINK;
  header->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  header->nlmsg_seq = 1;
  mnl_nlmsg_put_extra_header(header, sizeof(ifinfomsg));
  if (Faulty("capture.links.ask", [&] { return mnl_socket_sendto(socket, header, header->nlmsg_len); }) < 0)
    return FailErrno("cannot ask for interfaces", errno);
  std::string other;
  int more = MNL_CB_OK;
  while (more > MNL_CB_STOP) {
    const ssize_t got = Faulty("capture.links.answer", [&] { return mnl_socket_recvfrom(socket, buffer.data(), buffer.size()); });
    if (got < 0) return FailErrno("cannot read interfaces", errno);
    more = mnl_cb_run(buffer.data(), static_cast<size_t>(got), 1, mnl_socket_get_portid(socket), CheckLink, &other);
    if (more < 0) return FailErrno("cannot read interfaces", errno);
  }
  if (!other.empty())
    return Fail(Code::kUnsupported,
                fmt::format("its network namespace has the interface {}, by which something could leave: give the "
                            "container a namespace with lo alone (--network none)",
                            other));
  return {};
}

Result<void> ConfigureLoopback(NamespaceOrigin origin) {
  // Container runtimes turn IPv6 off where their network has none; here it ends in the same listener.
  if (origin == NamespaceOrigin::kGiven)
    if (auto set = SetSysctl("ipv6/conf/lo/disable_ipv6", "0"); !set) return set;
  RouteSocket socket;
  if (auto opened = socket.Open(); !opened) return opened;
  if (auto up = LinkUp(socket); !up) return up;
  for (const IpAddress& address : {kCaptureV4, kCaptureV6}) {
    if (auto added = Tolerate(origin, AddAddress(socket, address)); !added) return added;
    if (auto routed = Tolerate(origin, AddLocalDefault(socket, address)); !routed) return routed;
  }
  return {};
}

Result<void> AddBlindDevice() {
  RouteSocket socket;
  if (auto opened = socket.Open(); !opened) return opened;
  if (auto up = LinkUp(socket); !up) return up;
  auto made = AddDevice(socket, "dummy");
  if (!made) made = AddDevice(socket, "veth");
  if (!made) return made;
  const unsigned index = ::if_nametoindex(kBlindDevice);
  if (index == 0) return FailErrno("cannot find a network device that was just made", errno);
  if (auto addressed = AddDeviceAddress(socket, index, kBlindAddress, kBlindPrefix); !addressed) return addressed;
  return AddDefaultRoute(socket, index, kBlindGateway);
}

Result<void> ConfigureSysctls() {
  // A SYN with data would connect without a connect(2) to be judged.
  if (auto set = SetSysctl("ipv4/tcp_fastopen", "0"); !set) return set;
  const auto start = ReadSmallFile("/proc/sys/net/ipv4/ip_unprivileged_port_start");
  if (!start) return std::unexpected(start.error());
  int port = 0;
  std::from_chars(start->data(), start->data() + start->size(), port);
  if (port < kFirstUnprivilegedPort)
    return SetSysctl("ipv4/ip_unprivileged_port_start", fmt::format("{}", kFirstUnprivilegedPort));
  return {};
}

Result<CaptureSockets> OpenCaptureSockets() {
  CaptureSockets sockets;
  auto listener = OpenBound(SOCK_STREAM, kListenerPort, std::array{IPV6_TRANSPARENT});
  if (!listener) return std::unexpected(listener.error());
  // IPV6_FREEBIND lets answers carry any IPv6 source; IPv4 needs no leave, since every address is local.
  auto udp = OpenBound(SOCK_DGRAM, kDnsPort, std::array{IPV6_RECVPKTINFO, IPV6_FREEBIND});
  if (!udp) return std::unexpected(udp.error());
  auto tcp = OpenBound(SOCK_STREAM, kDnsPort, {});
  if (!tcp) return std::unexpected(tcp.error());
  const int on = 1;
  if (Faulty("capture.pktinfo", [&] { return ::setsockopt(udp->get(), IPPROTO_IP, IP_PKTINFO, &on, sizeof on); }) != 0)
    return FailErrno("cannot set IP_PKTINFO", errno);
  const auto listen = [&] { return ::listen(listener->get(), kListenBacklog) != 0 ? -1 : ::listen(tcp->get(), kDnsBacklog); };
  if (Faulty("capture.listen", listen) != 0) return FailErrno("cannot listen in the capture namespace", errno);
  for (const auto& [socket, protocol] :
       {std::pair(&sockets.socket_diagnosis, NETLINK_SOCK_DIAG), std::pair(&sockets.routes, NETLINK_ROUTE)}) {
    socket->Reset(Faulty("capture.netlink", [&] { return ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol); }));
    if (!*socket || !nft::HearKernelAlone(socket->get()))
      return FailErrno("cannot open a netlink socket of the capture namespace", errno);
  }
  sockets.listener = std::move(*listener);
  sockets.dns_udp = std::move(*udp);
  sockets.dns_tcp = std::move(*tcp);
  return sockets;
}

}  // namespace sluice::supervisor
