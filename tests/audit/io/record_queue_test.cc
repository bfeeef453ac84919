#include "audit/io/record_queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace sluice::audit {
namespace {

using policy::DecisionEvent;
using policy::ExchangeEvent;

// How many records of this kind a process can add.
size_t Fill(RecordQueue& queue, Owner owner, RecordKind kind) {
  size_t added = 0;
  while (queue.TryPush(DecisionEvent{}, owner, kind)) ++added;
  return added;
}

TEST(RecordQueueTest, RefusalsLeaveRoomForWhatIsAllowedAndThatForWhatIsOver) {
  RecordQueue queue(64);
  size_t refusals = 0;
  for (int64_t pid = 1; pid < 100; ++pid) refusals += Fill(queue, {pid, 1}, RecordKind::kRefusal);
  EXPECT_EQ(refusals, 32u);
  size_t allowed = 0;
  for (int64_t pid = 1; pid < 100; ++pid) allowed += Fill(queue, {pid, 1}, RecordKind::kAllowed);
  EXPECT_EQ(refusals + allowed, 56u);
  EXPECT_TRUE(queue.TryPush(ExchangeEvent{}, {1, 1}, RecordKind::kExchange));
}

TEST(RecordQueueTest, AProcessThatFloodsLeavesRoomForOthers) {
  for (const RecordKind flood : {RecordKind::kRefusal, RecordKind::kAllowed}) {
    RecordQueue queue(64);
    EXPECT_EQ(Fill(queue, {1, 1}, flood), 32u);
    EXPECT_FALSE(queue.TryPush(DecisionEvent{}, {1, 1}, RecordKind::kAllowed) && flood == RecordKind::kAllowed);
    EXPECT_TRUE(queue.TryPush(DecisionEvent{}, {2, 1}, RecordKind::kAllowed));
    EXPECT_TRUE(queue.TryPush(DecisionEvent{}, {1, 2}, RecordKind::kAllowed)) << "the number came again";
  }
}

TEST(RecordQueueTest, TakingMakesRoom) {
  RecordQueue queue(64);
  EXPECT_EQ(Fill(queue, {1, 1}, RecordKind::kAllowed), 32u);
  EXPECT_EQ(queue.PopAll(std::nullopt)->size(), 32u);
  EXPECT_EQ(Fill(queue, {1, 1}, RecordKind::kAllowed), 32u);
}

TEST(RecordQueueTest, ARecordThatFindsNoRoomIsUntouched) {
  RecordQueue queue(1);
  DecisionEvent event;
  event.detail = "kept";
  ASSERT_TRUE(queue.TryPush(QueuedRecord(event), {}, RecordKind::kRefusal));
  QueuedRecord record(event);
  ASSERT_FALSE(queue.TryPush(std::move(record), {}, RecordKind::kRefusal));
  EXPECT_EQ(std::get<DecisionEvent>(record).detail, "kept");
}

TEST(RecordQueueTest, WaitingEndsWithARecordATimeOrTheEnd) {
  RecordQueue queue(4);
  EXPECT_TRUE(queue.PopAll(std::chrono::milliseconds(1))->empty());
  std::thread producer([&] { EXPECT_TRUE(queue.TryPush(ExchangeEvent{}, {}, RecordKind::kExchange)); });
  EXPECT_EQ(queue.PopAll(std::nullopt)->size(), 1u);
  producer.join();
  ASSERT_TRUE(queue.TryPush(ExchangeEvent{}, {}, RecordKind::kExchange));
  queue.Close();
  EXPECT_FALSE(queue.TryPush(ExchangeEvent{}, {}, RecordKind::kExchange));
  EXPECT_EQ(queue.PopAll(std::nullopt)->size(), 1u);
  EXPECT_FALSE(queue.PopAll(std::nullopt));
}

}  // namespace
}  // namespace sluice::audit
