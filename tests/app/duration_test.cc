#include <gtest/gtest.h>

#include "app/run.h"

namespace sluice::app {
namespace {

using std::chrono::milliseconds;

TEST(ParseDuration, TakesUnits) {
  EXPECT_EQ(ParseDuration("250ms"), milliseconds(250));
  EXPECT_EQ(ParseDuration("30s"), milliseconds(30'000));
  EXPECT_EQ(ParseDuration("30"), milliseconds(30'000));
  EXPECT_EQ(ParseDuration("5m"), milliseconds(300'000));
  EXPECT_EQ(ParseDuration("2h"), milliseconds(7'200'000));
}

TEST(ParseDuration, RefusesTheRest) {
  for (const char* bad : {"", "s", "-1s", "0", "0s", "1.5s", "5 m", "5d", "99999999999h", "0x5s", "18446744073709551616"})
    EXPECT_FALSE(ParseDuration(bad)) << bad;
}

}  // namespace
}  // namespace sluice::app
