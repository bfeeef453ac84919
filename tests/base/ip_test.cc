#include "base/ip.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace sluice {
namespace {

TEST(IpAddress, ParsesOnlyCanonicalSpellings) {
  for (const char* good : {"1.2.3.4", "0.0.0.0", "255.255.255.255", "::1", "2001:db8::1", "::ffff:1.2.3.4"})
    EXPECT_TRUE(IpAddress::Parse(good)) << good;
  for (const char* bad : {"", "1.2.3", "1.2.3.4.5", "01.2.3.4", "0x7f.0.0.1", "127.1", "2130706433", "1.2.3.256", "[::1]",
                          "fe80::1%lo", "1.2.3.4 ", " 1.2.3.4", ":::", "1::2::3", "g::1"})
    EXPECT_FALSE(IpAddress::Parse(bad)) << bad;
}

TEST(IpAddress, FoldsMappedFormIntoIpv4) {
  EXPECT_EQ(IpAddress::Parse("::ffff:10.0.0.1"), IpAddress::Parse("10.0.0.1"));
  EXPECT_TRUE(IpAddress::Parse("::ffff:10.0.0.1")->is_v4());
  EXPECT_EQ(IpAddress::Parse("::ffff:10.0.0.1")->ToString(), "10.0.0.1");
}

TEST(IpAddress, PrintsRfc5952) { EXPECT_EQ(IpAddress::Parse("2001:DB8:0:0:0:0:0:1")->ToString(), "2001:db8::1"); }

TEST(Cidr, RefusesHostBitsAndOddLengths) {
  for (const char* good : {"10.0.0.0/8", "10.1.2.3", "0.0.0.0/0", "::/0", "fd00::/8", "10.1.2.3/32"})
    EXPECT_TRUE(Cidr::Parse(good)) << good;
  for (const char* bad : {"10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/08", "10.0.0.0/", "10.0.0.0/-1", "fd00::1/8", "::/129", "/8"})
    EXPECT_FALSE(Cidr::Parse(bad)) << bad;
}

TEST(Cidr, ContainsAddressesOfItsOwnFamilyOnly) {
  const Cidr all_v4 = *Cidr::Parse("0.0.0.0/0");
  EXPECT_TRUE(all_v4.Contains(*IpAddress::Parse("8.8.8.8")));
  EXPECT_FALSE(all_v4.Contains(*IpAddress::Parse("2001:db8::1")));
  EXPECT_TRUE(Cidr::Parse("10.0.0.0/8")->Contains(*Cidr::Parse("10.200.0.0/16")));
  EXPECT_FALSE(Cidr::Parse("10.200.0.0/16")->Contains(*Cidr::Parse("10.0.0.0/8")));
  EXPECT_EQ(all_v4.ToString(), "0.0.0.0/0");
}

TEST(Endpoint, SurvivesSockaddrsOfBothFamilies) {
  for (const char* text : {"1.2.3.4", "2001:db8::7"}) {
    const Endpoint endpoint{*IpAddress::Parse(text), 443};
    sockaddr_storage storage{};
    const size_t length = endpoint.ToSockaddr(&storage);
    EXPECT_EQ(Endpoint::FromSockaddr(reinterpret_cast<sockaddr*>(&storage), length), endpoint);
    const size_t length6 = endpoint.ToSockaddr6(&storage);
    EXPECT_EQ(storage.ss_family, AF_INET6);
    EXPECT_EQ(Endpoint::FromSockaddr(reinterpret_cast<sockaddr*>(&storage), length6), endpoint);
  }
}

TEST(Endpoint, RefusesTruncatedSockaddrs) {
  sockaddr_storage storage{};
  const size_t length = Endpoint{*IpAddress::Parse("1.2.3.4"), 1}.ToSockaddr(&storage);
  for (size_t n = 0; n < length; ++n) EXPECT_FALSE(Endpoint::FromSockaddr(reinterpret_cast<sockaddr*>(&storage), n)) << n;
}

}  // namespace
}  // namespace sluice
