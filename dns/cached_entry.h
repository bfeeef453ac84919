#pragma once

// What the resolver's caches hold, for people: as values without a cache behind them.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ip.h"

namespace sluice::dns {

/// Leases of a name's addresses that the kernel has taken.
struct PublishedLeases {
  uint64_t generation = 0;  ///< of the policy that judged them
  std::chrono::seconds left{0};
};

struct CachedEntry {
  std::string name;                    ///< canonical
  std::vector<std::string> types;      ///< A and AAAA together where they were looked up together
  std::string_view status;             ///< "found", "no_record", "no_such_name", "failed"
  std::vector<IpAddress> addresses{};  ///< those that the upstream told, at most 64 of each family
  std::vector<std::string> aliases{};  ///< canonical names that it leads through
  std::chrono::seconds left{0};        ///< until it is asked for again, rounded up
  std::optional<PublishedLeases> leases{};

  /// "a.test/A", "a.test/A+AAAA": entries come in the order of these, and no two are alike.
  [[nodiscard]] std::string Key() const {
    std::string key = name;
    for (size_t i = 0; i < types.size(); ++i) key += (i == 0 ? "/" : "+") + types[i];
    return key;
  }
};

struct CachePage {
  std::vector<CachedEntry> entries;
  size_t count = 0;   ///< of all entries, those beyond the page too
  bool more = false;  ///< entries follow
};

}  // namespace sluice::dns
