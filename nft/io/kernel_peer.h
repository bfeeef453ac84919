#pragma once

// Who may speak to a netlink socket. Whoever has CAP_NET_ADMIN can send to any, as if it were the kernel: an acknowledgement of
// what never happened, or an attribute over which libnftnl ends the process.

#include <linux/netlink.h>
#include <sys/socket.h>

namespace sluice::nft {

/// Of a bound socket: from now on the kernel alone; whoever else sends gets ECONNREFUSED. False: errno says why.
[[nodiscard]] inline bool HearKernelAlone(int netlink) {
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  return ::connect(netlink, reinterpret_cast<const sockaddr*>(&kernel), sizeof kernel) == 0;
}

}  // namespace sluice::nft
