#pragma once

// The steps inside a new network namespace, in the process that entered it: interface, addresses, routes, sysctls, sockets.

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::supervisor {

/// Whose the namespace is that is configured.
enum class NamespaceOrigin : uint8_t {
  kOwn,    ///< new, and nobody else's: it holds nothing yet
  kGiven,  ///< a container runtime's: `lo` may be up, and an earlier capture may have left its addresses and rules
};

/// Brings `lo` up, gives it its addresses and makes every address local, through rtnetlink.
[[nodiscard]] Result<void> ConfigureLoopback(NamespaceOrigin origin);

/// kUnsupported names an interface other than `lo` and the kernel's own tunnel devices, which lead nowhere as they are: by any
/// other something could leave.
[[nodiscard]] Result<void> CheckOnlyLoopback();

/// Sets what the capture relies on and checks what it does not set.
[[nodiscard]] Result<void> ConfigureSysctls();

/// A device that leads nowhere, up, with an address and the default route: what a pod has, for trying a fence. Brings lo up, too.
[[nodiscard]] Result<void> AddBlindDevice();

struct CaptureSockets {
  UniqueFd listener;
  UniqueFd dns_udp;
  UniqueFd dns_tcp;
  UniqueFd socket_diagnosis;
  UniqueFd routes;
};

/// Connections waiting to be accepted; the kernel caps it at net.core.somaxconn.
inline constexpr int kListenBacklog = 4096;
inline constexpr int kDnsBacklog = 256;

[[nodiscard]] Result<CaptureSockets> OpenCaptureSockets();

}  // namespace sluice::supervisor
