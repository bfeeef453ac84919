// Small pure parts: the cache, resolv.conf, local and reverse names.
#include <gtest/gtest.h>

#include "dns/cache.h"
#include "dns/local_names.h"
#include "dns/resolv_conf.h"

namespace sluice::dns {
namespace {

using std::chrono::seconds;
const SteadyTime kStart{seconds(1000)};

TEST(TtlCacheTest, EntriesEndWithTheirLife) {
  TtlCache<int> cache(4);
  cache.Put("a", 1, kStart + seconds(5));
  EXPECT_EQ(*cache.Get("a", kStart + seconds(4)), 1);
  EXPECT_EQ(cache.Get("a", kStart + seconds(5)), nullptr);
  EXPECT_EQ(cache.size(), 0u);
}

TEST(TtlCacheTest, TheLeastRecentlyUsedGoesFirst) {
  TtlCache<int> cache(2);
  cache.Put("a", 1, kStart + seconds(9));
  cache.Put("b", 2, kStart + seconds(9));
  ASSERT_NE(cache.Get("a", kStart), nullptr);
  cache.Put("c", 3, kStart + seconds(9));
  EXPECT_EQ(cache.Get("b", kStart), nullptr);
  EXPECT_EQ(*cache.Get("a", kStart), 1);
  cache.Put("a", 4, kStart + seconds(9));
  EXPECT_EQ(*cache.Get("a", kStart), 4);
  EXPECT_EQ(cache.size(), 2u);
}

TEST(TtlCacheTest, LookingIsNoUse) {
  TtlCache<int> cache(2);
  cache.Put("a", 1, kStart + seconds(9));
  cache.Put("b", 2, kStart + seconds(3));
  EXPECT_EQ(*cache.Peek("a", kStart), 1);
  EXPECT_EQ(cache.Peek("b", kStart + seconds(3)), nullptr);
  std::string seen;
  cache.ForEach(kStart, [&](std::string_view key, int, SteadyTime) { seen += key; });
  EXPECT_EQ(seen, "ba");
  seen.clear();
  cache.ForEach(kStart + seconds(3), [&](std::string_view key, int, SteadyTime) { seen += key; });
  EXPECT_EQ(seen, "a") << "what is past its time is not told";
  cache.Put("c", 3, kStart + seconds(9));
  EXPECT_EQ(cache.Peek("a", kStart), nullptr) << "it was still the least recently used";
}

TEST(ResolvConfTest, NameserverLinesAreRead) {
  const auto servers = ParseResolvConf(
      "# nameserver 9.9.9.9\nsearch a.test\nnameserver 192.0.2.1\n\tnameserver\t2001:db8::1 # two\r\nnameserver fe80::1%eth0\n"
      "nameserver dns.test\noptions ndots:1\nnameserver 192.0.2.3");
  ASSERT_EQ(servers.size(), 3u);
  EXPECT_EQ(servers[0].ToString(), "192.0.2.1:53");
  EXPECT_EQ(servers[1].ToString(), "[2001:db8::1]:53");
  EXPECT_EQ(servers[2].ToString(), "192.0.2.3:53");
  EXPECT_TRUE(ParseResolvConf("").empty());
}

TEST(LocalNamesTest, LocalhostIsLocal) {
  EXPECT_TRUE(IsLocalhost("localhost"));
  EXPECT_TRUE(IsLocalhost("a.localhost"));
  EXPECT_FALSE(IsLocalhost("notlocalhost"));
  EXPECT_FALSE(IsLocalhost("localhost.test"));
}

TEST(LocalNamesTest, ReverseNamesAreAddresses) {
  EXPECT_EQ(ReverseName("1.0.18.198.in-addr.arpa")->ToString(), "198.18.0.1");
  EXPECT_EQ(ReverseName("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa")->ToString(), "2001:db8::1");
  for (const char* text : {"18.198.in-addr.arpa", "in-addr.arpa", ".in-addr.arpa", "x.0.18.198.in-addr.arpa", "1.0.ip6.arpa",
                           "a.test", "g.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"})
    EXPECT_FALSE(ReverseName(text)) << text;
}

}  // namespace
}  // namespace sluice::dns
