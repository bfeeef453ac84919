#include "base/complaint.h"

#include <gtest/gtest.h>

#include <chrono>

namespace sluice {
namespace {

using std::chrono::seconds;

TEST(Notice, OfAStateThatIsTurnedOnAndOffIsALineAMinute) {
  Notice notice;
  const SteadyTime begin = SteadyTime() + seconds(1000);
  int lines = 0;
  for (int look = 0; look < 720; ++look) lines += notice.Due(look % 2 == 0 ? "Istio" : "", begin + look * seconds(5)) ? 1 : 0;
  EXPECT_EQ(lines, 60);
  Notice other;
  lines = 0;
  for (int look = 0; look < 720; ++look)
    lines += other.Due(look % 2 == 0 ? "Istio" : "Linkerd", begin + look * seconds(5)) ? 1 : 0;
  EXPECT_LE(lines, 60);
  EXPECT_GE(lines, 50);
}

TEST(Notice, IsOnceForEachChangeAndOfWhatIsSoInTheEnd) {
  Notice notice;
  const SteadyTime begin = SteadyTime() + seconds(1000);
  EXPECT_FALSE(notice.Due("", begin));
  EXPECT_TRUE(notice.Due("one", begin));
  EXPECT_FALSE(notice.Due("one", begin + seconds(300)));
  EXPECT_TRUE(notice.Due("two", begin + seconds(301)));
  EXPECT_FALSE(notice.Due("three", begin + seconds(302)));
  EXPECT_FALSE(notice.Due("three", begin + seconds(360)));
  EXPECT_TRUE(notice.Due("three", begin + seconds(361))) << "it is held back, and not forgotten";
}

TEST(Pace, CountsWhatItHoldsBack) {
  Pace pace;
  const SteadyTime begin = SteadyTime() + seconds(1000);
  int lines = 0;
  for (int i = 0; i < 6000; ++i) lines += pace.Due(begin + std::chrono::milliseconds(20) * i) ? 1 : 0;
  EXPECT_EQ(lines, 2);
  EXPECT_EQ(pace.Passed(), 5998U);
  EXPECT_EQ(pace.Passed(), 0U);
}

}  // namespace
}  // namespace sluice
