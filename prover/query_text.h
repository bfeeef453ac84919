#pragma once

// Text as it stands in a URL's query.

#include <string>
#include <string_view>

namespace sluice::prover {

/// Every byte but the unreserved ones escaped (RFC 3986 section 2.3).
[[nodiscard]] inline std::string Encoded(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
                       c == '_' || c == '~';
    if (plain) {
      out += c;
    } else {
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

}  // namespace sluice::prover
