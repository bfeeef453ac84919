#pragma once

// Names answered without asking anyone: localhost (RFC 6761 section 6.3) and reverse names.

#include <optional>
#include <string_view>

#include "base/ip.h"

namespace sluice::dns {

/// The machine that Sluice runs on, by its loopback addresses, which the address guard keeps closed but for `ip:`. Nobody
/// is asked for it.
inline constexpr std::string_view kHostName = "host.sluice.internal";

/// "localhost" and everything below it.
[[nodiscard]] bool IsLocalhost(std::string_view canonical_name);
/// The address that a complete reverse name means: "1.0.18.198.in-addr.arpa", or 32 nibbles and "ip6.arpa".
[[nodiscard]] std::optional<IpAddress> ReverseName(std::string_view canonical_name);

}  // namespace sluice::dns
