#pragma once

// The PROXY protocol, versions 1 and 2, as a load balancer in front of a listener speaks it: one header before the client's
// first byte, which says where the client is. Only believed from peers that the user lists.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/ip.h"

namespace sluice::proxy {

inline constexpr size_t kMaxProxyLine = 107;         ///< version 1, CRLF included
inline constexpr size_t kMaxProxyHeader = 2 * 1024;  ///< version 2, its TLVs included

enum class ProxyHeaderStatus : uint8_t { kComplete, kNeedMore, kMalformed };

struct ProxyHeader {
  ProxyHeaderStatus status = ProxyHeaderStatus::kNeedMore;
  size_t consumed = 0;             ///< where kComplete
  std::optional<Endpoint> source;  ///< absent: LOCAL, UNKNOWN, or another family than TCP over IP
  std::string_view why;            ///< of kMalformed, static
};

/// The header at the front of `bytes`. Refuses anything else there, ports with leading zeros, addresses of another family than
/// the line says, version 2 headers of unknown commands or over kMaxProxyHeader.
[[nodiscard]] ProxyHeader ParseProxyHeader(std::string_view bytes);

}  // namespace sluice::proxy
