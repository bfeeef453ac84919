#include "dns/flood_gate.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice::dns {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Verdict = FloodGate::Verdict;
constexpr auto kUdp = policy::Transport::kUdp;
constexpr auto kTcp = policy::Transport::kTcp;
const SteadyTime kStart{seconds(1000)};

Endpoint Socket(unsigned number) {
  return {IpAddress::FromV4(0x7f000001 + number / 50'000), static_cast<uint16_t>(1024 + number % 50'000)};
}

struct Counts {
  unsigned served = 0;
  unsigned refused = 0;
  unsigned dropped = 0;
};

void Count(Verdict verdict, Counts* counts) {
  counts->served += verdict == Verdict::kServe ? 1 : 0;
  counts->refused += verdict == Verdict::kRefuse ? 1 : 0;
  counts->dropped += verdict == Verdict::kDrop ? 1 : 0;
}

TEST(FloodGateTest, ASocketMayExceedItsRateForAMomentAndIsToldOnceASecond) {
  FloodGate gate({.source_per_second = 100, .source_burst = 50});
  Counts counts;
  for (int i = 0; i < 1000; ++i) Count(gate.Judge(kUdp, Socket(0), kStart), &counts);
  EXPECT_EQ(counts.served, 50u);
  EXPECT_EQ(counts.refused, 1u);
  EXPECT_EQ(counts.dropped, 949u);
  EXPECT_EQ(gate.Judge(kUdp, Socket(0), kStart + milliseconds(11)), Verdict::kServe) << "its rate goes on";
  for (int i = 0; i < 200; ++i) Count(gate.Judge(kUdp, Socket(0), kStart + seconds(2)), &counts);
  EXPECT_EQ(counts.refused, 2u);
}

TEST(FloodGateTest, AFloodThroughOneSocketLeavesTheOthersTheirs) {
  FloodGate gate({});
  SteadyTime now = kStart;
  for (int i = 0; i < 100'000; ++i, now += std::chrono::microseconds(2)) {
    (void)gate.Judge(kUdp, Socket(0), now);
    if (i % 1000 == 999) EXPECT_EQ(gate.Judge(kUdp, Socket(1 + static_cast<unsigned>(i)), now), Verdict::kServe) << i;
  }
}

TEST(FloodGateTest, AProcessThatChangesSocketsHasOneBudgetAndLeavesRoom) {
  // All sockets but those of 127.0.0.255 are of process 1.
  const auto whose = [](policy::Transport, const Endpoint& source) -> uint64_t {
    return source.address.v4() == 0x7f0000ff ? source.port : 1;
  };
  FloodGate gate({}, whose);
  const FloodLimits limits;
  Counts flood;
  SteadyTime now = kStart;
  for (unsigned i = 0; i < 200'000; ++i, now += std::chrono::microseconds(5)) {
    Count(gate.Judge(kUdp, Socket(i), now), &flood);
    if (i % 1000 == 999) {
      const Endpoint other{IpAddress::FromV4(0x7f0000ff), static_cast<uint16_t>(1000 + i / 1000)};
      EXPECT_EQ(gate.Judge(kUdp, other, now), Verdict::kServe) << i;
    }
  }
  EXPECT_LE(flood.served, limits.process_burst + limits.process_per_second * 1.01);
  EXPECT_LE(flood.refused, 2u);
}

TEST(FloodGateTest, SendersThatWouldHaveToBeSearchedForShareASmallBudget) {
  const auto whose = [](policy::Transport, const Endpoint& source) -> uint64_t { return source.port == 9999 ? 7 : 0; };
  const FloodLimits limits;
  FloodGate gate(limits, whose);
  Counts counts;
  for (unsigned i = 0; i < 1000; ++i) Count(gate.Judge(kUdp, Socket(i), kStart), &counts);
  EXPECT_EQ(counts.served, static_cast<unsigned>(limits.unknown_burst));
  EXPECT_EQ(gate.Judge(kUdp, {IpAddress::FromV4(0x7f0000ff), 9999}, kStart), Verdict::kServe);
}

TEST(FloodGateTest, ASenderThatBecomesKnownHasItsOwnBudget) {
  uint64_t owner = 0;
  FloodGate gate({.unknown_per_second = 0.001, .unknown_burst = 1}, [&](policy::Transport, const Endpoint&) { return owner; });
  EXPECT_EQ(gate.Judge(kUdp, Socket(1), kStart), Verdict::kServe);
  EXPECT_EQ(gate.Judge(kUdp, Socket(1), kStart), Verdict::kRefuse);
  owner = 12;
  EXPECT_EQ(gate.Judge(kUdp, Socket(1), kStart), Verdict::kServe);
}

TEST(FloodGateTest, AProcessHasOneBudgetOverBothTransports) {
  const auto whose = [](policy::Transport, const Endpoint&) -> uint64_t { return 1; };
  FloodGate gate({.process_per_second = 0.001, .process_burst = 10}, whose);
  Counts counts;
  for (unsigned i = 0; i < 20; ++i) Count(gate.Judge(i % 2 == 0 ? kUdp : kTcp, Socket(i), kStart), &counts);
  EXPECT_EQ(counts.served, 10u);
}

// The same port of the other transport may be another process's, and the filter is of the UDP socket.
TEST(FloodGateTest, AFloodByTcpNeitherSpendsNorShutsTheUdpPortOfItsNumber) {
  FloodGate gate({.source_per_second = 1, .source_burst = 1});
  for (unsigned i = 0; i < 2 * kShutAfter; ++i) (void)gate.Judge(kTcp, Socket(7), kStart);
  EXPECT_FALSE(gate.changed());
  EXPECT_TRUE(gate.ShutPorts(kStart).empty());
  EXPECT_EQ(gate.Judge(kUdp, Socket(7), kStart), Verdict::kServe);
}

TEST(FloodGateTest, ManyFloodingProcessesLeaveTheReserveToOthers) {
  const auto whose = [](policy::Transport, const Endpoint& source) -> uint64_t { return source.port; };
  FloodGate gate({}, whose);
  SteadyTime now = kStart;
  for (unsigned i = 0; i < 400'000; ++i, now += std::chrono::microseconds(2)) {
    (void)gate.Judge(kUdp, Socket(i % 20), now);
    // Until their bursts are spent, nothing tells the twenty from others.
    if (i >= 100'000 && i % 4000 == 3999) EXPECT_EQ(gate.Judge(kUdp, Socket(100 + i), now), Verdict::kServe) << i;
  }
}

TEST(FloodGateTest, AFloodingPortIsShutForASecondAndNoMoreThanTheFilterHolds) {
  FloodGate gate({.source_per_second = 1, .source_burst = 1});
  EXPECT_FALSE(gate.changed());
  for (unsigned i = 0; i < kShutAfter + 5; ++i) (void)gate.Judge(kUdp, Socket(7), kStart);
  EXPECT_TRUE(gate.changed());
  EXPECT_EQ(gate.ShutPorts(kStart), std::vector<uint16_t>{Socket(7).port});
  EXPECT_FALSE(gate.changed());
  EXPECT_TRUE(gate.ShutPorts(kStart + kShutFor).empty());
  for (unsigned socket = 0; socket < 2 * kMaxShutPorts; ++socket)
    for (unsigned i = 0; i < kShutAfter + 5; ++i) (void)gate.Judge(kUdp, Socket(socket), kStart + seconds(5));
  EXPECT_EQ(gate.ShutPorts(kStart + seconds(5)).size(), kMaxShutPorts);
}

}  // namespace
}  // namespace sluice::dns
