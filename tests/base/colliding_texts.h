#pragma once

// Texts to which the standard library's hash (libstdc++ on 64 bits, where it is Murmur under a known seed) gives one value: the
// keys that a stranger chooses where he may choose them. Letters, digits and '_' alone.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace sluice {

class CollidingTexts {
 public:
  /// 2 to the `bits` of them, each of `bits` times 16 octets.
  static std::vector<std::string> Make(size_t bits) {
    CollidingTexts maker;
    std::vector<std::string> texts = {""};
    uint64_t state = kSeed ^ bits * 16 * kFactor;
    for (size_t i = 0; i < bits; ++i) {
      const auto [one, other] = maker.Pair(&state);
      const size_t size = texts.size();
      for (size_t at = 0; at < size; ++at) {
        texts.push_back(texts[at] + other);
        texts[at] += one;
      }
    }
    return texts;
  }

 private:
  static constexpr uint64_t kSeed = 0xc70f6907;
  static constexpr uint64_t kFactor = 0xc6a4a7935bd1e995;

  static constexpr uint64_t Inverse(uint64_t odd) {
    uint64_t inverse = odd;
    for (int i = 0; i < 6; ++i) inverse *= 2 - odd * inverse;
    return inverse;
  }
  static uint64_t Fold(uint64_t value) { return value ^ (value >> 47); }
  static uint64_t Mixed(uint64_t word) { return Fold(word * kFactor) * kFactor; }
  static uint64_t Unmixed(uint64_t mixed) { return Fold(mixed * Inverse(kFactor)) * Inverse(kFactor); }
  static uint64_t After(uint64_t state, uint64_t word) { return (state ^ Mixed(word)) * kFactor; }

  static bool IsText(uint64_t word) {
    for (int i = 0; i < 8; ++i, word >>= 8) {
      const auto c = static_cast<char>(word & 0xff);
      const bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
      if (!fine) return false;
    }
    return true;
  }
  uint64_t Word() {
    uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word = word << 8 | static_cast<uint64_t>('a' + random_() % 26);
    return word;
  }
  static std::string Text(uint64_t first, uint64_t second) {
    std::string text(16, '\0');
    std::memcpy(text.data(), &first, 8);
    std::memcpy(text.data() + 8, &second, 8);
    return text;
  }
  // Two that lead from one state to one: the last word follows from the other three.
  std::pair<std::string, std::string> Pair(uint64_t* state) {
    for (;;) {
      const uint64_t a = Word();
      const uint64_t b = Word();
      const uint64_t c = Word();
      const uint64_t end = After(After(*state, a), b);
      const uint64_t d = Unmixed(end * Inverse(kFactor) ^ After(*state, c));
      if (a == c || !IsText(d)) continue;
      *state = end;
      return {Text(a, b), Text(c, d)};
    }
  }

  std::mt19937_64 random_{1};
};

}  // namespace sluice
