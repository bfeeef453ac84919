#pragma once

// Names of certificates (RFC 6125 section 6.4.3).

#include <string_view>

namespace sluice::proxy {

/// Whether a dNSName speaks for a host name, which is in canonical form. A wildcard is a whole first label, stands for one label
/// and has two labels behind it. Anything but letters, digits, `-`, `_` and `.` covers nothing.
[[nodiscard]] bool CoversHost(std::string_view dns_name, std::string_view host);

}  // namespace sluice::proxy
