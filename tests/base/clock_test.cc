#include "base/clock.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Clock, FormatsRfc3339WithMicroseconds) {
  EXPECT_EQ(FormatRfc3339(WallTime{std::chrono::microseconds{1'700'000'000'000'042}}), "2023-11-14T22:13:20.000042Z");
  EXPECT_EQ(FormatRfc3339(WallTime{}), "1970-01-01T00:00:00.000000Z");
}

}  // namespace
}  // namespace sluice
