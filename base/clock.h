#pragma once

// Time as a parameter. Pure code takes a WallTime; what waits takes a Clock, so that tests need not.

#include <chrono>
#include <cstdint>
#include <string>

namespace sluice {

using WallTime = std::chrono::sys_time<std::chrono::microseconds>;
using SteadyTime = std::chrono::steady_clock::time_point;

/// "2026-11-29T14:16:18.123456Z" (RFC 3339, UTC, microseconds).
[[nodiscard]] std::string FormatRfc3339(WallTime time);

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual WallTime Wall() const = 0;
  [[nodiscard]] virtual SteadyTime Steady() const = 0;
};

/// The machine's clock. One object, any thread, never destroyed before its users.
[[nodiscard]] const Clock& SystemClock();

}  // namespace sluice
