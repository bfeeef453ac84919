#pragma once

// A port of the sandbox's own loopback that is reached from outside: "127.0.0.1:8080:8080", where it is listened on and which
// port of the workload's is dialled. TCP alone: no other protocol leads into a sandbox. Pure.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/ip.h"
#include "base/result.h"

namespace sluice::supervisor {

struct PublishedPort {
  Endpoint outside;  ///< of the host; port 0: the kernel's choice
  uint16_t inside = 0;
  bool operator==(const PublishedPort&) const = default;
};

/// Ports that one run may publish.
inline constexpr size_t kMaxPublishedPorts = 64;

/// "[ADDRESS:]PORT:PORT", IPv6 in brackets; without an address 127.0.0.1. kInvalid says what is wrong: a name, UDP, the ports
/// that the sandbox's resolver and listener have.
[[nodiscard]] Result<PublishedPort> ParsePublishedPort(std::string_view text);

}  // namespace sluice::supervisor
