#pragma once

// The nftables rules of a capture namespace: everything the workload sends is handed to the supervisor or refused at once.
// No rule lets anything out, since there is no interface to leave by; these decide who answers inside.

#include <cstdint>

#include "base/ip.h"
#include "nft/ruleset.h"

namespace sluice::supervisor {

/// Addresses of `lo` beside 127.0.0.1 and ::1: the source of what the workload sends elsewhere. RFC 7600's dummy address is no
/// one's destination; the IPv6 one is a unique local address (RFC 4193).
inline constexpr IpAddress kCaptureV4 = IpAddress::FromV4(0xc0000008);  // 192.0.0.8
inline constexpr IpAddress kCaptureV6 = IpAddress::FromV6({0xfd, 0x5c, 0x7a, 0x1c, 0xe0, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02});

/// Below 1024: the workload, which has no capability over the namespace, cannot bind beside the listener.
inline constexpr uint16_t kListenerPort = 801;
inline constexpr uint16_t kDnsPort = 53;

[[nodiscard]] nft::Table CaptureRuleset(uint16_t listener_port);

}  // namespace sluice::supervisor
