#pragma once

// A table with a bound and a lifetime for each entry; the least recently used goes first. Time is a parameter. One thread.

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "dns/recent_table.h"

namespace sluice::dns {

template <class V>
class TtlCache {
 public:
  /// Of at least one entry.
  explicit TtlCache(size_t capacity) : table_(capacity) {}

  /// The live entry, or null. The pointer holds until the next Put.
  [[nodiscard]] const V* Get(std::string_view key, SteadyTime now) {
    const auto at = table_.Find(key);
    if (!at) return nullptr;
    if (table_.value(*at).expires <= now) {
      table_.Erase(*at);
      return nullptr;
    }
    table_.Use(*at);
    return &table_.value(*at).value;
  }

  /// The same without counting as a use.
  [[nodiscard]] const V* Peek(std::string_view key, SteadyTime now) const {
    const auto at = table_.Find(key);
    return at && table_.value(*at).expires > now ? &table_.value(*at).value : nullptr;
  }

  void Put(std::string_view key, V value, SteadyTime expires) {
    auto at = table_.Find(key);
    if (at) {
      table_.Use(*at);
    } else {
      at = table_.Take(key);
    }
    Timed& timed = table_.value(*at);
    timed.value = std::move(value);
    timed.expires = expires;
  }

  /// Forgets the entries that `gone` says, whatever their time.
  template <class F>
  void EraseIf(F gone) {
    for (auto at = table_.newest(); at;) {
      const auto place = *at;
      at = table_.older(place);
      if (gone(std::as_const(table_.value(place).value))) table_.Erase(place);
    }
  }

  /// Calls `see(key, value, expires)` with each live entry, the one used last first.
  template <class F>
  void ForEach(SteadyTime now, F see) const {
    for (auto at = table_.newest(); at; at = table_.older(*at)) {
      const Timed& timed = table_.value(*at);
      if (timed.expires > now) see(std::string_view(table_.key(*at)), timed.value, timed.expires);
    }
  }

  [[nodiscard]] size_t size() const { return table_.size(); }

 private:
  struct Timed {
    V value{};
    SteadyTime expires{};
  };
  RecentTable<std::string, Timed> table_;
};

}  // namespace sluice::dns
