#include "dns/upstream_server.h"

#include <gtest/gtest.h>

namespace sluice::dns {
namespace {

TEST(UpstreamServerTest, TakesAddressesWithAndWithoutPort) {
  EXPECT_EQ(ParseUpstreamServer("1.1.1.1")->ToString(), "1.1.1.1:53");
  EXPECT_EQ(ParseUpstreamServer("1.1.1.1:5353")->ToString(), "1.1.1.1:5353");
  EXPECT_EQ(ParseUpstreamServer("2606::1")->ToString(), "[2606::1]:53");
  EXPECT_EQ(ParseUpstreamServer("[2606::1]")->ToString(), "[2606::1]:53");
  EXPECT_EQ(ParseUpstreamServer("[2606::1]:5353")->ToString(), "[2606::1]:5353");
}

TEST(UpstreamServerTest, TakesTlsWithAndWithoutAName) {
  EXPECT_EQ(ParseUpstreamServer("tls://1.1.1.1")->ToString(), "tls://1.1.1.1:853");
  EXPECT_EQ(ParseUpstreamServer("tls://1.1.1.1:8853#One.One.One.One")->ToString(), "tls://1.1.1.1:8853#one.one.one.one");
  EXPECT_EQ(ParseUpstreamServer("tls://[2606::1]#dns.test")->ToString(), "tls://[2606::1]:853#dns.test");
  EXPECT_EQ(ParseUpstreamServer("tls://2606::1")->endpoint.port, kTlsPort);
}

TEST(UpstreamServerTest, RefusesNamesAndBadPorts) {
  for (const char* bad : {"", "dns.example", "1.1.1.1:", "1.1.1.1:0", "1.1.1.1:70000", "1.1.1.1:5x", ":53", "[2606::1", "[]:53",
                          "1.1.1", "[1.1.1.1", "1.1.1.1#a.test", "tls://", "tls://a.test", "tls://1.1.1.1#", "tls://1.1.1.1#a b",
                          "https://1.1.1.1", "tls://1.1.1.1#1.1.1.1"})
    EXPECT_FALSE(ParseUpstreamServer(bad)) << bad;
}

TEST(UpstreamServerTest, TakesDomainsWithServersOfTheirOwn) {
  const auto stub = ParseStubDomain("Cluster.Local.=10.96.0.10,tls://10.96.0.11#dns.test");
  ASSERT_TRUE(stub);
  EXPECT_EQ(stub->domain, "cluster.local");
  ASSERT_EQ(stub->servers.size(), 2u);
  EXPECT_EQ(stub->servers[1].ToString(), "tls://10.96.0.11:853#dns.test");
  for (const char* bad :
       {"cluster.local", "=10.96.0.10", "cluster.local=", "cluster.local=10.96.0.10,", "a b=10.96.0.10", "a..b=10.96.0.10"})
    EXPECT_FALSE(ParseStubDomain(bad)) << bad;
  std::string many = "a.test=192.0.2.1";
  for (int i = 0; i < 8; ++i) many += ",192.0.2.1";
  EXPECT_FALSE(ParseStubDomain(many));
}

}  // namespace
}  // namespace sluice::dns
