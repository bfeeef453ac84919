#include "audit/fold.h"

#include <gtest/gtest.h>

#include "tests/audit/make.h"

namespace sluice::audit {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Fate = DenialFold::Fate;
using Due = DenialFold::Due;
const SteadyTime kStart{seconds(1000)};

policy::DecisionEvent DenialAt(int n) {
  policy::DecisionEvent event = Denial();
  event.time += milliseconds(n);
  event.denial_id = "d-" + std::to_string(n);
  return event;
}

policy::DecisionEvent DenialBy(int64_t pid, uint64_t start) {
  policy::DecisionEvent event = Denial();
  auto process = std::make_shared<policy::Process>(*event.process);
  process->pid = static_cast<decltype(process->pid)>(pid);
  process->start_time = start;
  event.process = process;
  return event;
}

TEST(DenialFoldTest, AFewEqualDenialsHaveARecordEachAndTheRestOfAFloodHasOne) {
  DenialFold fold;
  const int few = static_cast<int>(kFoldAfter);
  for (int i = 0; i < few; ++i) EXPECT_EQ(fold.Offer(DenialAt(i), kStart), Fate::kRecord);
  EXPECT_TRUE(fold.Collect(kStart + milliseconds(999), Due::kOnly).empty());
  for (int i = few; i < 10'000; ++i) EXPECT_EQ(fold.Offer(DenialAt(i), kStart + milliseconds(500)), Fate::kCounted);
  const auto due = fold.Collect(kStart + kFoldWindow, Due::kOnly);
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].count, 10'000 - kFoldAfter);
  EXPECT_EQ(due[0].first, DenialAt(few).time);
  EXPECT_EQ(due[0].event.time, DenialAt(9'999).time);
  EXPECT_EQ(due[0].event.denial_id, DenialAt(few).denial_id);
  EXPECT_EQ(due[0].last_id, "d-9999");
  EXPECT_TRUE(fold.empty());
  EXPECT_EQ(fold.Offer(Denial(), kStart + seconds(2)), Fate::kRecord) << "later it is news again";
}

TEST(DenialFoldTest, WhatDiffersIsNotFolded) {
  DenialFold fold;
  for (uint64_t i = 0; i <= kFoldAfter; ++i) (void)fold.Offer(Denial(), kStart);
  EXPECT_EQ(fold.Offer(Denial(), kStart), Fate::kCounted);
  policy::DecisionEvent other = Denial();
  other.target.path = "/other";
  EXPECT_EQ(fold.Offer(other, kStart), Fate::kRecord);
  other = Denial();
  other.target.port = 1;
  EXPECT_EQ(fold.Offer(other, kStart), Fate::kRecord);
  other = Denial();
  other.decision.reason = policy::Reason::kPath;
  EXPECT_EQ(fold.Offer(other, kStart), Fate::kRecord);
  EXPECT_EQ(fold.Offer(DenialBy(4711, 100), kStart), Fate::kRecord) << "the same number, another process";
  auto client = std::make_shared<policy::Process>(*Denial().process);
  client->client = "ci";
  other = Denial();
  other.process = client;
  EXPECT_EQ(fold.Offer(other, kStart), Fate::kRecord) << "another client, of whom nothing else is known";
  other.process = nullptr;
  EXPECT_EQ(fold.Offer(other, kStart), Fate::kRecord);
}

TEST(DenialFoldTest, FieldsCannotBeShiftedIntoEachOther) {
  DenialFold fold;
  policy::DecisionEvent one = Denial();
  one.target.method = "A";
  one.target.path = "1:B";
  for (uint64_t i = 0; i < kFoldAfter; ++i) (void)fold.Offer(one, kStart);
  one.target.method = "A 3:1:B";
  one.target.path = "";
  EXPECT_EQ(fold.Offer(one, kStart), Fate::kRecord);
}

TEST(DenialFoldTest, OneProcessCannotTakeTheWholeTable) {
  DenialFold fold;
  policy::DecisionEvent event = Denial();
  for (size_t i = 0; i < 10 * kMaxFolded; ++i) {
    event.target.path = "/" + std::to_string(i);
    EXPECT_EQ(fold.Offer(event, kStart), Fate::kRecord);
  }
  for (uint64_t i = 0; i < kFoldAfter; ++i) EXPECT_EQ(fold.Offer(DenialBy(1, 1), kStart), Fate::kRecord);
  EXPECT_EQ(fold.Offer(DenialBy(1, 1), kStart), Fate::kCounted);
}

TEST(DenialFoldTest, AFullTableFoldsNoFurtherProcessAndHidesNothing) {
  DenialFold fold;
  for (size_t i = 0; i < kMaxFolded; ++i) (void)fold.Offer(DenialBy(static_cast<int64_t>(i + 1), 1), kStart);
  for (uint64_t i = 0; i <= 2 * kFoldAfter; ++i) EXPECT_EQ(fold.Offer(DenialBy(1, 2), kStart), Fate::kRecord);
  EXPECT_TRUE(fold.Collect(kStart + kFoldWindow, Due::kOnly).empty());
  EXPECT_TRUE(fold.empty());
}

TEST(DenialFoldTest, UnrecordedOnesAreCountedByProcessWithinABound) {
  DenialFold fold;
  const auto processes = static_cast<int64_t>(2 * kMaxCrowdedProcesses);
  for (int64_t pid = 1; pid <= processes; ++pid)
    for (int i = 0; i < 3; ++i) fold.AddUnrecorded(DenialBy(pid, 1));
  EXPECT_FALSE(fold.empty());
  const auto due = fold.Collect(kStart, Due::kOnly);
  EXPECT_LE(due.size(), kMaxCrowdedProcesses + 1);
  uint64_t count = 0;
  for (const Repeated& repeated : due) {
    count += repeated.count;
    EXPECT_TRUE(repeated.event.target.host.empty());
    EXPECT_EQ(repeated.event.decision.reason, policy::Reason::kLimit);
  }
  EXPECT_EQ(count, static_cast<uint64_t>(3 * processes));
  EXPECT_TRUE(fold.empty());
}

}  // namespace
}  // namespace sluice::audit
