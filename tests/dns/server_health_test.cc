#include "dns/server_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::dns {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

const SteadyTime kStart{seconds(1000)};

std::vector<size_t> OrderOf(const ServerHealth& health) {
  std::vector<size_t> order;
  for (size_t i = 0; i < health.Order().size(); ++i) order.push_back(health.Order()[i]);
  return order;
}

void TakeDown(ServerHealth* health, size_t server, SteadyTime now) {
  for (int i = 1; i < kSilencesUntilDown; ++i) EXPECT_FALSE(health->Silent(server, now));
  EXPECT_TRUE(health->Silent(server, now));
}

TEST(ServerHealthTest, ASilentServerIsAskedLast) {
  ServerHealth health(3);
  EXPECT_THAT(OrderOf(health), ElementsAre(0, 1, 2));
  TakeDown(&health, 0, kStart);
  EXPECT_THAT(OrderOf(health), ElementsAre(1, 2, 0));
  EXPECT_TRUE(health.is_down(0));
}

TEST(ServerHealthTest, AnAnswerBetweenForgivesWhatWasBefore) {
  ServerHealth health(2);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(health.Silent(0, kStart));
    EXPECT_FALSE(health.Silent(0, kStart));
    EXPECT_FALSE(health.Answered(0)) << "it was never down";
  }
  EXPECT_THAT(OrderOf(health), ElementsAre(0, 1));
}

TEST(ServerHealthTest, ItIsTriedAfterRestsThatDoubleAndComesBackWithAnAnswer) {
  ServerHealth health(2);
  TakeDown(&health, 1, kStart);
  SteadyTime now = kStart;
  for (int rest : {1, 2, 4, 8, 16, 30, 30}) {
    EXPECT_EQ(health.Trial(now + seconds(rest) - milliseconds(1)), std::nullopt) << rest;
    now += seconds(rest);
    EXPECT_EQ(health.Trial(now), 1u) << rest;
    EXPECT_EQ(health.Trial(now), std::nullopt) << "named once";
    EXPECT_FALSE(health.Silent(1, now));
  }
  EXPECT_TRUE(health.Answered(1));
  EXPECT_THAT(OrderOf(health), ElementsAre(0, 1));
  EXPECT_EQ(health.Trial(now + seconds(1000)), std::nullopt);
}

TEST(ServerHealthTest, QuestionsUnderWayWhenItWentDownSayNothingNew) {
  ServerHealth health(2);
  TakeDown(&health, 0, kStart);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(health.Silent(0, kStart));
  EXPECT_EQ(health.Trial(kStart + kFirstRest), 0u);
}

TEST(ServerHealthTest, WithAllOfThemDownEachIsAskedAnyway) {
  ServerHealth health(2);
  TakeDown(&health, 0, kStart);
  TakeDown(&health, 1, kStart);
  EXPECT_THAT(OrderOf(health), ElementsAre(0, 1));
  EXPECT_EQ(health.Trial(kStart + seconds(100)), std::nullopt);
}

}  // namespace
}  // namespace sluice::dns
