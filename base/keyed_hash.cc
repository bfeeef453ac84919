#include "base/keyed_hash.h"

#include <bit>
#include <cstring>

#include "base/random.h"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little);

struct State {
  uint64_t a, b, c, d;

  void Round() {
    a += b;
    c += d;
    b = std::rotl(b, 13) ^ a;
    d = std::rotl(d, 16) ^ c;
    a = std::rotl(a, 32);
    c += b;
    a += d;
    b = std::rotl(b, 17) ^ c;
    d = std::rotl(d, 21) ^ a;
    c = std::rotl(c, 32);
  }
  void Take(uint64_t word) {
    d ^= word;
    Round();
    Round();
    a ^= word;
  }
};

}  // namespace

uint64_t SipHash24(const HashKey& key, std::string_view octets) noexcept {
  State state{key.low ^ 0x736f6d6570736575, key.high ^ 0x646f72616e646f6d, key.low ^ 0x6c7967656e657261,
              key.high ^ 0x7465646279746573};
  const size_t whole = octets.size() / 8 * 8;
  for (size_t at = 0; at < whole; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, octets.data() + at, 8);
    state.Take(word);
  }
  uint64_t last = 0;
  if (octets.size() > whole) std::memcpy(&last, octets.data() + whole, octets.size() - whole);
  state.Take(last | static_cast<uint64_t>(octets.size()) << 56);
  state.c ^= 0xff;
  for (int i = 0; i < 4; ++i) state.Round();
  return state.a ^ state.b ^ state.c ^ state.d;
}

uint64_t KeyedHash(std::string_view octets) noexcept {
  static const HashKey key{RandomU64(), RandomU64()};
  return SipHash24(key, octets);
}

}  // namespace sluice
