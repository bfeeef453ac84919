#include "nft/io/transaction.h"

#include <fmt/format.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter/nf_tables.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>
#include <memory>

#include "base/fault.h"
#include "nft/encode.h"
#include "nft/io/kernel_peer.h"

namespace sluice::nft {
namespace {

constexpr uint32_t kFirstSequence = 1;

struct SocketCloser {
  void operator()(mnl_socket* socket) const { mnl_socket_close(socket); }
};
using SocketPtr = std::unique_ptr<mnl_socket, SocketCloser>;

Result<SocketPtr> Open() {
  SocketPtr socket;
  const auto open = [&] {
    socket.reset(mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC));
    return socket ? 0 : -1;
  };
  if (Faulty("nft.open", open) != 0) {
    const int error = errno;
    if (error == EPROTONOSUPPORT) return Fail(Code::kUnsupported, "this kernel has no nftables (CONFIG_NF_TABLES)");
    return FailErrno("cannot open a netfilter netlink socket", error);
  }
  const int fd = mnl_socket_get_fd(socket.get());
  const auto bind = [&] { return mnl_socket_bind(socket.get(), 0, MNL_SOCKET_AUTOPID); };
  if (Faulty("nft.bind", bind) < 0 || !HearKernelAlone(fd)) return FailErrno("cannot bind a netlink socket", errno);
  const timeval timeout{.tv_sec = kAnswerTimeoutSeconds, .tv_usec = 0};
  // Without it, an answer that does not come is waited for for ever.
  if (Faulty("nft.timeout", [&] { return ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout); }) != 0)
    return FailErrno("cannot set up a netlink socket", errno);
  return socket;
}

Error Refused(const Batch& batch, uint32_t sequence, int error) {
  const size_t index = sequence - batch.first_sequence - 1;
  const std::string what = index < batch.objects.size() ? batch.objects[index] : "nftables batch";
  Error result = SystemError(fmt::format("the kernel refused {}", what), error);
  // A missing expression module shows as ENOENT.
  if (error == ENOENT) result.code = Code::kUnsupported;
  return result;
}

Result<void> ReadAnswer(mnl_socket* socket, const Batch& batch) {
  alignas(nlmsghdr) std::array<char, 16 * 1024> buffer{};
  while (true) {
    const ssize_t received = Faulty("nft.answer", [&] { return mnl_socket_recvfrom(socket, buffer.data(), buffer.size()); });
    if (received < 0 && errno == EINTR) continue;
    if (received < 0) return FailErrno("no answer from nftables", errno == EAGAIN ? ETIMEDOUT : errno);
    int left = static_cast<int>(received);
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer.data()); mnl_nlmsg_ok(header, left);
         header = mnl_nlmsg_next(header, &left)) {
      if (header->nlmsg_type != NLMSG_ERROR || mnl_nlmsg_get_payload_len(header) < sizeof(nlmsgerr)) continue;
      const auto* answer = static_cast<const nlmsgerr*>(mnl_nlmsg_get_payload(header));
      if (answer->error != 0) return std::unexpected(Refused(batch, header->nlmsg_seq, -answer->error));
      if (header->nlmsg_seq == batch.acknowledged) return {};
    }
  }
}

}  // namespace

Result<void> Add(const Table& table) {
  auto batch = EncodeAdd(table, kFirstSequence);
  if (!batch) return std::unexpected(batch.error());
  auto socket = Open();
  if (!socket) return std::unexpected(socket.error());
  if (Faulty("nft.send", [&] { return mnl_socket_sendto(socket->get(), batch->bytes.data(), batch->bytes.size()); }) < 0) {
    const int error = errno;
    if (error == EPERM) return FailErrno("nftables needs CAP_NET_ADMIN over its network namespace", error);
    return FailErrno("cannot send to nftables", error);
  }
  return ReadAnswer(socket->get(), *batch);
}

}  // namespace sluice::nft
