#pragma once

// In which order the addresses of a name are tried (RFC 8305 section 4): the two families in turn, IPv6 first, so that one
// family's fault costs one step; and what failed a short while ago after everything else.

#include <chrono>
#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "base/ip.h"
#include "base/keyed_hash.h"

namespace sluice::proxy {

inline constexpr size_t kMaxFailedAddresses = 1024;          ///< remembered, per worker
inline constexpr auto kFailedFor = std::chrono::minutes(1);  ///< tried last for so long

/// Addresses that could not be connected to of late. One worker's thread.
class FailedAddresses {
 public:
  /// A full table forgets what is over, and then all: the worst that follows is the plain order.
  void Add(const IpAddress& address, SteadyTime now);
  /// It answered.
  void Forget(const IpAddress& address) { until_.erase(address); }
  [[nodiscard]] bool Contains(const IpAddress& address, SteadyTime now) const;
  [[nodiscard]] size_t size() const { return until_.size(); }

 private:
  KeyedMap<IpAddress, SteadyTime> until_;
};

/// Each address once. Within a family the order is kept.
[[nodiscard]] std::vector<IpAddress> DialOrder(const std::vector<IpAddress>& addresses, const FailedAddresses& failed,
                                               SteadyTime now);

/// Of the errnos that attempts at one name ended with, the one that says most: a refusal before a timeout before no route.
/// 0 where there is none.
[[nodiscard]] int TellingErrno(const std::vector<int>& errors);

}  // namespace sluice::proxy
