#pragma once

// What the other containers of a pod may do to its fence, as far as they can be seen: processes of this network namespace that
// have a mount namespace other than ours, and the same user namespace. Who shares our mounts is of our own container.

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::supervisor {

/// "process 12 (node)" of one that holds it; empty: none is seen.
struct NeighbourRights {
  std::string net_admin;
  std::string net_raw;
};

/// Of /proc/PID/status; none where it does not say. Pure.
[[nodiscard]] uint64_t PermittedCapabilities(std::string_view status);

/// A walk through /proc. Sees those alone whose namespaces may be read: with SYS_PTRACE all of the process namespace.
/// Thread-safe.
[[nodiscard]] NeighbourRights FindNeighbourRights();

}  // namespace sluice::supervisor
