#pragma once

// The sockets that a fence redirects to (supervisor/fence_ruleset.h), and where a connection that came by one was going.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ip.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::supervisor {

/// Of one family. Bound to an address of `lo`, which nobody outside this network namespace can reach, whatever rules are in
/// force.
struct RedirectFamily {
  UniqueFd listener;
  UniqueFd dns_udp;  ///< with IP_PKTINFO and IPV6_RECVPKTINFO
  UniqueFd dns_tcp;
};

/// At 127.0.0.1, and at ::1 where this namespace has it, on the same two ports.
struct RedirectSockets {
  std::vector<RedirectFamily> families;  ///< IPv4 first; all are IPv6 sockets, as dns::ServerOptions and Endpoint take them
  uint16_t proxy_port = 0;
  uint16_t dns_port = 0;  ///< of UDP and TCP

  /// From here on connections are taken.
  [[nodiscard]] Result<void> Listen();
};

/// Ports are the kernel's choice where 0 is given. kInvalid names one that is taken; kUnsupported where the kernel has no IPv6
/// sockets at all.
[[nodiscard]] Result<RedirectSockets> OpenRedirectSockets(uint16_t proxy_port, uint16_t dns_port);

/// Where an accepted connection was going before it was redirected (SO_ORIGINAL_DST, IP6T_SO_ORIGINAL_DST of netfilter). Nothing
/// where it was not: somebody dialled the listener itself.
[[nodiscard]] std::optional<Endpoint> OriginalDestination(int socket);

}  // namespace sluice::supervisor
