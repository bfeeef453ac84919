#pragma once

// Brings together the two halves of a captured connection: the approval that a notification gave, and the socket that the
// capture listener accepted. Whichever comes first waits for the other; each is given out once. Equal tuples are served first
// in, first out, so that a source port used again cannot take an older one's place. Pure: time is a parameter; the caller locks.
//
//   FlowTable<Attempt, UniqueFd> table;
//   if (auto accepted = table.Expect(tuple, attempt, now)) …it had been accepted already
//   if (auto attempt = table.Offer(tuple, fd, now)) …it had been approved already

#include <compare>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ip.h"

namespace sluice::supervisor {

struct FlowTuple {
  Endpoint source;
  Endpoint destination;
  auto operator<=>(const FlowTuple&) const = default;
};

/// Approvals and accepted sockets that wait for their other half; each kind on its own.
inline constexpr size_t kMaxWaitingFlows = 4096;

template <class Approval, class Accepted>
class FlowTable {
 public:
  enum class Outcome : uint8_t {
    kMatched,  ///< the other half was there; it is in the out parameter, and what was passed is untouched
    kWaiting,  ///< taken over, waits
    kFull,     ///< kMaxWaitingFlows reached; untouched
  };

  Outcome Expect(const FlowTuple& tuple, Approval& approval, SteadyTime now, std::optional<Accepted>* accepted) {
    return Join(tuple, approval, approvals_, now, accepted, accepted_);
  }
  Outcome Offer(const FlowTuple& tuple, Accepted& accepted, SteadyTime now, std::optional<Approval>* approval) {
    return Join(tuple, accepted, accepted_, now, approval, approvals_);
  }

  /// What has waited since `before` or longer, removed.
  [[nodiscard]] std::vector<std::pair<FlowTuple, Approval>> ExpiredApprovals(SteadyTime before) {
    return Expired(approvals_, before);
  }
  [[nodiscard]] std::vector<std::pair<FlowTuple, Accepted>> ExpiredAccepted(SteadyTime before) {
    return Expired(accepted_, before);
  }

  [[nodiscard]] size_t waiting() const { return approvals_.size() + accepted_.size(); }

 private:
  template <class T>
  struct Waiting {
    T value;
    SteadyTime since;
  };
  template <class T>
  using Table = std::multimap<FlowTuple, Waiting<T>>;

  template <class Mine, class Other>
  static Outcome Join(const FlowTuple& tuple, Mine& mine, Table<Mine>& mine_table, SteadyTime now, std::optional<Other>* other,
                      Table<Other>& other_table) {
    // lower_bound and insert keep insertion order among equal keys.
    if (const auto it = other_table.lower_bound(tuple); it != other_table.end() && it->first == tuple) {
      other->emplace(std::move(it->second.value));
      other_table.erase(it);
      return Outcome::kMatched;
    }
    if (mine_table.size() >= kMaxWaitingFlows) return Outcome::kFull;
    mine_table.emplace(tuple, Waiting<Mine>{std::move(mine), now});
    return Outcome::kWaiting;
  }

  template <class T>
  static std::vector<std::pair<FlowTuple, T>> Expired(Table<T>& table, SteadyTime before) {
    std::vector<std::pair<FlowTuple, T>> out;
    for (auto it = table.begin(); it != table.end();) {
      if (it->second.since > before) {
        ++it;
        continue;
      }
      out.emplace_back(it->first, std::move(it->second.value));
      it = table.erase(it);
    }
    return out;
  }

  Table<Approval> approvals_;
  Table<Accepted> accepted_;
};

}  // namespace sluice::supervisor
