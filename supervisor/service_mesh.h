#pragma once

// Whether a service mesh shares a fenced network, by the names it gives its chains and the ports its proxy listens on, and what
// is to be done beside it. Its redirect leads Sluice's own dials to its proxy, whose dials are refused as the workload's are
// (docs/kubernetes.md).

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "nft/listing.h"

namespace sluice::supervisor {

struct ServiceMesh {
  std::string name;    ///< "Istio"
  std::string sign;    ///< "chain ISTIO_OUTPUT of table nat"
  std::string advice;  ///< what leaves Sluice's dials out of it
};

/// A TCP port, and the user id of whoever listens there.
struct ListeningPort {
  uint16_t port = 0;
  uint32_t user = 0;
};

/// Nothing: none of those that are known. A proxy's ports are a sign where one user listens on both; whether that is the mesh's
/// own, the sign says.
[[nodiscard]] std::optional<ServiceMesh> KnownMesh(std::span<const nft::ChainName> chains,
                                                   std::span<const ListeningPort> listening);

}  // namespace sluice::supervisor
