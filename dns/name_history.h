#pragma once

// Which names an address was told for (`dns: real`), for the transparent proxy: a connection arrives with an address, and rules
// speak of names. Kept far longer than the answer's TTL, since programs hold on to addresses. Bounded: the address told longest
// ago is forgotten first, and of one address the name told longest ago.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ip.h"

namespace sluice::dns {

inline constexpr size_t kMaxHistoryAddresses = 65536;
inline constexpr size_t kMaxNamesOfAddress = 16;
/// How long an address is remembered after it was last told.
inline constexpr std::chrono::hours kHistoryLifetime{24};

/// Any thread.
class NameHistory {
 public:
  explicit NameHistory(size_t capacity = kMaxHistoryAddresses);
  ~NameHistory();
  NameHistory(const NameHistory&) = delete;
  NameHistory& operator=(const NameHistory&) = delete;

  /// The address was told for the name, which is to be remembered until then.
  void Note(std::string_view canonical_name, const IpAddress& address, SteadyTime until);
  /// The names that the address was told for and that are remembered at `now`: newest first, at most kMaxNamesOfAddress.
  [[nodiscard]] std::vector<std::string> NamesOf(const IpAddress& address, SteadyTime now) const;
  /// Addresses remembered.
  [[nodiscard]] size_t size() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::dns
