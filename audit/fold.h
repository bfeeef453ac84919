#pragma once

// Floods of equal refusals become one record with a count, so that a program which is refused ten thousand times a second fills
// neither the queue nor the disk. Time is a parameter; nothing is written here. One thread at a time.
//
//   if (fold.Offer(event, now) == DenialFold::Fate::kRecord) queue(event);
//   for (const Repeated& repeated : fold.Collect(now, DenialFold::Due::kOnly)) write(repeated);

#include <chrono>
#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/keyed_hash.h"
#include "policy/event.h"

namespace sluice::audit {

inline constexpr std::chrono::seconds kFoldWindow{1};
inline constexpr uint64_t kFoldAfter = 16;           ///< equal refusals within the window that have a record each
inline constexpr size_t kMaxFolded = 4096;           ///< equal refusals followed at a time; another has a record each time
inline constexpr size_t kMaxFoldedOfProcess = 64;    ///< of one process
inline constexpr size_t kMaxCrowdedProcesses = 256;  ///< whose unrecorded refusals are counted apart; the rest together

/// A process in time: numbers come again.
struct Owner {
  int64_t pid = 0;
  uint64_t start = 0;
  auto operator<=>(const Owner&) const = default;
};
[[nodiscard]] Owner OwnerOf(const policy::ProcessPtr& process);

/// `count` refusals from `first` to `event.time`. The event is the first of them, its id the first one's.
struct Repeated {
  policy::DecisionEvent event;
  uint64_t count = 0;
  WallTime first{};
  std::string last_id;
};

class DenialFold {
 public:
  enum class Fate : uint8_t { kRecord, kCounted };
  /// A refusal. Equal: process, layer, verdict, reason, rule and target.
  [[nodiscard]] Fate Offer(const policy::DecisionEvent& event, SteadyTime now);
  /// One that was to have a record and found no room: counted by process, its target forgotten.
  void AddUnrecorded(const policy::DecisionEvent& event);

  enum class Due : uint8_t { kOnly, kAll };
  /// What is to be written now. kAll: at the end.
  [[nodiscard]] std::vector<Repeated> Collect(SteadyTime now, Due due);
  /// Whether Collect may have something to say later.
  [[nodiscard]] bool empty() const { return entries_.empty() && crowded_.empty(); }

 private:
  struct Entry {
    std::string key;
    Owner owner;
    SteadyTime opened;
    uint64_t recorded = 1;
    Repeated repeated{};
  };

  void Close(std::list<Entry>::iterator at, std::vector<Repeated>* out);

  std::list<Entry> entries_;  // oldest first
  KeyedMap<std::string, std::list<Entry>::iterator> index_;
  std::map<Owner, size_t> entries_of_;
  std::map<Owner, Repeated> crowded_;
};

}  // namespace sluice::audit
