#pragma once

// Which targets an upstream proxy is not asked for: its `except`, what other programs call NO_PROXY.

#include <cstdint>
#include <string_view>

#include "base/ip.h"
#include "policy/credential.h"

namespace sluice::policy {

/// `name` canonical, or empty for a literal. Names are compared with names and globs, literals with addresses and prefixes: a
/// name that is reached through a proxy is never looked up here, so no prefix covers it. Port 0: whatever the port.
[[nodiscard]] bool IsExcepted(const UpstreamProxy& proxy, std::string_view name, const IpAddress& literal, uint16_t port);

}  // namespace sluice::policy
