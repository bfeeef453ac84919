#include "supervisor/io/socket_owner.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "base/fault.h"
#include "nft/io/kernel_peer.h"

namespace sluice::supervisor {
namespace {

constexpr int kReceiveTimeoutMs = 200;
using Buffer = std::array<char, 16384>;

// A second descriptor of a capture's netlink socket, which answers in time or not at all.
Result<UniqueFd> Share(const UniqueFd& socket) {
  UniqueFd own(Faulty("diag.share", [&] { return fcntl(socket.get(), F_DUPFD_CLOEXEC, 0); }));
  if (!own) return FailErrno("cannot use a netlink socket of the capture namespace", errno);
  const timeval timeout{0, kReceiveTimeoutMs * 1000};
  if (Faulty("diag.timeout", [&] { return setsockopt(own.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout); }) != 0)
    return FailErrno("cannot use a netlink socket of the capture namespace", errno);
  return own;
}

void PutAddress(const IpAddress& address, int family, uint32_t (&out)[4]) {
  const auto& bytes = address.bytes();
  std::memset(out, 0, sizeof out);
  if (family == AF_INET) {
    std::memcpy(out, bytes.data() + 12, 4);
  } else {
    std::memcpy(out, bytes.data(), 16);
  }
}

struct DiagRequest {
  nlmsghdr header;
  inet_diag_req_v2 body;
};

// One exact lookup. For UDP the kernel looks from the sender's side: the socket's own end is the destination.
std::optional<SocketIdentity> Lookup(int diag, uint32_t sequence, int family, policy::Transport transport, const Endpoint& client,
                                     const Endpoint& server) {
  DiagRequest request{};
  request.header.nlmsg_seq = sequence;
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.body.sdiag_family = static_cast<uint8_t>(family);
  request.body.sdiag_protocol = transport == policy::Transport::kTcp ? IPPROTO_TCP : IPPROTO_UDP;
  request.body.idiag_states = ~uint32_t{0};
  const bool udp = transport == policy::Transport::kUdp;
  const Endpoint& source = udp ? server : client;
  const Endpoint& destination = udp ? client : server;
  request.body.id.idiag_sport = htons(source.port);
  request.body.id.idiag_dport = htons(destination.port);
  PutAddress(source.address, family, request.body.id.idiag_src);
  PutAddress(destination.address, family, request.body.id.idiag_dst);
  request.body.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
  request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (Faulty("diag.ask", [&] { return send(diag, &request, sizeof request, 0); }) != sizeof request) return std::nullopt;
  alignas(nlmsghdr) Buffer buffer;
  const auto* header = reinterpret_cast<const nlmsghdr*>(buffer.data());
  ssize_t n = 0;
  do {
    n = Faulty("diag.answer", [&] { return recv(diag, buffer.data(), buffer.size(), 0); });
    if (n < 0) return std::nullopt;
    if (!NLMSG_OK(header, static_cast<size_t>(n))) return std::nullopt;
  } while (header->nlmsg_seq != sequence);
  if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY || header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) {
    return std::nullopt;
  }
  const auto* found = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
  return SocketIdentity{uint64_t{found->id.idiag_cookie[1]} << 32 | found->id.idiag_cookie[0], found->idiag_inode};
}

IpAddress SourceOf(const inet_diag_msg& message) {
  if (message.idiag_family == AF_INET) return IpAddress::FromV4(ntohl(message.id.idiag_src[0]));
  std::array<uint8_t, 16> bytes{};
  std::memcpy(bytes.data(), message.id.idiag_src, bytes.size());
  return IpAddress::FromV6(bytes);
}

// All sockets of one port, of which the first that fits is given. A dual-stack socket is found among those of IPv6.
std::optional<SocketIdentity> FindByPort(int diag, uint32_t sequence, int family, policy::Transport transport,
                                         const Endpoint& client) {
  DiagRequest request{};
  request.header.nlmsg_seq = sequence;
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.body.sdiag_family = static_cast<uint8_t>(family);
  request.body.sdiag_protocol = transport == policy::Transport::kTcp ? IPPROTO_TCP : IPPROTO_UDP;
  request.body.idiag_states = ~uint32_t{0};
  request.body.id.idiag_sport = htons(client.port);
  if (Faulty("diag.list.ask", [&] { return send(diag, &request, sizeof request, 0); }) != sizeof request) return std::nullopt;
  std::optional<SocketIdentity> best;
  for (;;) {
    alignas(nlmsghdr) Buffer buffer;
    const ssize_t n = Faulty("diag.list.answer", [&] { return recv(diag, buffer.data(), buffer.size(), 0); });
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    auto left = static_cast<uint32_t>(n);
    for (const auto* header = reinterpret_cast<const nlmsghdr*>(buffer.data()); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_seq != sequence) continue;
      if (header->nlmsg_type == NLMSG_DONE || header->nlmsg_type == NLMSG_ERROR) return best;
      if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY || header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) continue;
      const auto* found = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
      const IpAddress source = SourceOf(*found);
      const bool exact = source == client.address;
      const bool any = source == IpAddress{} || source == IpAddress::FromV4(0);
      if (ntohs(found->id.idiag_sport) != client.port || found->idiag_inode == 0 || (!exact && !any) || (best && !exact))
        continue;
      best = SocketIdentity{uint64_t{found->id.idiag_cookie[1]} << 32 | found->id.idiag_cookie[0], found->idiag_inode};
    }
  }
}

bool IsNumber(const char* text, pid_t* out) {
  const char* end = text + std::strlen(text);
  return std::from_chars(text, end, *out).ptr == end;
}

using Dir = std::unique_ptr<DIR, int (*)(DIR*)>;
Dir OpenDir(int at, const char* name) {
  const int fd = Faulty("owner.folder", [&] { return openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (fd < 0) return {nullptr, closedir};
  DIR* dir = fdopendir(fd);
  if (dir == nullptr) close(fd);
  return {dir, closedir};
}

// stat follows the link to the socket itself: no text to parse.
bool IsSocket(int folder, const char* name, uint64_t inode) {
  struct stat about{};
  return Faulty("owner.descriptor", [&] { return fstatat(folder, name, &about, 0); }) == 0 && S_ISSOCK(about.st_mode) &&
         about.st_ino == inode;
}

// The descriptor's number; -1 where no descriptor is that socket.
int FindInFolder(int proc, uint64_t inode, size_t* budget) {
  const Dir fds = OpenDir(proc, "fd");
  if (!fds) return -1;
  while (const dirent* entry = readdir(fds.get())) {
    if (entry->d_name[0] == '.') continue;
    if ((*budget)-- == 0) {
      *budget = 0;
      return -1;
    }
    if (IsSocket(dirfd(fds.get()), entry->d_name, inode)) return std::atoi(entry->d_name);
  }
  return -1;
}

uint64_t NamespaceInode(int proc, const char* name) {
  struct stat about{};
  return Faulty("owner.namespace", [&] { return fstatat(proc, name, &about, 0); }) == 0 ? about.st_ino : 0;
}

}  // namespace

SocketOwner::SocketOwner(SocketOwner&& other) noexcept
    : diag_(std::move(other.diag_)),
      route_(std::move(other.route_)),
      sequence_(other.sequence_),
      workload_pid_(other.workload_pid_) {}

Result<SocketOwner> SocketOwner::Open(const Capture& capture, pid_t workload_pid) {
  auto diag = Share(capture.socket_diagnosis);
  if (!diag) return std::unexpected(diag.error());
  auto route = Share(capture.routes);
  if (!route) return std::unexpected(route.error());
  return SocketOwner(*std::move(diag), *std::move(route), workload_pid);
}

Result<SocketOwner> SocketOwner::OpenHere() {
  UniqueFd diag(Faulty("diag.open", [] { return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG); }));
  const timeval timeout{0, kReceiveTimeoutMs * 1000};
  if (!diag || !nft::HearKernelAlone(diag.get()) ||
      setsockopt(diag.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) != 0)
    return FailErrno("cannot ask whose sockets are (sock_diag)", errno);
  return SocketOwner(std::move(diag), UniqueFd(), getpid());
}

void DescriptorHints::Put(int number) {
  const auto end = numbers.begin() + static_cast<std::ptrdiff_t>(size);
  auto at = std::find(numbers.begin(), end, number);
  if (at == end) {
    if (size < numbers.size()) ++size;
    at = numbers.begin() + static_cast<std::ptrdiff_t>(size) - 1;
    *at = number;
  }
  std::rotate(numbers.begin(), at, at + 1);
}

bool SocketOwner::HoldsAt(int proc, uint64_t inode, int descriptor) {
  return inode != 0 && IsSocket(proc, fmt::format("fd/{}", descriptor).c_str(), inode);
}

bool SocketOwner::HoldsAsBefore(int proc, uint64_t inode, DescriptorHints* hints, size_t most) {
  const size_t likely = hints->likely;
  size_t looks = 0;
  for (size_t step = 0; step <= 2 * hints->numbers.size() && looks < most; ++step) {
    // To both sides of where the last one was: whoever has several at a time seldom leaves their order by much.
    const size_t i = step % 2 != 0 ? likely + (step + 1) / 2 : likely - step / 2;
    if (i >= hints->size) continue;  // the other side of nought as well
    ++looks;
    if (!HoldsAt(proc, inode, hints->numbers[i])) continue;
    hints->likely = i;
    hints->Put(hints->numbers[i]);
    return true;
  }
  // Whoever opens more and more has the next one there.
  const int next = hints->size != 0 ? hints->numbers.front() + 1 : 0;
  const bool found = HoldsAt(proc, inode, next);
  if (found) hints->Put(next);
  return found;
}

bool SocketOwner::Holds(int proc, uint64_t inode, DescriptorHints* hints) {
  if (inode == 0) return false;
  if (HoldsAsBefore(proc, inode, hints, hints->size)) return true;
  size_t budget = kMaxScannedDescriptors;
  const int found = FindInFolder(proc, inode, &budget);
  if (found >= 0) hints->Put(found);
  return found >= 0;
}

std::optional<SocketIdentity> SocketOwner::Find(policy::Transport transport, const Endpoint& client, const Endpoint& server) {
  const std::lock_guard lock(mutex_);
  const bool v4 = client.address.is_v4();
  // An IPv4 flow may belong to a dual-stack socket; the IPv4 lookup finds both.
  return Lookup(diag_.get(), ++sequence_, v4 ? AF_INET : AF_INET6, transport, client, server);
}

std::optional<SocketIdentity> SocketOwner::FindSender(policy::Transport transport, const Endpoint& client) {
  const std::lock_guard lock(mutex_);
  if (client.address.is_v4())
    if (auto found = FindByPort(diag_.get(), ++sequence_, AF_INET, transport, client)) return found;
  return FindByPort(diag_.get(), ++sequence_, AF_INET6, transport, client);
}

pid_t SocketOwner::Holder(uint64_t inode) const {
  if (inode == 0) return 0;
  const Dir all = OpenDir(AT_FDCWD, "/proc");
  if (!all) return 0;
  // The workload's processes are those in its network namespace.
  const uint64_t home = NamespaceInode(dirfd(all.get()), fmt::format("{}/ns/net", workload_pid_).c_str());
  if (home == 0) return 0;
  size_t budget = kMaxScannedDescriptors;
  size_t processes = 0;
  while (const dirent* entry = readdir(all.get())) {
    pid_t pid = 0;
    if (!IsNumber(entry->d_name, &pid)) continue;
    const UniqueFd proc(
        Faulty("owner.process", [&] { return openat(dirfd(all.get()), entry->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC); }));
    if (!proc || NamespaceInode(proc.get(), "ns/net") != home) continue;
    if (++processes > kMaxScannedProcesses) return 0;
    if (FindInFolder(proc.get(), inode, &budget) >= 0) return pid;
    if (budget == 0) return 0;
  }
  return 0;
}

Result<std::vector<IpAddress>> SocketOwner::Addresses() {
  struct {
    nlmsghdr header;
    ifaddrmsg body;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RTM_GETADDR;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  const std::lock_guard lock(mutex_);
  request.header.nlmsg_seq = ++sequence_;
  if (Faulty("addresses.ask", [&] { return send(route_.get(), &request, sizeof request, 0); }) != sizeof request)
    return FailErrno("cannot ask for addresses", errno);
  std::vector<IpAddress> out;
  alignas(nlmsghdr) Buffer buffer;
  for (;;) {
    const ssize_t n = Faulty("addresses.answer", [&] { return recv(route_.get(), buffer.data(), buffer.size(), 0); });
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FailErrno("cannot read addresses", errno);
    auto left = static_cast<uint32_t>(n);
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer.data()); NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_seq != sequence_) continue;
      if (header->nlmsg_type == NLMSG_DONE) return out;
      if (header->nlmsg_type == NLMSG_ERROR) return Fail(Code::kIo, "cannot read addresses");
      if (header->nlmsg_type != RTM_NEWADDR) continue;
      const auto* about = static_cast<const ifaddrmsg*>(NLMSG_DATA(header));
      auto length = static_cast<uint32_t>(IFA_PAYLOAD(header));
      for (const rtattr* attribute = IFA_RTA(about); RTA_OK(attribute, length); attribute = RTA_NEXT(attribute, length)) {
        if (attribute->rta_type != IFA_ADDRESS && attribute->rta_type != IFA_LOCAL) continue;
        if (about->ifa_family == AF_INET && RTA_PAYLOAD(attribute) == 4) {
          uint32_t v4 = 0;
          std::memcpy(&v4, RTA_DATA(attribute), sizeof v4);
          out.push_back(IpAddress::FromV4(ntohl(v4)));
        } else if (about->ifa_family == AF_INET6 && RTA_PAYLOAD(attribute) == 16) {
          std::array<uint8_t, 16> v6{};
          std::memcpy(v6.data(), RTA_DATA(attribute), v6.size());
          out.push_back(IpAddress::FromV6(v6));
        }
      }
    }
  }
}

}  // namespace sluice::supervisor
