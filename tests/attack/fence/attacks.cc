// What a root process with CAP_NET_RAW and CAP_SETUID can send by, each with the mark in it or toward the forbidden port.

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>

#include "tests/attack/fence/pod.h"

namespace sluice::supervisor {
namespace {

constexpr int kQdiscBypass = 20;            // PACKET_QDISC_BYPASS
constexpr int kFastOpenNoCookie = 34;       // TCP_FASTOPEN_NO_COOKIE
constexpr int kMultipathTcp = 262;          // IPPROTO_MPTCP, Linux 5.6
constexpr int kReceiveMark = 75;            // SO_RCVMARK, Linux 5.19
constexpr uint32_t kOfKernelMark = 0x51ce;  // what the fence writes on lo

using Bytes = std::vector<uint8_t>;

void Put16(Bytes& bytes, uint32_t value) {
  bytes.push_back(static_cast<uint8_t>(value >> 8));
  bytes.push_back(static_cast<uint8_t>(value));
}
void PutText(Bytes& bytes, const std::string& text) { bytes.insert(bytes.end(), text.begin(), text.end()); }
void PutAddress(Bytes& bytes, const char* text) {
  const IpAddress address = IpAddress::Parse(text).value();
  const auto& all = address.bytes();
  bytes.insert(bytes.end(), all.begin() + (address.is_v4() ? 12 : 0), all.end());
}

uint16_t Sum(const Bytes& bytes, size_t from, size_t to, uint32_t start = 0) {
  uint32_t sum = start;
  for (size_t i = from; i < to; i += 2) sum += static_cast<uint32_t>(bytes[i] << 8 | (i + 1 < to ? bytes[i + 1] : 0));
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

Bytes Ip4(uint8_t protocol, const char* source, const char* destination, const Bytes& payload, uint16_t fragment = 0,
          const Bytes& options = {}) {
  Bytes packet{static_cast<uint8_t>(0x45 + options.size() / 4), 0};
  Put16(packet, static_cast<uint32_t>(20 + options.size() + payload.size()));
  Put16(packet, 0x1234);
  Put16(packet, fragment);
  packet.insert(packet.end(), {64, protocol, 0, 0});
  PutAddress(packet, source);
  PutAddress(packet, destination);
  packet.insert(packet.end(), options.begin(), options.end());
  const uint16_t sum = Sum(packet, 0, packet.size());
  packet[10] = static_cast<uint8_t>(sum >> 8);
  packet[11] = static_cast<uint8_t>(sum);
  packet.insert(packet.end(), payload.begin(), payload.end());
  return packet;
}

// `protocol` names what `payload` begins with.
Bytes Ip6(uint8_t protocol, const char* source, const char* destination, const Bytes& payload) {
  Bytes packet{0x60, 0, 0, 0};
  Put16(packet, static_cast<uint32_t>(payload.size()));
  packet.insert(packet.end(), {protocol, 64});
  PutAddress(packet, source);
  PutAddress(packet, destination);
  packet.insert(packet.end(), payload.begin(), payload.end());
  return packet;
}

// RFC 8200 section 4.5.
Bytes Fragment6(uint8_t protocol, uint16_t offset_and_more, const Bytes& payload) {
  Bytes header{protocol, 0};
  Put16(header, offset_and_more);
  header.insert(header.end(), {0, 0, 0x12, 0x34});
  header.insert(header.end(), payload.begin(), payload.end());
  return header;
}

Bytes Udp(const std::string& text, uint16_t source = 4000, uint16_t destination = kForbiddenPort) {
  Bytes packet;
  Put16(packet, source);
  Put16(packet, destination);
  Put16(packet, static_cast<uint32_t>(8 + text.size()));
  Put16(packet, 0);
  PutText(packet, text);
  return packet;
}

// With the checksum of RFC 768 and RFC 9293 at `at`.
Bytes Summed(Bytes segment, size_t at, uint8_t protocol, const char* source, const char* destination) {
  Bytes pseudo;
  PutAddress(pseudo, source);
  PutAddress(pseudo, destination);
  Put16(pseudo, protocol);
  Put16(pseudo, static_cast<uint32_t>(segment.size()));
  const uint32_t start = static_cast<uint16_t>(~Sum(pseudo, 0, pseudo.size()));
  const uint16_t sum = Sum(segment, 0, segment.size(), start);
  segment[at] = static_cast<uint8_t>(sum >> 8);
  segment[at + 1] = static_cast<uint8_t>(sum);
  return segment;
}

Bytes Tcp(const char* source, const char* destination, uint16_t from, uint16_t to, uint8_t flags, const std::string& text) {
  Bytes packet;
  Put16(packet, from);
  Put16(packet, to);
  packet.insert(packet.end(), {0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags});
  Put16(packet, 1000);
  Put16(packet, 0);
  Put16(packet, 0);
  PutText(packet, text);
  return Summed(std::move(packet), 16, IPPROTO_TCP, source, destination);
}

sockaddr_storage To(const char* address, uint16_t port, socklen_t* length) {
  sockaddr_storage out{};
  *length = static_cast<socklen_t>(Endpoint{IpAddress::Parse(address).value(), port}.ToSockaddr(&out));
  return out;
}

void SendTo(int fd, const char* address, uint16_t port, const Bytes& bytes) {
  socklen_t length = 0;
  const sockaddr_storage to = To(address, port, &length);
  [[maybe_unused]] const auto sent =
      ::sendto(fd, bytes.data(), bytes.size(), MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&to), length);
}

void Datagram(const char* address, uint16_t port, const std::function<void(int)>& prepare = {}) {
  const bool v4 = std::string_view(address).find(':') == std::string_view::npos;
  const UniqueFd socket(::socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM, 0));
  if (prepare) prepare(socket.get());
  SendTo(socket.get(), address, port, Bytes(kForbidden, kForbidden + 6));
}

void Stream(const char* address, const std::function<void(int)>& prepare = {}) {
  const bool v4 = std::string_view(address).find(':') == std::string_view::npos;
  const UniqueFd socket(::socket(v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0));
  if (prepare) prepare(socket.get());
  socklen_t length = 0;
  const sockaddr_storage to = To(address, kForbiddenPort, &length);
  [[maybe_unused]] const int made = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), length);
  ::usleep(50'000);
}

// Data in the SYN (RFC 7413), without a cookie.
void FastOpen(const char* address) {
  const bool v4 = std::string_view(address).find(':') == std::string_view::npos;
  const UniqueFd socket(::socket(v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0));
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, kFastOpenNoCookie, &on, sizeof on);
  socklen_t length = 0;
  const sockaddr_storage to = To(address, kForbiddenPort, &length);
  [[maybe_unused]] const auto sent =
      ::sendto(socket.get(), kForbidden, 6, MSG_FASTOPEN, reinterpret_cast<const sockaddr*>(&to), length);
  ::usleep(50'000);
}

void MultipathStream() {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, kMultipathTcp));
  if (!socket) socket = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));  // a kernel without it
  socklen_t length = 0;
  const sockaddr_storage to = To(kWorldV4, kForbiddenPort, &length);
  [[maybe_unused]] const int made = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), length);
  ::usleep(50'000);
}

// A neighbour on the link, where routers announce resolvers (RFC 8106).
void LinkLocal(uint16_t port) {
  const UniqueFd socket(::socket(AF_INET6, SOCK_DGRAM, 0));
  socklen_t length = 0;
  sockaddr_storage to = To(kWorldLink, port, &length);
  reinterpret_cast<sockaddr_in6*>(&to)->sin6_scope_id = ::if_nametoindex("eth0");
  [[maybe_unused]] const auto sent =
      ::sendto(socket.get(), kForbidden, 6, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&to), length);
}

// The device named with the packet, not with the socket.
void DeviceInMessage() {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM, 0));
  socklen_t length = 0;
  sockaddr_storage to = To(kWorldV4, kForbiddenPort, &length);
  Bytes text(kForbidden, kForbidden + 6);
  iovec part{.iov_base = text.data(), .iov_len = text.size()};
  alignas(cmsghdr) std::array<uint8_t, CMSG_SPACE(sizeof(in_pktinfo))> control{};
  msghdr message{};
  message.msg_name = &to;
  message.msg_namelen = length;
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  *head = {.cmsg_len = CMSG_LEN(sizeof(in_pktinfo)), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_PKTINFO};
  in_pktinfo where{};
  where.ipi_ifindex = static_cast<int>(::if_nametoindex("eth0"));
  std::memcpy(CMSG_DATA(head), &where, sizeof where);
  ::sendmsg(socket.get(), &message, MSG_DONTWAIT);
}

// Root owns the network's settings whatever its capabilities: this one lets groups send echoes without a raw socket.
void PingSocket(const Bytes& echo) {
  const UniqueFd groups(::open("/proc/sys/net/ipv4/ping_group_range", O_WRONLY));
  [[maybe_unused]] const auto written = ::write(groups.get(), "0 0", 3);
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP));
  SendTo(socket.get(), kWorldV4, 0, echo);
}

void Raw4(const Bytes& packet, const std::function<void(int)>& prepare = {}) {
  const UniqueFd socket(::socket(AF_INET, SOCK_RAW, IPPROTO_RAW));
  if (prepare) prepare(socket.get());
  SendTo(socket.get(), kWorldV4, 0, packet);
}

// A packet with its header, as it is.
void Raw6(const Bytes& packet, const char* destination = kWorldV6) {
  const UniqueFd socket(::socket(AF_INET6, SOCK_RAW, IPPROTO_RAW));
  SendTo(socket.get(), destination, 0, packet);
}

void Raw6(uint8_t protocol, const char* destination, const Bytes& payload) {
  const UniqueFd socket(::socket(AF_INET6, SOCK_RAW, protocol));
  SendTo(socket.get(), destination, 0, payload);
}

// A frame of the device, to its peer.
void Send(const char* device, uint16_t type, const Bytes& packet, bool bypass = false) {
  const UniqueFd socket(::socket(AF_PACKET, SOCK_DGRAM, 0));
  const int on = 1;
  if (bypass) ::setsockopt(socket.get(), SOL_PACKET, kQdiscBypass, &on, sizeof on);
  sockaddr_ll to{};
  to.sll_family = AF_PACKET;
  to.sll_protocol = htons(type);
  to.sll_ifindex = static_cast<int>(::if_nametoindex(device));
  to.sll_halen = 6;
  std::memset(to.sll_addr, std::string_view(device) == "lo" ? 0 : 0xff, 6);
  [[maybe_unused]] const auto sent =
      ::sendto(socket.get(), packet.data(), packet.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
}

void ExtensionHeader(int option, const Bytes& header) {
  Datagram(kWorldV6, kForbiddenPort,
           [&](int fd) { ::setsockopt(fd, IPPROTO_IPV6, option, header.data(), static_cast<socklen_t>(header.size())); });
}

// Sends one frame past every hook of the network layer.
void Xdp(const char* device, const Bytes& frame, uint32_t mark = 0) {
  constexpr size_t kFrames = 4;
  constexpr size_t kFrameBytes = 4096;
  const UniqueFd socket(::socket(AF_XDP, SOCK_RAW, 0));
  auto* memory =
      static_cast<uint8_t*>(::mmap(nullptr, kFrames * kFrameBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  xdp_umem_reg region{};
  region.addr = reinterpret_cast<uint64_t>(memory);
  region.len = kFrames * kFrameBytes;
  region.chunk_size = kFrameBytes;
  const int entries = kFrames;
  if (::setsockopt(socket.get(), SOL_XDP, XDP_UMEM_REG, &region, sizeof region) != 0) return;
  for (const int ring : {XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_TX_RING})
    ::setsockopt(socket.get(), SOL_XDP, ring, &entries, sizeof entries);
  if (mark != 0) ::setsockopt(socket.get(), SOL_SOCKET, SO_MARK, &mark, sizeof mark);
  xdp_mmap_offsets offsets{};
  socklen_t length = sizeof offsets;
  ::getsockopt(socket.get(), SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &length);
  auto* ring = static_cast<uint8_t*>(::mmap(nullptr, offsets.tx.desc + kFrames * sizeof(xdp_desc), PROT_READ | PROT_WRITE,
                                            MAP_SHARED | MAP_POPULATE, socket.get(), XDP_PGOFF_TX_RING));
  sockaddr_xdp address{};
  address.sxdp_family = AF_XDP;
  address.sxdp_ifindex = ::if_nametoindex(device);
  address.sxdp_flags = XDP_COPY;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return;
  std::memcpy(memory, frame.data(), frame.size());
  const xdp_desc descriptor{.addr = 0, .len = static_cast<uint32_t>(frame.size()), .options = 0};
  std::memcpy(ring + offsets.tx.desc, &descriptor, sizeof descriptor);
  const uint32_t one = 1;
  std::memcpy(ring + offsets.tx.producer, &one, sizeof one);
  ::sendto(socket.get(), nullptr, 0, MSG_DONTWAIT, nullptr, 0);
}

Bytes Ethernet(uint16_t type, const Bytes& packet, uint8_t destination = 0xff) {
  Bytes frame(6, destination);
  frame.insert(frame.end(), {2, 2, 2, 2, 2, 2});
  Put16(frame, type);
  frame.insert(frame.end(), packet.begin(), packet.end());
  return frame;
}

// The opening of a connection that claims to come from the world, and an answer to it made here: a rewritten flow's answer would
// go to where the opening claimed to come from.
void ForgedAnswer() {
  Raw4(Ip4(IPPROTO_TCP, kWorldV4, "198.51.100.9", Tcp(kWorldV4, "198.51.100.9", kForbiddenPort, 443, TH_SYN, "")));
  ::usleep(20'000);
  for (const uint16_t port : {kProxyPort, uint16_t{443}}) {
    const char* from = port == kProxyPort ? "127.0.0.1" : "198.51.100.9";
    Bytes answer = Tcp(from, kWorldV4, port, kForbiddenPort, TH_SYN | TH_ACK, kForbidden);
    const UniqueFd socket(::socket(AF_INET, SOCK_RAW, IPPROTO_RAW));
    SendTo(socket.get(), kWorldV4, 0, Ip4(IPPROTO_TCP, from, kWorldV4, answer));
  }
}
void ForgedAnswer6() {
  Raw6(Ip6(IPPROTO_TCP, kWorldV6, "2001:db8:9::9", Tcp(kWorldV6, "2001:db8:9::9", kForbiddenPort, 443, TH_SYN, "")),
       "2001:db8:9::9");
  ::usleep(20'000);
  for (const uint16_t port : {kProxyPort, uint16_t{443}}) {
    const char* from = port == kProxyPort ? "::1" : "2001:db8:9::9";
    Raw6(Ip6(IPPROTO_TCP, from, kWorldV6, Tcp(from, kWorldV6, port, kForbiddenPort, TH_SYN | TH_ACK, kForbidden)));
  }
}

// A listener of the workload's own, and the opening of a connection to it from the world that comes in by `lo`: the answer would
// leave.
void FakedInbound(const std::function<void(const Bytes&)>& send) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
  socklen_t length = 0;
  const sockaddr_storage at = To(kPodV4, 8080, &length);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), length) != 0 || ::listen(listener.get(), 8) != 0) return;
  send(Ip4(IPPROTO_TCP, kWorldV4, kPodV4, Tcp(kWorldV4, kPodV4, kForbiddenPort, 8080, TH_SYN, "")));
  ::usleep(50'000);
}

Bytes Made(const Forged& packet) {
  const bool v4 = std::string_view(packet.source).find(':') == std::string_view::npos;
  const Bytes payload = packet.protocol == IPPROTO_UDP ? Summed(Udp(packet.text, packet.source_port, packet.destination_port), 6,
                                                                IPPROTO_UDP, packet.source, packet.destination)
                                                       : Tcp(packet.source, packet.destination, packet.source_port,
                                                             packet.destination_port, TH_ACK | TH_PUSH, packet.text);
  return v4 ? Ip4(packet.protocol, packet.source, packet.destination, payload, 0, packet.options)
            : Ip6(packet.protocol, packet.source, packet.destination, payload);
}

}  // namespace

void SendRaw(const Forged& packet) {
  const bool v4 = std::string_view(packet.source).find(':') == std::string_view::npos;
  if (!v4) return Raw6(Made(packet), packet.destination);
  const UniqueFd socket(::socket(AF_INET, SOCK_RAW, IPPROTO_RAW));
  SendTo(socket.get(), packet.destination, 0, Made(packet));
}

void SendFrame(const char* device, const Forged& packet) {
  const bool v4 = std::string_view(packet.source).find(':') == std::string_view::npos;
  Send(device, v4 ? ETH_P_IP : ETH_P_IPV6, Made(packet));
}

std::vector<Attack> Attacks() {
  const Bytes forbidden(kForbidden, kForbidden + 6);
  const Bytes echo = [] {
    Bytes packet{8, 0, 0, 0, 0, 1, 0, 1};
    PutText(packet, kForbidden);
    const uint16_t sum = Sum(packet, 0, packet.size());
    packet[2] = static_cast<uint8_t>(sum >> 8);
    packet[3] = static_cast<uint8_t>(sum);
    return packet;
  }();
  const Bytes neighbour = [] {
    Bytes packet{135, 0, 0, 0, 0, 0, 0, 0};
    PutAddress(packet, kWorldV6);
    PutText(packet, kForbidden);
    return packet;
  }();
  const Bytes udp4 = Ip4(IPPROTO_UDP, kPodV4, kWorldV4, Udp(kForbidden));
  const Bytes udp6 = Ip6(IPPROTO_UDP, kPodV6, kWorldV6, Udp(kForbidden));
  Bytes arp{0, 1, 8, 0, 6, 4, 0, 1, 2, 2, 2, 2, 2, 2};
  PutAddress(arp, kPodV4);
  arp.insert(arp.end(), 6, 0);
  PutAddress(arp, "10.77.0.1");
  PutText(arp, kForbidden);
  return {
      {"UDP", [] { Datagram(kWorldV4, kForbiddenPort); }},
      {"UDP over IPv6", [] { Datagram(kWorldV6, kForbiddenPort); }},
      {"QUIC's port", [] { Datagram(kWorldV4, 443); }},
      {"QUIC's port over IPv6", [] { Datagram(kWorldV6, 443); }},
      {"another resolver", [] { Datagram(kWorldV4, 53); }},
      {"another resolver over IPv6", [] { Datagram(kWorldV6, 53); }},
      {"DNS over QUIC", [] { Datagram(kWorldV4, 853); }},
      {"multicast DNS", [] { Datagram("224.0.0.251", 5353); }},
      {"multicast DNS over IPv6",
       [] {
         Datagram("ff02::fb", 5353, [](int fd) {
           const auto device = static_cast<int>(::if_nametoindex("eth0"));
           ::setsockopt(fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &device, sizeof device);
         });
       }},
      {"broadcast",
       [] {
         Datagram("10.77.0.255", kForbiddenPort, [](int fd) {
           const int on = 1;
           ::setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
         });
       }},
      {"TCP", [] { Stream(kWorldV4); }},
      {"TCP over IPv6", [] { Stream(kWorldV6); }},
      {"TCP from a device", [] { Stream(kWorldV4, [](int fd) { ::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "eth0", 5); }); }},
      {"UDP from a device",
       [] { Datagram(kWorldV4, kForbiddenPort, [](int fd) { ::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "eth0", 5); }); }},
      {"UDP by a device of the message", DeviceInMessage},
      {"UDP with a route of its own",
       [] {
         const std::array<uint8_t, 8> options{IPOPT_LSRR, 7, 4, 10, 77, 0, 1, IPOPT_END};
         Datagram(kWorldV4, kForbiddenPort,
                  [&](int fd) { ::setsockopt(fd, IPPROTO_IP, IP_OPTIONS, options.data(), options.size()); });
       }},
      {"a resolver of the link", [] { LinkLocal(53); }},
      {"a neighbour of the link", [] { LinkLocal(kForbiddenPort); }},
      {"TCP with data in its SYN", [] { FastOpen(kWorldV4); }},
      {"TCP over IPv6 with data in its SYN", [] { FastOpen(kWorldV6); }},
      {"multipath TCP", MultipathStream},
      {"as another user",
       [] {
         if (::setresuid(65534, 65534, 65534) == 0) Datagram(kWorldV4, kForbiddenPort);
       }},
      {"a mark of one's own",
       [] {
         Datagram(kWorldV4, kForbiddenPort, [](int fd) {
           const uint32_t mark = 1;
           ::setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof mark);
         });
       }},
      {"a mark of one's own over IPv6",
       [] {
         Datagram(kWorldV6, kForbiddenPort, [](int fd) {
           const uint32_t mark = 1;
           const uint32_t on = 1;
           ::setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof mark);
           ::setsockopt(fd, SOL_SOCKET, kReceiveMark, &on, sizeof on);
         });
       }},
      {"a mark in the message",
       [] {
         const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM, 0));
         socklen_t length = 0;
         sockaddr_storage to = To(kWorldV4, kForbiddenPort, &length);
         Bytes text(kForbidden, kForbidden + 6);
         iovec part{.iov_base = text.data(), .iov_len = text.size()};
         alignas(cmsghdr) std::array<uint8_t, CMSG_SPACE(sizeof(uint32_t))> control{};
         msghdr message{};
         message.msg_name = &to;
         message.msg_namelen = length;
         message.msg_iov = &part;
         message.msg_iovlen = 1;
         message.msg_control = control.data();
         message.msg_controllen = control.size();
         cmsghdr* head = CMSG_FIRSTHDR(&message);
         *head = {.cmsg_len = CMSG_LEN(sizeof(uint32_t)), .cmsg_level = SOL_SOCKET, .cmsg_type = SO_MARK};
         const uint32_t mark = kOfKernelMark;
         std::memcpy(CMSG_DATA(head), &mark, sizeof mark);
         ::sendmsg(socket.get(), &message, MSG_DONTWAIT);
       }},
      {"from a foreign address",
       [] {
         Datagram(kWorldV4, kForbiddenPort, [](int fd) {
           const int on = 1;
           ::setsockopt(fd, IPPROTO_IP, IP_TRANSPARENT, &on, sizeof on);
           socklen_t length = 0;
           const sockaddr_storage from = To("198.51.100.7", 5000, &length);
           [[maybe_unused]] const int bound = ::bind(fd, reinterpret_cast<const sockaddr*>(&from), length);
         });
       }},
      {"from a foreign address over IPv6",
       [] {
         Datagram(kWorldV6, kForbiddenPort, [](int fd) {
           const int on = 1;
           ::setsockopt(fd, IPPROTO_IPV6, IPV6_TRANSPARENT, &on, sizeof on);
           socklen_t length = 0;
           const sockaddr_storage from = To("2001:db8:51::7", 5000, &length);
           [[maybe_unused]] const int bound = ::bind(fd, reinterpret_cast<const sockaddr*>(&from), length);
         });
       }},
      {"an answer to nobody", ForgedAnswer},
      {"an answer to nobody over IPv6", ForgedAnswer6},
      {"an echo",
       [=] {
         const UniqueFd socket(::socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
         SendTo(socket.get(), kWorldV4, 0, echo);
       }},
      {"an echo without a raw socket", [=] { PingSocket(echo); }},
      {"ICMP error",
       [=] {
         Bytes error{3, 3, 0, 0, 0, 0, 0, 0};
         PutText(error, kForbidden);
         const UniqueFd socket(::socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
         SendTo(socket.get(), kWorldV4, 0, error);
       }},
      {"an echo over IPv6",
       [] {
         Bytes packet{128, 0, 0, 0, 0, 1, 0, 1};
         PutText(packet, kForbidden);
         Raw6(IPPROTO_ICMPV6, kWorldV6, packet);
       }},
      {"ICMP error over IPv6",
       [] {
         Bytes error{1, 4, 0, 0, 0, 0, 0, 0};
         PutText(error, kForbidden);
         Raw6(IPPROTO_ICMPV6, kWorldV6, error);
       }},
      {"SCTP over IPv6", [=] { Raw6(132, kWorldV6, forbidden); }},
      {"UDP-Lite", [=] { Raw4(Ip4(IPPROTO_UDPLITE, kPodV4, kWorldV4, Udp(kForbidden))); }},
      {"SCTP", [=] { Raw4(Ip4(132, kPodV4, kWorldV4, forbidden)); }},
      {"a protocol nobody knows", [=] { Raw4(Ip4(253, kPodV4, kWorldV4, forbidden)); }},
      {"raw UDP", [=] { Raw4(udp4); }},
      {"raw TCP data",
       [] {
         Raw4(Ip4(IPPROTO_TCP, kPodV4, kWorldV4, Tcp(kPodV4, kWorldV4, 4000, kForbiddenPort, TH_ACK | TH_PUSH, kForbidden)));
       }},
      {"a later fragment", [=] { Raw4(Ip4(IPPROTO_UDP, kPodV4, kWorldV4, forbidden, 100)); }},
      {"fragments",
       [=] {
         Bytes first = Udp(kForbidden);
         first.resize(16);
         Raw4(Ip4(IPPROTO_UDP, kPodV4, kWorldV4, first, 0x2000));
         Raw4(Ip4(IPPROTO_UDP, kPodV4, kWorldV4, forbidden, 2));
       }},
      {"raw UDP over IPv6", [=] { Raw6(udp6); }},
      {"raw TCP data over IPv6",
       [] {
         Raw6(Ip6(IPPROTO_TCP, kPodV6, kWorldV6, Tcp(kPodV6, kWorldV6, 4000, kForbiddenPort, TH_ACK | TH_PUSH, kForbidden)));
       }},
      {"a later fragment over IPv6",
       [=] { Raw6(Ip6(IPPROTO_FRAGMENT, kPodV6, kWorldV6, Fragment6(IPPROTO_UDP, 800, forbidden))); }},
      {"fragments over IPv6",
       [=] {
         Bytes first = Udp(kForbidden);
         first.resize(16);
         Raw6(Ip6(IPPROTO_FRAGMENT, kPodV6, kWorldV6, Fragment6(IPPROTO_UDP, 1, first)));
         Raw6(Ip6(IPPROTO_FRAGMENT, kPodV6, kWorldV6, Fragment6(IPPROTO_UDP, 16, forbidden)));
       }},
      {"a routing header",
       [=] {
         Bytes routed{IPPROTO_UDP, 0, 4, 0, 0, 0, 0, 0};
         const Bytes datagram = Udp(kForbidden);
         routed.insert(routed.end(), datagram.begin(), datagram.end());
         Raw6(Ip6(IPPROTO_ROUTING, kPodV6, kWorldV6, routed));
       }},
      {"raw over IPv6", [=] { Raw6(253, kWorldV6, forbidden); }},
      {"forged neighbour discovery", [=] { Raw6(IPPROTO_ICMPV6, "fd77::1", neighbour); }},
      {"destination options", [] { ExtensionHeader(IPV6_DSTOPTS, {0, 0, 1, 4, 'E', 'S', 'C', 'A'}); }},
      {"hop-by-hop options", [] { ExtensionHeader(IPV6_HOPOPTS, {0, 0, 1, 4, 'E', 'S', 'C', 'A'}); }},
      {"packet socket", [=] { Send("eth0", ETH_P_IP, udp4); }},
      {"packet socket past the queue", [=] { Send("eth0", ETH_P_IP, udp4, true); }},
      {"packet socket over IPv6", [=] { Send("eth0", ETH_P_IPV6, udp6); }},
      {"forwarded from lo over IPv6", [=] { Send("lo", ETH_P_IPV6, Ip6(IPPROTO_UDP, "fd77::9", kWorldV6, Udp(kForbidden))); }},
      {"forged ARP", [=] { Send("eth0", ETH_P_ARP, arp); }},
      {"an ethertype nobody knows", [=] { Send("eth0", 0x88b5, forbidden); }},
      {"forwarded from lo", [=] { Send("lo", ETH_P_IP, Ip4(IPPROTO_UDP, "10.77.0.9", kWorldV4, Udp(kForbidden))); }},
      {"a connection faked on lo", [] { FakedInbound([](const Bytes& packet) { Send("lo", ETH_P_IP, packet); }); }},
      {"AF_XDP", [=] { Xdp("eth0", Ethernet(ETH_P_IP, udp4)); }},
      {"a connection faked on lo by AF_XDP",
       [] { FakedInbound([](const Bytes& packet) { Xdp("lo", Ethernet(ETH_P_IP, packet, 0), 0x51ce); }); }},
  };
}

}  // namespace sluice::supervisor
