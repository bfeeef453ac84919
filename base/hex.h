#pragma once

// Hexadecimal digits.

#include <cstdint>
#include <span>
#include <string>

namespace sluice {

/// Two digits an octet, lower case: a digest as people compare it.
[[nodiscard]] inline std::string HexText(std::span<const uint8_t> octets) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(octets.size() * 2);
  for (const uint8_t octet : octets) {
    text += kDigits[octet >> 4];
    text += kDigits[octet & 15];
  }
  return text;
}

/// 0 to 15, or -1 where `c` is no digit. Either case.
[[nodiscard]] constexpr int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace sluice
