// How often the addresses of a host are listed, and that a new one is known at once: in a network of its own.
#include "app/host_watch.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/nft/in_namespace.h"

namespace sluice::app {
namespace {

using nft::Command;

IpAddress At(const char* text) { return *IpAddress::Parse(text); }

TEST(HostWatch, ListsTheAddressesAgainWhereOneHasChanged) {
  const std::string said = nft::InNewNamespace([] {
    int listed = 0;
    HostWatch watch([&listed] {
      ++listed;
      return HostAddresses();
    });
    std::string text;
    const auto look = [&](const char* address) {
      text += std::string(watch.Has(At(address)) ? "own" : "other") + std::to_string(listed) + " ";
    };
    text += Command("ip link set lo up");
    text += Command("ip address add 192.0.2.7/24 dev lo && ip address add 2001:db8::7/64 dev lo nodad");
    look("192.0.2.7");
    for (int i = 0; i < 100; ++i) (void)watch.Has(At("198.51.100.1"));
    look("198.51.100.1");
    text += Command("ip address add 198.51.100.1/24 dev lo");
    look("198.51.100.1");
    look("2001:db8::7");
    text += Command("ip -6 address del 2001:db8::7/64 dev lo");
    look("2001:db8::7");
    look("192.0.2.7");
    return text;
  });
  EXPECT_EQ(said, "own1 other1 own2 own2 other3 own3 ");
}

TEST(HostWatch, TakesEverybodyForItsOwnWhereNothingCanBeListed) {
  HostWatch watch([]() -> Result<std::vector<IpAddress>> { return Fail(Code::kIo, "no"); });
  EXPECT_TRUE(watch.Has(At("198.51.100.1")));
}

}  // namespace
}  // namespace sluice::app
