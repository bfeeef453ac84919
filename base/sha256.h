#pragma once

// SHA-256 (FIPS 180-4) of a text in memory: the name of a policy. For what is hashed by the gigabyte, or is secret, OpenSSL does
// it: that is faster and takes the same time for all, but costs a start some milliseconds to load. Pure.

#include <array>
#include <cstdint>
#include <string_view>

namespace sluice {

[[nodiscard]] std::array<uint8_t, 32> Sha256(std::string_view text);

}  // namespace sluice
