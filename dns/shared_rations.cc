#include "dns/shared_rations.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace sluice::dns {
namespace {

constexpr double kNanosecond = 1e-9;
constexpr unsigned kParts = 64;  // of one, that halving leaves
constexpr uint64_t kMost = 0xffff;
constexpr uint64_t kMinutes = 0xffffffff;

struct Share {
  uint64_t minute = 0;
  uint64_t seen = 0;
  uint64_t absent = 0;
};

uint64_t MinuteOf(SteadyTime now) {
  return static_cast<uint64_t>(std::chrono::floor<std::chrono::minutes>(now.time_since_epoch()).count()) & kMinutes;
}

// As it is by now. A minute that another process has begun already is none to go back from.
Share Aged(uint64_t packed, SteadyTime now) {
  Share share{packed >> 32, packed >> 16 & kMost, packed & kMost};
  const uint64_t minute = MinuteOf(now);
  if (minute <= share.minute) return share;
  const uint64_t passed = std::min<uint64_t>(minute - share.minute, 32);
  return {minute, share.seen >> passed, share.absent >> passed};
}

}  // namespace

bool SharedBucket::Take(double per_second, double burst, SteadyTime now, double cost) noexcept {
  const int64_t at = std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count();
  const auto time_of = [per_second](double tokens) { return std::llround(tokens / per_second / kNanosecond); };
  int64_t whole_at = whole_at_.load(std::memory_order_relaxed);
  while (true) {
    const int64_t next = std::max(whole_at, at) + time_of(cost);
    if (next - at > time_of(burst)) return false;
    if (whole_at_.compare_exchange_weak(whole_at, next, std::memory_order_relaxed)) return true;
  }
}

SharedShare::Counts SharedShare::Read(SteadyTime now) const noexcept {
  const Share share = Aged(packed_.load(std::memory_order_relaxed), now);
  return {static_cast<double>(share.seen) / kParts, static_cast<double>(share.absent) / kParts};
}

void SharedShare::Add(bool absent, SteadyTime now) noexcept {
  uint64_t packed = packed_.load(std::memory_order_relaxed);
  while (true) {
    const Share share = Aged(packed, now);
    const uint64_t seen = std::min(share.seen + kParts, kMost);
    const uint64_t gone = std::min(share.absent + (absent ? kParts : 0), kMost);
    if (packed_.compare_exchange_weak(packed, share.minute << 32 | seen << 16 | gone, std::memory_order_relaxed)) return;
  }
}

}  // namespace sluice::dns
