// Connects that are not over: who closes what came with them, and who is looked at. Their channel is none, so that a caller that
// is looked at waits no more.

#include "supervisor/io/waiting_connects.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

namespace sluice::supervisor {
namespace {

using Begun = WaitingConnects::Begun;

struct Table {
  SeccompChannelPtr channel;
  std::vector<int> dropped;
  WaitingConnects waiting{[this](UniqueFd fd) { dropped.push_back(fd.get()); }};

  Table() {
    auto opened = SeccompChannel::Open(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)), NotifyWakeUp::kFree);
    EXPECT_TRUE(opened) << opened.error().message;
    channel = std::make_shared<const SeccompChannel>(*std::move(opened));
  }
  static UniqueFd Socket() { return UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
  [[nodiscard]] WaitingConnects::Waiter Waiter() const { return {{channel, 1}, nullptr, std::nullopt}; }
  // What came with it, and whether it was left to `drop`.
  Begun Begin(uint64_t cookie, int* number) {
    UniqueFd pinned = Socket();
    *number = pinned.get();
    return waiting.Begin(cookie, std::move(pinned), {}, Waiter());
  }
  Begun Hang(uint64_t cookie) { return waiting.BeginHung(cookie, Socket(), {}, Waiter()); }
};

TEST(WaitingConnects, LeaveEverySocketToWhoCloses) {
  Table table;
  for (size_t i = 0; i <= kMaxWaitersPerSocket; ++i) {
    int number = -1;
    const Begun begun = table.Begin(1, &number);
    EXPECT_EQ(begun, i == 0 ? Begun::kNew : i < kMaxWaitersPerSocket ? Begun::kJoined : Begun::kFull) << i;
    if (i != 0) {
      ASSERT_EQ(table.dropped.size(), i);
      EXPECT_EQ(table.dropped.back(), number);
    }
  }
}

TEST(WaitingConnects, LookAtWhoWaitsHoweverManyOutcomesAreKept) {
  Table table;
  for (uint64_t cookie = 1; cookie < kMaxWaitingConnects; ++cookie) table.waiting.Remember(cookie, ECONNREFUSED);
  ASSERT_EQ(table.Hang(kMaxWaitingConnects), Begun::kNew);
  table.waiting.Tick();
  EXPECT_EQ(table.dropped.size(), 1U) << "its caller is gone";
}

TEST(WaitingConnects, AnOutcomeGivesWayToWhoWaits) {
  Table table;
  for (uint64_t cookie = 1; cookie <= kMaxWaitingConnects; ++cookie) table.waiting.Remember(cookie, ECONNREFUSED);
  for (uint64_t cookie = 1; cookie <= kMaxWaitingConnects; ++cookie)
    ASSERT_EQ(table.waiting.Begin(kMaxWaitingConnects + cookie, UniqueFd(), {}, table.Waiter()), Begun::kNew) << cookie;
  EXPECT_EQ(table.waiting.Begin(1, UniqueFd(), {}, table.Waiter()), Begun::kFull);
}

TEST(WaitingConnects, LookAtSoManyCallersAtATimeAndAtAllInTurns) {
  constexpr uint64_t kSockets = 2 * kMaxProbesPerTick / kMaxWaitersPerSocket;
  Table table;
  for (uint64_t cookie = 1; cookie <= kSockets; ++cookie)
    for (size_t i = 0; i < kMaxWaitersPerSocket; ++i) EXPECT_NE(table.Hang(cookie), Begun::kFull);
  table.dropped.clear();
  table.waiting.Tick();
  EXPECT_EQ(table.dropped.size(), kSockets / 2);
  table.waiting.Tick();
  EXPECT_EQ(table.dropped.size(), kSockets);
  EXPECT_TRUE(table.waiting.empty());
}

}  // namespace
}  // namespace sluice::supervisor
