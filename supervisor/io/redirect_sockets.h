#pragma once

// The sockets that a fence redirects to (supervisor/fence_ruleset.h), and where a connection that came by one was going.

#include <cstdint>
#include <optional>

#include "base/ip.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::supervisor {

/// Bound to the device `lo`, dual-stack (IPv4 alone where the kernel has no IPv6): nobody reaches them from outside this network
/// namespace, whatever rules are in force.
struct RedirectSockets {
  UniqueFd listener;  ///< bound; Listen makes it accept
  UniqueFd dns_udp;   ///< with IP_PKTINFO and IPV6_RECVPKTINFO
  UniqueFd dns_tcp;   ///< bound, as the listener
  uint16_t proxy_port = 0;
  uint16_t dns_port = 0;  ///< of both

  /// From here on connections are taken.
  [[nodiscard]] Result<void> Listen();
};

/// Ports are the kernel's choice where 0 is given. kInvalid names one that is taken.
[[nodiscard]] Result<RedirectSockets> OpenRedirectSockets(uint16_t proxy_port, uint16_t dns_port);

/// Where an accepted connection was going before it was redirected (SO_ORIGINAL_DST, IP6T_SO_ORIGINAL_DST of netfilter). Nothing
/// where it was not: somebody dialled the listener itself.
[[nodiscard]] std::optional<Endpoint> OriginalDestination(int socket);

}  // namespace sluice::supervisor
