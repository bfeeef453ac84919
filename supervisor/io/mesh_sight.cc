#include "supervisor/io/mesh_sight.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "base/unique_fd.h"
#include "nft/io/kernel_peer.h"
#include "nft/io/session.h"

namespace sluice::supervisor {
namespace {

constexpr timeval kPatience{.tv_sec = 2, .tv_usec = 0};

struct Request {
  nlmsghdr header;
  inet_diag_req_v2 body;
};

// False where no more is to come.
bool TakePorts(const char* bytes, size_t size, std::vector<ListeningPort>* ports) {
  auto left = static_cast<uint32_t>(size);
  for (const auto* header = reinterpret_cast<const nlmsghdr*>(bytes); NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
    if (header->nlmsg_type == NLMSG_DONE || header->nlmsg_type == NLMSG_ERROR) return false;
    if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY || header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) continue;
    const auto* socket = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
    ports->push_back({ntohs(socket->id.idiag_sport), socket->idiag_uid});
  }
  return true;
}

void AddListening(uint8_t family, std::vector<ListeningPort>* ports) {
  const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!socket || !nft::HearKernelAlone(socket.get()) ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience) != 0)
    return;
  Request request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.body.sdiag_family = family;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = 1U << TCP_LISTEN;
  if (::send(socket.get(), &request, sizeof request, 0) != sizeof request) return;
  alignas(nlmsghdr) std::array<char, 16 * 1024> buffer{};
  ssize_t got = 0;
  do {
    got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
  } while ((got < 0 && errno == EINTR) || (got > 0 && TakePorts(buffer.data(), static_cast<size_t>(got), ports)));
}

}  // namespace

std::optional<ServiceMesh> FindMesh() {
  std::vector<nft::ChainName> chains;
  if (const auto session = nft::Session::Open())
    if (auto all = (*session)->Chains()) chains = *std::move(all);
  std::vector<ListeningPort> listening;
  for (const int family : {AF_INET, AF_INET6}) AddListening(static_cast<uint8_t>(family), &listening);
  return KnownMesh(chains, listening);
}

}  // namespace sluice::supervisor
