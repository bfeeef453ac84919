#pragma once

// Which names an address was told for (`dns: real`), for the transparent proxy: a connection arrives with an address, and rules
// speak of names. Kept far longer than the answer's TTL, since programs hold on to addresses. Bounded: the address told longest
// ago is forgotten first, and of one address the name told longest ago.

#include <cstddef>
#include <functional>
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

/// Told where an address is told for a name that it was not told for, and about once an hour while it is told again: who keeps
/// it knows the time to within an hour. Under the history's lock.
using OnTold = std::function<void(std::string_view canonical_name, const IpAddress& address, SteadyTime until)>;

/// Any thread.
class NameHistory {
 public:
  explicit NameHistory(size_t capacity = kMaxHistoryAddresses);
  ~NameHistory();
  NameHistory(const NameHistory&) = delete;
  NameHistory& operator=(const NameHistory&) = delete;

  /// From here on. Before anything else is asked.
  void Tell(OnTold on_told);
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
