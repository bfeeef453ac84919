#pragma once

// Text that others chose, before it meets a terminal: what a reader cannot see, or what moves the cursor or the direction, is
// replaced.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

struct CodePoint {
  uint32_t value = 0;
  size_t size = 0;  ///< octets; 0: not UTF-8
};

/// The code point that `text` begins with (RFC 3629). `text` is not empty.
[[nodiscard]] CodePoint DecodeUtf8(std::string_view text);

/// Appends the code point, which is a scalar value: no surrogate, at most 0x10ffff.
void AppendUtf8(std::string* out, uint32_t code_point);

/// Controls, odd spaces and line ends, joiners, direction marks, variation selectors, tags, private use and noncharacters; not
/// the line feed.
[[nodiscard]] bool IsInvisible(uint32_t code_point);

/// `text` with a '?' for every invisible code point, line feed, and octet that is not UTF-8, but not for those of `kept`.
[[nodiscard]] std::string Printable(std::string_view text, std::string_view kept = {});

}  // namespace sluice
