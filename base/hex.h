#pragma once

// Hexadecimal digits.

namespace sluice {

/// 0 to 15, or -1 where `c` is no digit. Either case.
[[nodiscard]] constexpr int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace sluice
