#include "policy/address.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace sluice::policy {
namespace {

TEST(SpecialRange, KnowsWhereNamesMustNotLead) {
  struct Case {
    const char* address;
    const char* range;  ///< nothing: an ordinary public address
  };
  for (const Case& c : std::initializer_list<Case>{
           {"8.8.8.8", nullptr},
           {"2606:4700::1111", nullptr},
           {"127.0.0.1", "127.0.0.0/8"},
           {"10.255.0.1", "10.0.0.0/8"},
           {"172.16.0.1", "172.16.0.0/12"},
           {"172.32.0.1", nullptr},
           {"192.168.1.1", "192.168.0.0/16"},
           {"100.64.0.1", "100.64.0.0/10"},
           {"100.128.0.1", nullptr},
           {"169.254.1.1", "169.254.0.0/16"},
           {"169.254.169.254", "169.254.169.254/32"},
           {"168.63.129.16", "168.63.129.16/32"},
           {"100.100.100.200", "100.100.100.200/32"},
           {"198.18.0.1", "198.18.0.0/15"},
           {"203.0.113.9", "203.0.113.0/24"},
           {"224.0.0.1", "224.0.0.0/4"},
           {"255.255.255.255", "240.0.0.0/4"},
           {"0.0.0.0", "0.0.0.0/8"},
           {"::", "::/128"},
           {"::1", "::1/128"},
           {"::127.0.0.1", "::/96"},
           {"::ffff:127.0.0.1", "127.0.0.0/8"},
           {"fd00:ec2::254", "fd00:ec2::254/128"},
           {"fd12::1", "fc00::/7"},
           {"fe80::1", "fe80::/10"},
           {"ff02::1", "ff00::/8"},
           {"2001:db8::1", "2001:db8::/32"},
           {"2001::1", "2001::/32"},
           {"2002:a00:1::", "2002:a00::/24"},
           {"2002:808:808::", nullptr},
           {"2002:a9fe:a9fe::1", "2002:a9fe:a9fe::1/128"},
           {"64:ff9b::10.0.0.1", "64:ff9b::a00:0/104"},
           {"64:ff9b::8.8.8.8", nullptr},
           {"64:ff9b:1::8.8.8.8", "64:ff9b:1::/48"},
       }) {
    const auto range = FindSpecialRange(*IpAddress::Parse(c.address), {});
    ASSERT_EQ(range.has_value(), c.range != nullptr) << c.address;
    if (range) EXPECT_EQ(range->range.ToString(), c.range) << c.address;
  }
}

// The prover asks about one address between two edges and takes the answer for all: it must change nowhere else. The address of
// a range is its own only where a metadata service is embedded, so ranges of one are compared by their name.
TEST(SpecialRange, ChangesAtItsEdgesAlone) {
  std::vector<IpAddress> edges = SpecialRangeEdges();
  edges.emplace_back();
  std::sort(edges.begin(), edges.end());
  const auto shown = [](const IpAddress& address) {
    const auto range = FindSpecialRange(address, {});
    if (!range) return std::string("public");
    return range->name + (range->range.length128() == 128 ? std::string() : " " + range->range.ToString());
  };
  std::mt19937 random(7);
  const auto at_or_below = [&](const IpAddress& address) {
    return *std::prev(std::upper_bound(edges.begin(), edges.end(), address));
  };
  for (const IpAddress& edge : edges) {
    for (int i = 0; i < 200; ++i) {
      // Near the edge, and anywhere with its first bytes.
      auto bytes = edge.bytes();
      for (size_t b = 4 + random() % 12; b < 16; ++b) bytes[b] = static_cast<uint8_t>(random());
      const IpAddress address = IpAddress::FromV6(bytes);
      EXPECT_EQ(shown(address), shown(at_or_below(address))) << address.ToString();
    }
  }
}

TEST(SpecialRange, CountsTheHostsOwnAddresses) {
  const IpAddress own[] = {*IpAddress::Parse("192.0.9.9"), *IpAddress::Parse("10.0.0.5")};
  EXPECT_EQ(FindSpecialRange(own[0], own)->range.ToString(), "192.0.9.9/32");
  EXPECT_EQ(FindSpecialRange(own[1], own)->range.ToString(), "10.0.0.5/32");
  EXPECT_EQ(FindSpecialRange(*IpAddress::Parse("64:ff9b::192.0.9.9"), own)->range.length128(), 128u);
  EXPECT_FALSE(FindSpecialRange(*IpAddress::Parse("192.0.9.10"), own));
}

}  // namespace
}  // namespace sluice::policy
