#pragma once

// Which of several upstream servers to ask, and in what order: as configured, those last that did not answer lately. A server
// that stays silent is left out for a time that doubles, then tried once beside one that answers; it comes back with its first
// answer. Time is a parameter. One thread.

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace sluice::dns {

/// Questions in a row without an answer before a server counts as down.
inline constexpr int kSilencesUntilDown = 3;
inline constexpr std::chrono::seconds kFirstRest{1};  ///< before a server that is down is tried again
inline constexpr std::chrono::seconds kLongestRest{30};

class ServerHealth {
 public:
  explicit ServerHealth(size_t servers) : servers_(servers) {}

  /// All of them, those that are up first.
  [[nodiscard]] std::vector<size_t> Order() const;
  /// A server that is down and has rested: to be asked too, by whoever asks this. It is named once for each rest.
  [[nodiscard]] std::optional<size_t> Trial(SteadyTime now);
  /// Any answer counts, whatever it says. True: it was down.
  bool Answered(size_t server);
  /// No answer, or no way to it. True: that took it down.
  bool Silent(size_t server, SteadyTime now);
  [[nodiscard]] bool is_down(size_t server) const { return servers_[server].down; }

 private:
  struct State {
    int silences = 0;
    bool down = false;
    bool trying = false;
    std::chrono::seconds rest{0};
    SteadyTime again{};  ///< when it has rested
  };
  std::vector<State> servers_;
};

}  // namespace sluice::dns
