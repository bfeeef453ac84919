#pragma once

// The first connect of every sandbox, made by the launcher from the workload's place just before the command runs. Nothing is
// reported ready, and the command never starts, unless it was refused.

#include "base/ip.h"

namespace sluice::supervisor {

/// A reserved address (RFC 1112 section 4) that no policy can make reachable: the notifier refuses the first connect to it
/// unasked, and records nothing.
inline constexpr Endpoint kCanary{IpAddress::FromV4(0xf0000001), 9};

/// The same in the discard-only prefix of IPv6 (RFC 6666), for a namespace that is shared (the sidecar's canary).
inline constexpr Endpoint kCanary6{IpAddress::FromV6({0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}), 9};

/// Beside them what is answered: the sidecar's proxy says the canary's own name there, which nobody else knows.
inline constexpr uint16_t kAnsweredPort = 10;

}  // namespace sluice::supervisor
