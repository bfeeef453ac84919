#pragma once

// Record data by type: checked, and names in it expanded. Used by Decode alone.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "dns/message.h"

namespace sluice::dns {

/// Big-endian numbers appended to and read from octets.
void AppendU16(std::string* out, uint16_t value);
void AppendU32(std::string* out, uint32_t value);
[[nodiscard]] inline uint16_t LoadU16(std::span<const uint8_t> bytes, size_t at) {
  return static_cast<uint16_t>(bytes[at] << 8 | bytes[at + 1]);
}
[[nodiscard]] inline uint32_t LoadU32(std::span<const uint8_t> bytes, size_t at) {
  return static_cast<uint32_t>(LoadU16(bytes, at)) << 16 | LoadU16(bytes, at + 2);
}
[[nodiscard]] inline std::span<const uint8_t> Octets(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

/// Whether record data of this type is read field by field.
[[nodiscard]] bool IsUnderstood(Type type);
/// The data of a record of `type` at [begin, end) of `message`. Nothing when it does not have that type's form.
[[nodiscard]] std::optional<std::string> ExpandRdata(std::span<const uint8_t> message, Type type, size_t begin, size_t end);

}  // namespace sluice::dns
