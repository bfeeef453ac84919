#pragma once

// A table with a bound and a lifetime for each entry; the least recently used goes first. Time is a parameter. One thread.

#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/clock.h"

namespace sluice::dns {

template <class V>
class TtlCache {
 public:
  explicit TtlCache(size_t capacity) : capacity_(capacity) {}

  /// The live entry, or null. The pointer holds until the next Put.
  [[nodiscard]] const V* Get(std::string_view key, SteadyTime now) {
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    if (found->second->expires <= now) {
      Erase(found);
      return nullptr;
    }
    entries_.splice(entries_.begin(), entries_, found->second);
    return &found->second->value;
  }

  void Put(std::string_view key, V value, SteadyTime expires) {
    const auto found = index_.find(key);
    if (found != index_.end()) Erase(found);
    if (entries_.size() >= capacity_) Erase(index_.find(entries_.back().key));
    entries_.push_front({std::string(key), std::move(value), expires});
    index_.emplace(entries_.front().key, entries_.begin());
  }

  /// Forgets the entries that `gone` says, whatever their time.
  template <class F>
  void EraseIf(F gone) {
    for (auto it = entries_.begin(); it != entries_.end();) {
      const auto entry = it++;
      if (gone(std::as_const(entry->value))) Erase(index_.find(entry->key));
    }
  }

  [[nodiscard]] size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string key;
    V value;
    SteadyTime expires;
  };
  using Index = std::unordered_map<std::string_view, typename std::list<Entry>::iterator>;

  void Erase(typename Index::iterator at) {
    const auto entry = at->second;
    index_.erase(at);
    entries_.erase(entry);
  }

  const size_t capacity_;
  std::list<Entry> entries_;
  Index index_;  // views into the entries' keys
};

}  // namespace sluice::dns
