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
  /// Of at least one entry.
  explicit TtlCache(size_t capacity) : capacity_(capacity) { index_.reserve(capacity + 1); }

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

  /// The same without counting as a use.
  [[nodiscard]] const V* Peek(std::string_view key, SteadyTime now) const {
    const auto found = index_.find(key);
    return found != index_.end() && found->second->expires > now ? &found->second->value : nullptr;
  }

  void Put(std::string_view key, V value, SteadyTime expires) {
    const auto found = index_.find(key);
    if (found != index_.end()) {
      Entry& entry = *found->second;
      entry.value = std::move(value);
      entry.expires = expires;
      entries_.splice(entries_.begin(), entries_, found->second);
      return;
    }
    if (entries_.size() >= capacity_) return Replace(key, std::move(value), expires);
    entries_.push_front({std::string(key), std::move(value), expires, {}});
    entries_.front().at = index_.emplace(entries_.front().key, entries_.begin()).first;
  }

  /// Forgets the entries that `gone` says, whatever their time.
  template <class F>
  void EraseIf(F gone) {
    for (auto it = entries_.begin(); it != entries_.end();) {
      const auto entry = it++;
      if (gone(std::as_const(entry->value))) Erase(entry->at);
    }
  }

  /// Calls `see(key, value, expires)` with each live entry, the one used last first.
  template <class F>
  void ForEach(SteadyTime now, F see) const {
    for (const Entry& entry : entries_)
      if (entry.expires > now) see(std::string_view(entry.key), entry.value, entry.expires);
  }

  [[nodiscard]] size_t size() const { return entries_.size(); }

 private:
  struct Entry;
  using Entries = std::list<Entry>;
  using Index = std::unordered_map<std::string_view, typename Entries::iterator>;
  struct Entry {
    std::string key;
    V value;
    SteadyTime expires;
    typename Index::iterator at;  // the index never grows past what was reserved, so this holds
  };

  // In the place of the least recently used, whose memory serves again.
  void Replace(std::string_view key, V value, SteadyTime expires) {
    entries_.splice(entries_.begin(), entries_, std::prev(entries_.end()));
    Entry& entry = entries_.front();
    auto node = index_.extract(entry.at);
    entry.key = key;
    entry.value = std::move(value);
    entry.expires = expires;
    node.key() = entry.key;
    entry.at = index_.insert(std::move(node)).position;
  }

  void Erase(typename Index::iterator at) {
    const auto entry = at->second;
    index_.erase(at);
    entries_.erase(entry);
  }

  const size_t capacity_;
  Entries entries_;
  Index index_;  // views into the entries' keys
};

}  // namespace sluice::dns
