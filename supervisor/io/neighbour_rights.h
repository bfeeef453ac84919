#pragma once

// What the other containers of a pod may do to its fence, as far as they can be seen: threads in this network namespace that have
// a mount namespace other than ours, and a capability over the network. They have it in the user namespace that owns the network,
// or in one above that; in one below it counts for nothing (user_namespaces(7)). Who shares our mounts is of our own container.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace sluice::supervisor {

/// "process 12 (node)" or "thread 15 (worker) of process 12" of one that holds it; empty: none is seen.
struct NeighbourRights {
  std::string net_admin;
  std::string net_raw;
  std::string unseen;  ///< why nobody can be looked at; empty: everybody was
};

/// Of /proc/PID/status; none where it does not say. Pure.
[[nodiscard]] uint64_t PermittedCapabilities(std::string_view status);

/// Walks through /proc. Sees those alone whose namespaces may be read: with SYS_PTRACE all of the process namespace. Whoever is
/// seen with a capability is looked at again a second later, since the process of a container's runtime has them all until it
/// becomes the container's; where it is always somebody else, three times. Blocks for that long, and not where nobody is seen.
/// `rest` waits for so long between two looks; true: no more is looked, and nothing is known. Thread-safe.
[[nodiscard]] NeighbourRights FindNeighbourRights(const std::function<bool(std::chrono::milliseconds)>& rest);
[[nodiscard]] NeighbourRights FindNeighbourRights();

}  // namespace sluice::supervisor
