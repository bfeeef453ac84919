#pragma once

// Whole policies as text, all keys mixed, drawn from a few words so that rules meet.

#include <array>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"

namespace sluice::prover {

using Words = std::vector<std::string>;
using Random = std::mt19937_64;

inline size_t Below(Random& random, size_t n) { return static_cast<size_t>(random() % n); }
inline bool OneIn(Random& random, size_t n) { return Below(random, n) == 0; }
inline const std::string& Any(Random& random, const Words& words) { return words[Below(random, words.size())]; }

inline const WallTime kStart = WallTime{} + std::chrono::hours{24 * 20000};  // 2024-10-04

// What a pair of policies may speak of.
struct Vocabulary {
  explicit Vocabulary(Random& r);

  enum Key : size_t { kBy, kUnder, kIp, kQuery, kQueryKeys, kHeaders, kUntil, kSlash, kParams, kOverride, kTypes, kKeys };
  Words verbs, schemes, hosts, prefixes, ports, paths, by, ip, query, query_keys, headers, until, types;
  std::array<bool, kKeys> uses{};
  bool audit = false;
};

struct Draft {
  bool audit = false;
  Words rules{};
  [[nodiscard]] std::string Text() const;
};

/// One entry of `rules:` that loads, or nothing after many tries.
[[nodiscard]] std::string DrawLoadable(Random& r, const Vocabulary& v, bool allow);
[[nodiscard]] Draft DrawDraft(Random& r, const Vocabulary& v);
[[nodiscard]] Draft Edited(Random& r, const Vocabulary& v, Draft draft);

}  // namespace sluice::prover
