#include "supervisor/flow_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace sluice::supervisor {
namespace {

using Table = FlowTable<std::string, int>;
using Outcome = Table::Outcome;

const SteadyTime kStart{};
constexpr std::chrono::milliseconds kMs{1};

FlowTuple Tuple(uint16_t port, uint32_t to = 0xc6120001) {
  return {{IpAddress::FromV4(0x0a000001), port}, {IpAddress::FromV4(to), 80}};
}

Outcome Expect(Table& table, const FlowTuple& tuple, std::string approval, std::optional<int>* out, SteadyTime now = kStart) {
  return table.Expect(tuple, approval, now, out);
}
Outcome Offer(Table& table, const FlowTuple& tuple, int accepted, std::optional<std::string>* out, SteadyTime now = kStart) {
  return table.Offer(tuple, accepted, now, out);
}

TEST(FlowTable, MatchesWhicheverComesFirst) {
  Table table;
  std::optional<int> accepted;
  std::optional<std::string> approval;
  EXPECT_EQ(Expect(table, Tuple(1), "a", &accepted), Outcome::kWaiting);
  EXPECT_EQ(Offer(table, Tuple(1), 7, &approval), Outcome::kMatched);
  EXPECT_EQ(approval, "a");
  EXPECT_EQ(Offer(table, Tuple(2), 8, &approval), Outcome::kWaiting);
  EXPECT_EQ(Expect(table, Tuple(2), "b", &accepted), Outcome::kMatched);
  EXPECT_EQ(accepted, 8);
  EXPECT_EQ(table.waiting(), 0U);
}

TEST(FlowTable, GivesEachHalfOutOnce) {
  Table table;
  std::optional<int> accepted;
  std::optional<std::string> approval;
  Expect(table, Tuple(1), "a", &accepted);
  EXPECT_EQ(Offer(table, Tuple(1), 1, &approval), Outcome::kMatched);
  approval.reset();
  EXPECT_EQ(Offer(table, Tuple(1), 2, &approval), Outcome::kWaiting) << "a second connection has no approval";
  EXPECT_FALSE(approval);
}

TEST(FlowTable, TellsTuplesApartByBothEnds) {
  Table table;
  std::optional<int> accepted;
  std::optional<std::string> approval;
  Expect(table, Tuple(1, 0xc6120001), "a", &accepted);
  EXPECT_EQ(Offer(table, Tuple(1, 0xc6120002), 1, &approval), Outcome::kWaiting);
  EXPECT_EQ(Offer(table, Tuple(2, 0xc6120001), 1, &approval), Outcome::kWaiting);
}

TEST(FlowTable, ServesEqualTuplesInTheOrderTheyCame) {
  Table table;
  std::optional<int> accepted;
  std::optional<std::string> approval;
  Expect(table, Tuple(1), "first", &accepted);
  Expect(table, Tuple(1), "second", &accepted);
  Offer(table, Tuple(1), 1, &approval);
  EXPECT_EQ(approval, "first");
  Offer(table, Tuple(1), 2, &approval);
  EXPECT_EQ(approval, "second");
}

TEST(FlowTable, GivesUpWhatWaitedTooLong) {
  Table table;
  std::optional<int> accepted;
  std::optional<std::string> approval;
  Expect(table, Tuple(1), "old", &accepted, kStart);
  Expect(table, Tuple(2), "new", &accepted, kStart + 10 * kMs);
  Offer(table, Tuple(3), 3, &approval, kStart);
  const auto lost = table.ExpiredApprovals(kStart + 5 * kMs);
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].second, "old");
  ASSERT_EQ(table.ExpiredAccepted(kStart + 5 * kMs).size(), 1U);
  EXPECT_EQ(table.waiting(), 1U);
  EXPECT_EQ(Offer(table, Tuple(1), 1, &approval), Outcome::kWaiting) << "an approval that ran out serves nobody";
}

TEST(FlowTable, IsBounded) {
  Table table;
  std::optional<int> accepted;
  for (size_t i = 0; i < kMaxWaitingFlows; ++i) {
    ASSERT_EQ(Expect(table, Tuple(static_cast<uint16_t>(i)), "x", &accepted), Outcome::kWaiting);
  }
  std::string kept = "kept";
  EXPECT_EQ(table.Expect(Tuple(60000), kept, kStart, &accepted), Outcome::kFull);
  EXPECT_EQ(kept, "kept") << "what was refused stays with its owner";
}

// Any order of halves gives each approval exactly one connection of its own tuple.
TEST(FlowTable, MatchesEveryPairInAnyOrder) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<bool, uint16_t>> steps;
    for (uint16_t port = 0; port < 16; ++port) {
      steps.emplace_back(true, port % 5);
      steps.emplace_back(false, port % 5);
    }
    std::ranges::shuffle(steps, random);
    Table table;
    int matched = 0;
    for (const auto& [is_approval, port] : steps) {
      std::optional<int> accepted;
      std::optional<std::string> approval;
      if (is_approval) {
        if (Expect(table, Tuple(port), std::to_string(port), &accepted) == Outcome::kMatched) {
          EXPECT_EQ(*accepted, port);
          ++matched;
        }
      } else if (Offer(table, Tuple(port), port, &approval) == Outcome::kMatched) {
        EXPECT_EQ(*approval, std::to_string(port));
        ++matched;
      }
    }
    EXPECT_EQ(matched, 16);
    EXPECT_EQ(table.waiting(), 0U);
  }
}

}  // namespace
}  // namespace sluice::supervisor
