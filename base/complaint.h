#pragma once

// What may happen again and again, and fill the log: a line at once, and then one a minute at most.
//
//   complaint_.Tell("accept connections", errno, "clients wait");   // a failure that no record tells of
//   if (mesh_notice_.Due(text, now)) LogWarn("{}", text);           // a state that others may turn on and off
//   if (pace_.Due(now)) LogWarn("{}; {} more", what, pace_.Passed());

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace sluice {

/// Of one thread, or under a lock; so the others.
class Pace {
 public:
  static constexpr std::chrono::seconds kPause{60};

  /// Whether it is time for a line; what is not told is counted.
  [[nodiscard]] bool Due(SteadyTime now) {
    if (now < from_) {
      ++passed_;
      return false;
    }
    from_ = now + kPause;
    return true;
  }
  /// How often it was not, since this was asked last.
  [[nodiscard]] uint64_t Passed() { return std::exchange(passed_, 0); }

 private:
  SteadyTime from_{};
  uint64_t passed_ = 0;
};

class Complaint {
 public:
  void Tell(const char* what, int error, const char* then) {
    if (pace_.Due(SystemClock().Steady())) LogError("cannot {}: {}; {}", what, std::strerror(error), then);
  }

 private:
  Pace pace_;
};

/// A state that is looked at now and then.
class Notice {
 public:
  /// Whether to tell it: once for each change, and what it is when the minute is over. Empty: there is nothing to tell.
  [[nodiscard]] bool Due(std::string_view state, SteadyTime now) {
    if (state.empty()) told_.clear();
    if (state == told_ || !pace_.Due(now)) return false;
    told_ = state;
    return true;
  }

 private:
  Pace pace_;
  std::string told_;
};

}  // namespace sluice
