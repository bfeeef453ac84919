#include "base/closes_in_turns.h"

#include <chrono>

#include "base/wake_timer.h"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kWaited{1};

}  // namespace

ClosesInTurns::~ClosesInTurns() {
  while (!left_.empty()) Turn();
}

void ClosesInTurns::Turn() {
  if (left_.empty()) return;
  const BriefCloses brief;
  const auto begin = std::chrono::steady_clock::now();
  while (!left_.empty() && std::chrono::steady_clock::now() - begin < kWaited) left_.pop_front();
}

}  // namespace sluice
