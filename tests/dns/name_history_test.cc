#include "dns/name_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace sluice::dns {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

const SteadyTime kStart{seconds(1000)};
const SteadyTime kLater = kStart + seconds(100);
IpAddress At(uint32_t n) { return IpAddress::FromV4(0x5db80000 + n); }

TEST(NameHistoryTest, NamesOfAnAddressComeNewestFirst) {
  NameHistory history;
  EXPECT_THAT(history.NamesOf(At(1), kStart), IsEmpty());
  history.Note("a.test", At(1), kLater);
  history.Note("b.test", At(1), kLater);
  history.Note("b.test", At(2), kLater);
  EXPECT_THAT(history.NamesOf(At(1), kStart), ElementsAre("b.test", "a.test"));
  history.Note("a.test", At(1), kLater);
  EXPECT_THAT(history.NamesOf(At(1), kStart), ElementsAre("a.test", "b.test"));
  EXPECT_THAT(history.NamesOf(At(2), kStart), ElementsAre("b.test"));
  EXPECT_EQ(history.size(), 2u);
}

TEST(NameHistoryTest, WhatIsPastItsTimeIsNotTold) {
  NameHistory history;
  history.Note("a.test", At(1), kStart + seconds(10));
  history.Note("b.test", At(1), kStart + seconds(20));
  EXPECT_THAT(history.NamesOf(At(1), kStart + seconds(10)), ElementsAre("b.test"));
  EXPECT_THAT(history.NamesOf(At(1), kStart + seconds(20)), IsEmpty());
  history.Note("a.test", At(1), kStart + seconds(30));
  history.Note("a.test", At(1), kStart + seconds(25));
  EXPECT_THAT(history.NamesOf(At(1), kStart + seconds(29)), ElementsAre("a.test")) << "never shortened";
}

TEST(NameHistoryTest, ItIsBoundedBothWays) {
  NameHistory history(3);
  for (uint32_t i = 0; i < 4; ++i) history.Note("n" + std::to_string(i) + ".test", At(i), kLater);
  EXPECT_EQ(history.size(), 3u);
  EXPECT_THAT(history.NamesOf(At(0), kStart), IsEmpty()) << "told longest ago";
  EXPECT_THAT(history.NamesOf(At(3), kStart), ElementsAre("n3.test"));
  for (size_t i = 0; i < kMaxNamesOfAddress + 5; ++i) history.Note("m" + std::to_string(i) + ".test", At(3), kLater);
  const auto names = history.NamesOf(At(3), kStart);
  EXPECT_EQ(names.size(), kMaxNamesOfAddress);
  EXPECT_EQ(names.front(), "m" + std::to_string(kMaxNamesOfAddress + 4) + ".test");
}

TEST(NameHistoryTest, WhoKeepsItIsToldOfWhatIsNewAndOncePerHour) {
  NameHistory history(2);
  std::vector<std::string> told;
  history.Tell([&](std::string_view name, const IpAddress& address, SteadyTime) {
    told.push_back(std::string(name) + " " + address.ToString());
  });
  const SteadyTime whole{std::chrono::hours(5)};
  history.Note("a.test", At(1), whole);
  for (int i = 1; i < 60; ++i) history.Note("a.test", At(1), whole + std::chrono::minutes(i));
  EXPECT_EQ(told.size(), 1u);
  history.Note("a.test", At(1), whole + std::chrono::minutes(60));
  EXPECT_EQ(told.size(), 2u);
  history.Note("b.test", At(1), whole);
  history.Note("a.test", At(2), whole);
  history.Note("a.test", At(3), whole);  // in the place of the first
  EXPECT_THAT(told,
              testing::ElementsAre(testing::StartsWith("a.test"), testing::StartsWith("a.test"), testing::StartsWith("b.test"),
                                   "a.test " + At(2).ToString(), "a.test " + At(3).ToString()));
}

TEST(NameHistoryTest, ManyThreadsMayUseIt) {
  NameHistory history(64);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&history, t] {
      for (uint32_t i = 0; i < 5000; ++i) {
        history.Note("n" + std::to_string(i % 100) + ".test", At((i * 7 + t) % 100), kLater);
        for (const std::string& name : history.NamesOf(At(i % 100), kStart)) ASSERT_TRUE(name.ends_with(".test"));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(history.size(), 64u);
}

}  // namespace
}  // namespace sluice::dns
