#include "dns/synthetic.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace sluice::dns {
namespace {

TEST(SyntheticTest, AnAddressMeansItsNameForGood) {
  SyntheticPool pool;
  const auto v4 = pool.AddressFor("a.test", Family::kV4);
  const auto v6 = pool.AddressFor("a.test", Family::kV6);
  ASSERT_TRUE(v4 && v6);
  EXPECT_EQ(v4->ToString(), "198.18.0.1");
  EXPECT_EQ(v6->bytes()[0], 0xfd);
  EXPECT_EQ(*pool.AddressFor("a.test", Family::kV4), *v4);
  EXPECT_NE(*pool.AddressFor("b.test", Family::kV4), *v4);
  EXPECT_EQ(pool.NameOf(*v4), "a.test");
  EXPECT_EQ(pool.NameOf(*v6), "a.test");
  EXPECT_EQ(pool.size(), 2u);
}

TEST(SyntheticTest, AddressesNeverGivenHaveNoName) {
  SyntheticPool pool;
  const auto v6 = pool.AddressFor("a.test", Family::kV6);
  auto other = v6->bytes();
  other[8] = 1;  // the same slot in the low octets, but not the same address
  EXPECT_FALSE(pool.NameOf(IpAddress::FromV6(other)));
  EXPECT_TRUE(pool.InRange(IpAddress::FromV6(other)));
  for (const char* text : {"198.18.0.0", "198.18.0.2", "198.19.255.255", "198.20.0.1", "198.17.0.1", "10.0.0.1", "::1"})
    EXPECT_FALSE(pool.NameOf(*IpAddress::Parse(text))) << text;
  EXPECT_TRUE(pool.InRange(*IpAddress::Parse("198.19.255.255")));
  EXPECT_FALSE(pool.InRange(*IpAddress::Parse("198.20.0.0")));
  EXPECT_FALSE(pool.InRange(*IpAddress::Parse("fd00::1")));
}

TEST(SyntheticTest, TheIpv6PrefixIsRandom) {
  SyntheticPool one;
  SyntheticPool two;
  EXPECT_NE(*one.AddressFor("a.test", Family::kV6), *two.AddressFor("a.test", Family::kV6));
}

TEST(SyntheticTest, AFullPoolRefusesNewNamesAndKeepsOld) {
  SyntheticPool pool(2);
  ASSERT_TRUE(pool.AddressFor("a.test", Family::kV4));
  ASSERT_TRUE(pool.AddressFor("b.test", Family::kV4));
  const auto refused = pool.AddressFor("c.test", Family::kV4);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_TRUE(pool.AddressFor("a.test", Family::kV6));
}

TEST(SyntheticTest, TheWholeRangeLessItsEndsIsGiven) {
  SyntheticPool pool;
  IpAddress last;
  for (int i = 0; i < 131070; ++i) last = *pool.AddressFor("n" + std::to_string(i), Family::kV4);
  EXPECT_EQ(last.ToString(), "198.19.255.254");
  EXPECT_FALSE(pool.AddressFor("more", Family::kV4));
}

TEST(SyntheticTest, TheNextPoolOfAPlaceGoesOnWhereTheFormerEnded) {
  SyntheticPlace place = SyntheticPlace::Draw();
  place.first = static_cast<uint32_t>(kMaxSyntheticNames) - 1;
  std::vector<std::string> given;
  SyntheticPool former(0, place);
  former.Adopt({}, [&](uint32_t nth, std::string_view name) {
    EXPECT_EQ(nth, given.size());
    given.emplace_back(name);
  });
  const IpAddress a = *former.AddressFor("a.test", Family::kV4);
  const IpAddress b = *former.AddressFor("b.test", Family::kV6);
  const IpAddress lost = *former.AddressFor("lost.test", Family::kV4);
  EXPECT_EQ(a.ToString(), "198.19.255.254");
  EXPECT_EQ(lost.ToString(), "198.18.0.2") << "from the start again";
  ASSERT_EQ(given.size(), 3u);
  given[2].clear();
  SyntheticPool next(0, place);
  next.Adopt(given, {});
  EXPECT_EQ(next.NameOf(a), "a.test");
  EXPECT_EQ(next.NameOf(b), "b.test");
  EXPECT_FALSE(next.NameOf(lost));
  for (const char* name : {"c.test", "lost.test"}) {
    const IpAddress fresh = *next.AddressFor(name, Family::kV4);
    EXPECT_NE(fresh, a);
    EXPECT_NE(fresh, lost) << "an address is never given twice, not to its own name either";
  }
  EXPECT_EQ(*next.AddressFor("a.test", Family::kV4), a);
}

TEST(SyntheticTest, PoolsThatKnowNothingOfEachOtherBeginApart) {
  std::set<uint32_t> firsts;
  for (int i = 0; i < 8; ++i) firsts.insert(SyntheticPlace::DrawAnywhere().first);
  EXPECT_GT(firsts.size(), 6u);
  EXPECT_EQ(SyntheticPlace::Draw().first, 0u);
}

TEST(SyntheticTest, ThreadsAgree) {
  SyntheticPool pool;
  std::vector<std::vector<IpAddress>> seen(4);
  std::vector<std::thread> threads;
  for (auto& mine : seen)
    threads.emplace_back([&pool, &mine] {
      for (int i = 0; i < 2000; ++i) {
        mine.push_back(*pool.AddressFor("n" + std::to_string(i), Family::kV4));
        ASSERT_EQ(pool.NameOf(mine.back()), "n" + std::to_string(i));
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& mine : seen) EXPECT_EQ(mine, seen[0]);
  EXPECT_EQ(std::set<IpAddress>(seen[0].begin(), seen[0].end()).size(), 2000u);
}

}  // namespace
}  // namespace sluice::dns
