#pragma once

// Unpredictable bytes from getrandom(2). Any thread. Aborts where the kernel has none to give, which is before boot ends.

#include <cstdint>
#include <span>
#include <string>

namespace sluice {

void FillRandom(std::span<uint8_t> out);
[[nodiscard]] uint64_t RandomU64();
/// `bytes` random bytes as lower-case hexadecimal.
[[nodiscard]] std::string RandomHex(size_t bytes);

}  // namespace sluice
