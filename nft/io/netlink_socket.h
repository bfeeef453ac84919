#pragma once

// A netlink socket of libmnl's that hears the kernel alone, and waits for an answer for kAnswerTimeoutSeconds at most.
//
//   struct Points {  // each call at its point of base/fault.h, or as it is
//     static int Open(auto call) { return Faulty("nft.open", call); }
//     static int Bind(auto call) { return Faulty("nft.bind", call); }
//     static int Limit(auto call) { return Faulty("nft.timeout", call); }
//   };
//   auto socket = OpenNetlink<Points>({.protocol = NETLINK_NETFILTER, .what = "a netfilter netlink socket"});

#include <libmnl/libmnl.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <memory>
#include <string>

#include "base/result.h"
#include "nft/io/kernel_peer.h"

namespace sluice::nft {

/// How long the kernel may take to answer.
inline constexpr int kAnswerTimeoutSeconds = 5;

struct NetlinkCloser {
  void operator()(mnl_socket* socket) const { mnl_socket_close(socket); }
};
using NetlinkSocket = std::unique_ptr<mnl_socket, NetlinkCloser>;

struct NetlinkOptions {
  int protocol = NETLINK_NETFILTER;
  std::string what{};   ///< for errors: "a netfilter netlink socket"
  int flags = 0;        ///< beside SOCK_CLOEXEC
  unsigned groups = 0;  ///< of multicast
  int room = 0;         ///< for answers that were not read yet, in bytes; 0: what the system gives
};

/// kUnsupported: this kernel has no such protocol.
template <class Points>
[[nodiscard]] Result<NetlinkSocket> OpenNetlink(const NetlinkOptions& options) {
  NetlinkSocket socket;
  const auto open = [&] {
    socket.reset(mnl_socket_open2(options.protocol, SOCK_CLOEXEC | options.flags));
    return socket ? 0 : -1;
  };
  if (Points::Open(open) != 0) {
    if (errno == EPROTONOSUPPORT && options.protocol == NETLINK_NETFILTER)
      return Fail(Code::kUnsupported, "this kernel has no nftables (CONFIG_NF_TABLES)");
    return FailErrno("cannot open " + options.what, errno);
  }
  const int fd = mnl_socket_get_fd(socket.get());
  const auto bind = [&] { return mnl_socket_bind(socket.get(), options.groups, MNL_SOCKET_AUTOPID); };
  if (Points::Bind(bind) < 0 || !HearKernelAlone(fd)) return FailErrno("cannot bind " + options.what, errno);
  const timeval longest{.tv_sec = kAnswerTimeoutSeconds, .tv_usec = 0};
  // Without it, an answer that does not come is waited for for ever.
  const auto limit = [&] { return ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest); };
  if (Points::Limit(limit) != 0) return FailErrno("cannot set up " + options.what, errno);
  // Without CAP_NET_ADMIN over the first user namespace the system's limit holds: a large answer is then read in more tries.
  if (options.room != 0 && ::setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &options.room, sizeof options.room) != 0)
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &options.room, sizeof options.room);
  return socket;
}

}  // namespace sluice::nft
