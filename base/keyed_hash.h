#pragma once

// A hash whose values nobody outside this process can foresee: SipHash-2-4 (Aumasson and Bernstein, 2012) under a key drawn once.
// For tables whose keys others choose, so that nobody can fill one with keys that collide, and for what stands for a name by its
// hash alone. Of the same octets the same value, in a string and in a view of it. Any thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/ip.h"

namespace sluice {

struct HashKey {
  uint64_t low;
  uint64_t high;
};
[[nodiscard]] uint64_t SipHash24(const HashKey& key, std::string_view octets) noexcept;
/// Under this process's own key.
[[nodiscard]] uint64_t KeyedHash(std::string_view octets) noexcept;

/// For tables of text, looked up by views too, and of addresses.
struct KeyedHasher {
  using is_transparent = void;
  size_t operator()(std::string_view text) const noexcept { return KeyedHash(text); }
  size_t operator()(const IpAddress& address) const noexcept {
    return KeyedHash({reinterpret_cast<const char*>(address.bytes().data()), address.bytes().size()});
  }
};

template <class Key, class Value>
using KeyedMap = std::unordered_map<Key, Value, KeyedHasher, std::equal_to<>>;
template <class Key>
using KeyedSet = std::unordered_set<Key, KeyedHasher, std::equal_to<>>;

}  // namespace sluice
