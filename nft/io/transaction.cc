#include "nft/io/transaction.h"

#include <fmt/format.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter/nf_tables.h>

#include <array>
#include <cerrno>

#include "base/fault.h"
#include "nft/encode.h"
#include "nft/io/netlink_socket.h"

namespace sluice::nft {
namespace {

constexpr uint32_t kFirstSequence = 1;

struct Points {
  static int Open(auto call) { return Faulty("nft.open", call); }
  static int Bind(auto call) { return Faulty("nft.bind", call); }
  static int Limit(auto call) { return Faulty("nft.timeout", call); }
};

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
  auto socket = OpenNetlink<Points>({.what = "a netfilter netlink socket"});
  if (!socket) return std::unexpected(socket.error());
  if (Faulty("nft.send", [&] { return mnl_socket_sendto(socket->get(), batch->bytes.data(), batch->bytes.size()); }) < 0) {
    const int error = errno;
    if (error == EPERM) return FailErrno("nftables needs CAP_NET_ADMIN over its network namespace", error);
    return FailErrno("cannot send to nftables", error);
  }
  return ReadAnswer(socket->get(), *batch);
}

}  // namespace sluice::nft
