#include <gtest/gtest.h>

#include "app/host.h"

namespace sluice::app {
namespace {

TEST(ParseResolver, TakesAddressesWithAndWithoutPort) {
  EXPECT_EQ(ParseResolver("1.1.1.1")->ToString(), "1.1.1.1:53");
  EXPECT_EQ(ParseResolver("1.1.1.1:5353")->ToString(), "1.1.1.1:5353");
  EXPECT_EQ(ParseResolver("2606::1")->ToString(), "[2606::1]:53");
  EXPECT_EQ(ParseResolver("[2606::1]")->ToString(), "[2606::1]:53");
  EXPECT_EQ(ParseResolver("[2606::1]:5353")->ToString(), "[2606::1]:5353");
}

TEST(ParseResolver, RefusesNamesAndBadPorts) {
  for (const char* bad :
       {"", "dns.example", "1.1.1.1:", "1.1.1.1:0", "1.1.1.1:70000", "1.1.1.1:5x", ":53", "[2606::1", "[]:53", "1.1.1"})
    EXPECT_FALSE(ParseResolver(bad)) << bad;
}

}  // namespace
}  // namespace sluice::app
