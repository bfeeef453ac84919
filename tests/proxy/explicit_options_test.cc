#include "proxy/io/explicit_options.h"

#include <gtest/gtest.h>

#include <optional>

namespace sluice::proxy {
namespace {

Endpoint At(const char* address, uint16_t port) { return {*IpAddress::Parse(address), port}; }

TEST(IsOwn, KnowsTheListenerByEachOfItsAddresses) {
  const std::vector<IpAddress> host{*IpAddress::Parse("192.0.2.1"), *IpAddress::Parse("2001:db8::1")};
  const std::vector<Endpoint> loopback{At("127.0.0.1", 3128)};
  EXPECT_TRUE(IsOwn(loopback, host, At("127.0.0.1", 3128)));
  EXPECT_TRUE(IsOwn(loopback, host, At("::ffff:127.0.0.1", 3128)));
  EXPECT_TRUE(IsOwn(loopback, host, At("0.0.0.0", 3128)));
  EXPECT_TRUE(IsOwn(loopback, host, At("::", 3128)));
  EXPECT_FALSE(IsOwn(loopback, host, At("127.0.0.1", 3129)));
  EXPECT_FALSE(IsOwn(loopback, host, At("127.0.0.2", 3128)));
  EXPECT_FALSE(IsOwn(loopback, host, At("192.0.2.1", 3128)));
  const std::vector<Endpoint> everywhere{At("0.0.0.0", 3128)};
  for (const char* address : {"127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "192.0.2.1", "2001:db8::1"})
    EXPECT_TRUE(IsOwn(everywhere, host, At(address, 3128))) << address;
  EXPECT_FALSE(IsOwn(everywhere, host, At("192.0.2.2", 3128)));
  EXPECT_FALSE(IsOwn({}, host, At("127.0.0.1", 3128)));
}

TEST(ClientCounts, BoundsTheConnectionsOfOneAddress) {
  ClientCounts counts;
  const IpAddress a = *IpAddress::Parse("192.0.2.1");
  std::vector<ClientCounts::Place> places(kMaxClientConnections);
  for (ClientCounts::Place& place : places) ASSERT_TRUE(counts.Enter(a, &place));
  ClientCounts::Place one_more;
  EXPECT_FALSE(counts.Enter(a, &one_more));
  EXPECT_TRUE(counts.Enter(*IpAddress::Parse("192.0.2.2"), &one_more));
  places.pop_back();
  ClientCounts::Place again;
  EXPECT_TRUE(counts.Enter(a, &again));
}

}  // namespace
}  // namespace sluice::proxy
