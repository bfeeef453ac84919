#pragma once

// What a client of an explicit proxy asks for in its request line: CONNECT's authority form (RFC 9112 section 3.2.3) and the
// absolute form of everything else (section 3.2.2). What two readers could understand differently is refused.
//
//   auto target = ParseConnectRequest(head);
//   if (!target) …answer target.error().status and close…

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

#include "base/ip.h"
#include "proxy/http1.h"

namespace sluice::proxy {

/// Where a client wants to go. `host` is canonical, and empty for a literal.
struct ProxyTarget {
  std::string host;
  IpAddress literal;  ///< only where host is empty
  uint16_t port = 0;

  bool operator==(const ProxyTarget&) const = default;
};

/// The target of a CONNECT. Refuses (400): no port or port 0, userinfo, a URI, odd spellings of addresses, names that are not in
/// canonical letters, a malformed Host, and a body. A Host that names another place is not looked at (RFC 9112 section 3.2): some
/// clients name the proxy there, and nothing of it goes anywhere.
[[nodiscard]] std::expected<ProxyTarget, Fault> ParseConnectRequest(const RequestHead& head);

/// The parts of "http://a.test:8080/x?q". The path points into the target, and is empty where none was written.
struct AbsoluteTarget {
  ProxyTarget place;
  std::string_view authority;  ///< as written
  std::string_view path;
};

/// The target of any other request. Refuses (400) other schemes than http, userinfo, a malformed Host; what a Host names that is
/// not the URI's place gives way to it (RFC 9112 section 3.2.2). A target that is only a path asks this proxy itself for
/// something, which has nothing to give (403).
[[nodiscard]] std::expected<AbsoluteTarget, Fault> ParseAbsoluteRequest(const RequestHead& head);

/// A name or literal address as SOCKS and other binary protocols carry it, without a port. Refuses what has no canonical form.
[[nodiscard]] bool SetPlace(std::string_view text, ProxyTarget* target);

}  // namespace sluice::proxy
