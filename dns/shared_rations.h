#pragma once

// The rations of a Limiter that several resolvers have together, a run's and those of the runs in its sandbox: in memory that all
// of their processes map. There is no lock, so that one which is stopped or killed while it counts holds nobody up. Time is a
// parameter, of one clock in all of them. Any thread.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "base/keyed_hash.h"

namespace sluice::dns {

/// Names that passed, of which one too many takes another's place; rations of domains, of which two may have to share one.
inline constexpr size_t kMaxSharedNames = 65536;
inline constexpr size_t kMaxSharedDomains = 16384;

/// A rate that may be exceeded for a moment: when it will be whole again, in ns.
class SharedBucket {
 public:
  /// Takes `cost`, or nothing where there is less.
  [[nodiscard]] bool Take(double per_second, double burst, SteadyTime now, double cost = 1) noexcept;

 private:
  std::atomic<int64_t> whole_at_;
};

/// How many there were of late, and of those how many of one kind. Both are halved every minute.
class SharedShare {
 public:
  struct Counts {
    double seen = 0;
    double absent = 0;
  };
  [[nodiscard]] Counts Read(SteadyTime now) const noexcept;
  void Add(bool absent, SteadyTime now) noexcept;

 private:
  std::atomic<uint64_t> packed_;  // the minute, and both in parts of one
};

/// Zeroes are the beginning, but for the key. Neither copied nor destroyed.
class SharedRations {
 public:
  struct Domain {
    SharedBucket ration;
    SharedShare absence;
  };

  /// Before any other has it.
  void SetKey(const HashKey& key) noexcept { key_ = key; }
  [[nodiscard]] uint64_t Hash(std::string_view name) const noexcept { return SipHash24(key_, name); }
  [[nodiscard]] bool IsKnown(uint64_t hash) const noexcept { return Name(hash).load(std::memory_order_relaxed) == hash; }
  void Learn(uint64_t hash) noexcept { Name(hash).store(hash, std::memory_order_relaxed); }
  [[nodiscard]] Domain& Find(std::string_view domain) noexcept { return domains_[Hash(domain) % kMaxSharedDomains]; }
  [[nodiscard]] SharedBucket& upstream() noexcept { return upstream_; }

 private:
  [[nodiscard]] std::atomic<uint64_t>& Name(uint64_t hash) noexcept { return names_[hash % kMaxSharedNames]; }
  [[nodiscard]] const std::atomic<uint64_t>& Name(uint64_t hash) const noexcept { return names_[hash % kMaxSharedNames]; }

  HashKey key_;
  SharedBucket upstream_;
  std::array<std::atomic<uint64_t>, kMaxSharedNames> names_;
  std::array<Domain, kMaxSharedDomains> domains_;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

}  // namespace sluice::dns
