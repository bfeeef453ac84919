#pragma once

// A table with a bound, in the order of use; the least recently used goes first, and its memory serves again. Entries stand in
// one block and are found through another of eight octets for each, so that with thousands of them, mostly out of the processor's
// caches, finding one reads two lines. One thread.
//
//   RecentTable<std::string, int> table(2);
//   auto at = table.Find(std::string_view("a"));
//   if (!at) at = table.Take(std::string_view("a"));    // the place of the least recently used, where there is no room
//   table.value(*at) = 1;

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/keyed_hash.h"

namespace sluice::dns {

template <class Key, class Value, class Hash = KeyedHasher>
class RecentTable {
 public:
  using Place = uint32_t;  ///< of an entry, until it is erased or taken for another

  /// Of at least one entry.
  explicit RecentTable(size_t capacity) : capacity_(std::max<size_t>(capacity, 1)), slots_(kFirstSlots) {}

  template <class K>
  [[nodiscard]] std::optional<Place> Find(const K& key) const {
    const uint32_t tag = TagOf(key);
    for (size_t at = tag & mask(); slots_[at].place != kNone; at = (at + 1) & mask())
      if (slots_[at].tag == tag && entries_[slots_[at].place].key == key) return slots_[at].place;
    return std::nullopt;
  }

  /// An entry for a key that has none, as the one used last. Its value is a fresh one, or what the entry before it had.
  template <class K>
  [[nodiscard]] Place Take(const K& key) {
    const uint32_t tag = TagOf(key);
    const Place place = Vacate();
    Entry& entry = entries_[place];
    entry.key = key;
    entry.tag = tag;
    Insert(tag, place);
    Link(place);
    return place;
  }

  void Use(Place place) {
    if (place == newest_) return;
    Unlink(place);
    Link(place);
  }

  /// Its value becomes a fresh one.
  void Erase(Place place) {
    Remove(place);
    Entry& entry = entries_[place];
    entry.key = Key();
    entry.value = Value();
    entry.older = free_;
    free_ = place;
    --size_;
  }

  [[nodiscard]] const Key& key(Place place) const { return entries_[place].key; }
  [[nodiscard]] Value& value(Place place) { return entries_[place].value; }
  [[nodiscard]] const Value& value(Place place) const { return entries_[place].value; }
  /// From the one used last to the one used longest ago.
  [[nodiscard]] std::optional<Place> newest() const { return Named(newest_); }
  [[nodiscard]] std::optional<Place> older(Place place) const { return Named(entries_[place].older); }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  static constexpr Place kNone = UINT32_MAX;
  static constexpr size_t kFirstSlots = 16;

  struct Entry {
    Key key{};
    Value value{};
    uint32_t tag = 0;
    Place newer = kNone;
    Place older = kNone;  // of one that is free: the next that is
  };
  struct Slot {
    uint32_t tag = 0;
    Place place = kNone;
  };

  static std::optional<Place> Named(Place place) { return place == kNone ? std::nullopt : std::optional(place); }
  template <class K>
  static uint32_t TagOf(const K& key) {
    const auto hash = static_cast<uint64_t>(Hash{}(key));
    return static_cast<uint32_t>(hash ^ (hash >> 32));
  }
  [[nodiscard]] size_t mask() const { return slots_.size() - 1; }

  Place Vacate() {
    if (free_ != kNone) {
      ++size_;
      return std::exchange(free_, entries_[free_].older);
    }
    if (size_ < capacity_) {
      entries_.emplace_back();
      ++size_;
      if (size_ * 2 > slots_.size()) Grow();
      return static_cast<Place>(entries_.size() - 1);
    }
    const Place place = oldest_;
    Remove(place);
    return place;
  }

  void Grow() {
    slots_.assign(slots_.size() * 2, Slot{});
    for (Place place = newest_; place != kNone; place = entries_[place].older) Insert(entries_[place].tag, place);
  }
  void Insert(uint32_t tag, Place place) {
    size_t at = tag & mask();
    while (slots_[at].place != kNone) at = (at + 1) & mask();
    slots_[at] = {tag, place};
  }

  // Out of the order, and out of the slots: whoever had to go beyond its own on the way in comes nearer to it.
  void Remove(Place place) {
    Unlink(place);
    size_t hole = entries_[place].tag & mask();
    while (slots_[hole].place != place) hole = (hole + 1) & mask();
    for (size_t at = (hole + 1) & mask(); slots_[at].place != kNone; at = (at + 1) & mask()) {
      const size_t home = slots_[at].tag & mask();
      if (((at - home) & mask()) < ((at - hole) & mask())) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = {};
  }

  void Link(Place place) {
    entries_[place].newer = kNone;
    entries_[place].older = newest_;
    (newest_ == kNone ? oldest_ : entries_[newest_].newer) = place;
    newest_ = place;
  }
  void Unlink(Place place) {
    const Entry& entry = entries_[place];
    (entry.newer == kNone ? newest_ : entries_[entry.newer].older) = entry.older;
    (entry.older == kNone ? oldest_ : entries_[entry.older].newer) = entry.newer;
  }

  const size_t capacity_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;  // a power of two, at most half of them full
  size_t size_ = 0;
  Place newest_ = kNone;
  Place oldest_ = kNone;
  Place free_ = kNone;
};

}  // namespace sluice::dns
