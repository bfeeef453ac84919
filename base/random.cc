#include "base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

namespace sluice {

void FillRandom(std::span<uint8_t> out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = getrandom(out.data() + done, out.size() - done, 0);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      std::abort();
    }
  }
}

uint64_t RandomU64() {
  uint64_t value = 0;
  FillRandom({reinterpret_cast<uint8_t*>(&value), sizeof value});
  return value;
}

std::string RandomHex(size_t bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::vector<uint8_t> raw(bytes);
  FillRandom(raw);
  std::string text;
  text.reserve(bytes * 2);
  for (const uint8_t b : raw) {
    text += kDigits[b >> 4];
    text += kDigits[b & 15];
  }
  return text;
}

}  // namespace sluice
