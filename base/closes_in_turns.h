#pragma once

// What a PinnedCloser does, for a loop that must be alone on its process's only thread because it forks: what it drops it closes
// in turns, so that whoever makes it wait takes kWakeInterval of each round, and no more.
//
//   closes.Drop(std::move(socket));
//   while (…) { poll(…, closes.empty() ? timeout : 0); …; closes.Turn(); }

#include <cstddef>
#include <deque>
#include <utility>

#include "base/unique_fd.h"

namespace sluice {

class ClosesInTurns {
 public:
  ClosesInTurns() = default;
  /// Closes what is left, each for no longer than kWakeInterval.
  ~ClosesInTurns();
  ClosesInTurns(const ClosesInTurns&) = delete;
  ClosesInTurns& operator=(const ClosesInTurns&) = delete;

  void Drop(UniqueFd fd) {
    if (fd) left_.push_back(std::move(fd));
  }
  /// Closes until one has made it wait.
  void Turn();
  [[nodiscard]] bool empty() const { return left_.empty(); }
  /// Nothing bounds it but what its user takes in: who has this many here is to take in no more.
  [[nodiscard]] size_t size() const { return left_.size(); }

 private:
  std::deque<UniqueFd> left_;
};

}  // namespace sluice
