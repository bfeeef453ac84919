#pragma once

// A failure that may come again and again, and that no record tells of: a line at once, and then one a minute at most.
//
//   complaint_.Tell("accept connections", errno, "clients wait");

#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "base/log.h"

namespace sluice {

/// Of one thread.
class Complaint {
 public:
  void Tell(const char* what, int error, const char* then) {
    const SteadyTime now = SystemClock().Steady();
    if (now < from_) return;
    from_ = now + kPause;
    LogError("cannot {}: {}; {}", what, std::strerror(error), then);
  }

 private:
  static constexpr std::chrono::seconds kPause{60};
  SteadyTime from_{};
};

}  // namespace sluice
