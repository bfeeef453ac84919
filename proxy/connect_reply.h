#pragma once

// HTTP CONNECT through an upstream proxy (RFC 9110 section 9.3.6): the request, and the reply to it, read as strictly as any
// response. What a proxy says is repeated to people in part only: visible ASCII, cut, and never where it repeats a secret.

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <string_view>

#include "proxy/http1.h"

namespace sluice::proxy {

inline constexpr size_t kMaxConnectReplyBytes = 16 * 1024;  ///< the head of a reply, line ends included
inline constexpr size_t kMaxProxyReason = 80;               ///< what is repeated of a reason phrase

struct ConnectReply {
  enum class Kind : uint8_t {
    kInterim,  ///< 1xx: another head follows
    kOpen,     ///< 2xx: what follows the head is the tunnel's
    kRefused,
  };
  Kind kind = Kind::kRefused;
  uint16_t status = 0;
  std::string text{};  ///< kRefused: "407 Proxy Authentication Required; it asks for Basic"
};

/// `authority` is "a.test:443" or "[::1]:443"; `authorization` the whole value of Proxy-Authorization, empty for none. Both hold
/// visible ASCII and spaces alone, or the result is empty.
[[nodiscard]] std::string ConnectRequest(std::string_view authority, std::string_view authorization);

/// `head` is exactly one head as FindHeadEnd measured it, and is changed. `secret`: what must not be repeated, in any of the
/// forms given; each is looked for where it is not empty.
[[nodiscard]] std::expected<ConnectReply, Fault> ParseConnectReply(std::span<char> head,
                                                                   std::span<const std::string_view> secrets);

/// Visible ASCII and single spaces, at most `limit` bytes; empty where a secret is in it.
[[nodiscard]] std::string Repeatable(std::string_view text, size_t limit, std::span<const std::string_view> secrets);

}  // namespace sluice::proxy
