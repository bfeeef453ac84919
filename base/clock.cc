#include "base/clock.h"

#include <fmt/format.h>

#include <ctime>

namespace sluice {
namespace {

class MachineClock final : public Clock {
 public:
  WallTime Wall() const override {
    return std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
  }
  SteadyTime Steady() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace

std::string FormatRfc3339(WallTime time) {
  const auto since = time.time_since_epoch();
  auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  const auto micros = (since - seconds).count();
  const auto t = static_cast<std::time_t>(seconds.count());
  std::tm parts{};
  gmtime_r(&t, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec, micros);
}

const Clock& SystemClock() {
  static const MachineClock clock;
  return clock;
}

}  // namespace sluice
