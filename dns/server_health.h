#pragma once

// Which of several upstream servers to ask, and in what order: as configured, those last that did not answer lately. A server
// that stays silent is left out for a time that doubles, then tried once beside one that answers; it comes back with its first
// answer. Time is a parameter. One thread.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "dns/resolv_conf.h"

namespace sluice::dns {

/// Questions in a row without an answer before a server counts as down.
inline constexpr int kSilencesUntilDown = 3;
inline constexpr std::chrono::seconds kFirstRest{1};  ///< before a server that is down is tried again
inline constexpr std::chrono::seconds kLongestRest{30};

/// Indexes of servers, without an allocation.
class ServerOrder {
 public:
  void Add(size_t server) { servers_[size_++] = static_cast<uint8_t>(server); }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] size_t operator[](size_t i) const { return servers_[i]; }

 private:
  std::array<uint8_t, kMaxServers> servers_{};
  size_t size_ = 0;
};

class ServerHealth {
 public:
  /// At most kMaxServers.
  explicit ServerHealth(size_t servers) : servers_(servers) {}

  /// All of them, those that are up first.
  [[nodiscard]] ServerOrder Order() const;
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
