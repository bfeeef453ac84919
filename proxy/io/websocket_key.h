#pragma once

// Keys of WebSocket handshakes and what answers them (RFC 6455 sections 4.1 and 4.2.2). Any thread.

#include <string>
#include <string_view>

namespace sluice::proxy {

/// Base64 of 16 random bytes.
[[nodiscard]] std::string NewWebSocketKey();

/// The Sec-WebSocket-Accept that answers `key`; empty where SHA-1 cannot be had.
[[nodiscard]] std::string WebSocketAccept(std::string_view key);

}  // namespace sluice::proxy
