#pragma once

// Lets the kernel drop a flood at the sender's own cost, before it takes the room of others' datagrams in a socket's queue.

#include <cstdint>
#include <span>

namespace sluice::dns {

/// Datagrams from these source ports, at most kMaxShutPorts, are no longer queued on this UDP socket; all others are. An empty
/// list takes the filter away. False where the kernel refuses: then nothing is filtered that was not before.
[[nodiscard]] bool DropFromPorts(int udp, std::span<const uint16_t> ports);

}  // namespace sluice::dns
