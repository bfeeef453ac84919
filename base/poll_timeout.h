#pragma once

// A deadline as poll(2) takes it.

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace sluice {

/// Milliseconds from now until then, rounded up: 0 once it is past, an hour at most, after which the caller looks again.
[[nodiscard]] inline int PollTimeout(SteadyTime until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

}  // namespace sluice
