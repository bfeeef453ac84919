#pragma once

// Looks for a service mesh in this network namespace.

#include <optional>

#include "supervisor/service_mesh.h"

namespace sluice::supervisor {

/// By the chains of nftables, which include those of iptables-nft and need CAP_NET_ADMIN to be seen, and by who listens
/// (sock_diag). Nothing where neither can be read. Blocks for two dumps. Thread-safe.
[[nodiscard]] std::optional<ServiceMesh> FindMesh();

}  // namespace sluice::supervisor
