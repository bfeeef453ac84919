#include "proxy/io/upstream_pool.h"

#include <gtest/gtest.h>

#include "proxy/io/limits.h"

namespace sluice::proxy {
namespace {

constexpr SteadyTime kThen{};
const std::string kKey = "s a.test:443";

UpstreamPtr ConnectionTo(uint32_t v4) {
  auto upstream = std::make_unique<Upstream>();
  upstream->address = IpAddress::FromV4(v4);
  return upstream;
}

UsableJudge AtAny() {
  return [](std::optional<IpAddress>) { return true; };
}

UsableJudge OnlyAt(uint32_t v4) {
  return [v4](std::optional<IpAddress> address) { return address == IpAddress::FromV4(v4); };
}

size_t Drain(UpstreamPool& pool, const std::string& key) {
  size_t taken = 0;
  while (pool.Take(key, AtAny()) != nullptr) ++taken;
  return taken;
}

TEST(UpstreamPool, KeepsSoManyOfAKeyAndSoManyInAll) {
  UpstreamPool pool;
  for (size_t i = 0; i < kMaxIdlePerKey + 3; ++i) pool.Give(kKey, ConnectionTo(1), kThen);
  EXPECT_EQ(Drain(pool, kKey), kMaxIdlePerKey);
  EXPECT_TRUE(pool.empty());
  const size_t keys = kMaxIdleUpstreams + 3;
  for (size_t i = 0; i < keys; ++i) pool.Give(kKey + std::to_string(i), ConnectionTo(1), kThen + std::chrono::seconds(i));
  size_t kept = 0;
  for (size_t i = 0; i < keys; ++i) kept += Drain(pool, kKey + std::to_string(i));
  EXPECT_EQ(kept, kMaxIdleUpstreams) << "the oldest go";
}

TEST(UpstreamPool, GivesWhatComesBackToWhoWaitsForItLongest) {
  Reactor reactor;
  UpstreamPool pool;
  Waiter waiters[3] = {Waiter(reactor), Waiter(reactor), Waiter(reactor)};
  const UsableJudge elsewhere = OnlyAt(9);
  const UsableJudge any = AtAny();
  UpstreamPool::Want not_there(pool, kKey, waiters[0], elsewhere);
  UpstreamPool::Want first(pool, kKey, waiters[1], any);
  UpstreamPool::Want second(pool, kKey, waiters[2], any);
  EXPECT_EQ(first.Take(), nullptr);
  pool.Give("s b.test:443", ConnectionTo(1), kThen);
  EXPECT_EQ(first.Take(), nullptr) << "of another key";
  pool.Give(kKey, ConnectionTo(1), kThen);
  pool.Give(kKey, ConnectionTo(2), kThen);
  EXPECT_EQ(not_there.Take(), nullptr) << "its policy allows another address";
  const UpstreamPtr took = first.Take();
  ASSERT_NE(took, nullptr);
  EXPECT_EQ(took->address, IpAddress::FromV4(1));
  EXPECT_TRUE(took->reused) << "it may have died unseen, so a request on it may be sent again";
  EXPECT_NE(second.Take(), nullptr);
  pool.Give(kKey, ConnectionTo(3), kThen);
  EXPECT_EQ(first.Take(), nullptr) << "it was served";
  EXPECT_EQ(Drain(pool, kKey), 1u);
}

TEST(UpstreamPool, GivesOnWhatWasNotTaken) {
  Reactor reactor;
  UpstreamPool pool;
  Waiter waiter(reactor);
  const UsableJudge any = AtAny();
  {
    UpstreamPool::Want want(pool, kKey, waiter, any);
    pool.Give(kKey, ConnectionTo(1), kThen);
    EXPECT_TRUE(pool.empty());
  }
  EXPECT_EQ(Drain(pool, kKey), 1u);
}

TEST(UpstreamPool, HandsOverNothingThatHasDiedOrIsNoLongerAllowed) {
  Reactor reactor;
  UpstreamPool pool;
  Waiter waiter(reactor);
  bool allowed = true;
  const UsableJudge judge = [&](std::optional<IpAddress>) { return allowed; };
  UpstreamPool::Want want(pool, kKey, waiter, judge);
  auto dying = ConnectionTo(1);
  Upstream* const seen = dying.get();
  pool.Give(kKey, std::move(dying), kThen);
  seen->stream.channel.ready |= kPeerDone;
  EXPECT_EQ(want.Take(), nullptr);
  pool.Give(kKey, ConnectionTo(1), kThen);
  allowed = false;
  EXPECT_EQ(want.Take(), nullptr);
  allowed = true;
  pool.Give(kKey, ConnectionTo(2), kThen);
  EXPECT_NE(want.Take(), nullptr) << "it still waits";
}

TEST(UpstreamPool, LetsDialsGoOnWhileThereIsRoom) {
  Reactor reactor;
  UpstreamPool pool;
  Waiter dials[2] = {Waiter(reactor), Waiter(reactor)};
  for (size_t i = 0; i < kMaxIdlePerKey - 1; ++i) pool.Give(kKey, ConnectionTo(1), kThen);
  EXPECT_TRUE(pool.KeepLate(kKey, &dials[0]));
  EXPECT_FALSE(pool.KeepLate(kKey, &dials[1])) << "what comes of it would not be kept";
  EXPECT_TRUE(pool.KeepLate("s b.test:443", &dials[1]));
  pool.LateEnded(&dials[0]);
  EXPECT_TRUE(pool.KeepLate(kKey, &dials[0]));
  pool.Clear();
  EXPECT_TRUE(pool.empty());
  EXPECT_TRUE(dials[0].cancelled() && dials[1].cancelled()) << "they were begun under another policy";
}

}  // namespace
}  // namespace sluice::proxy
