// The fence's rules as values, and what nft(8) and the kernel make of them.

#include "supervisor/fence_ruleset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "nft/io/session.h"
#include "tests/nft/in_namespace.h"

namespace sluice::supervisor {
namespace {

using testing::HasSubstr;

Cidr Prefix(const char* text) { return Cidr::Parse(text).value(); }

FencePlan Plan() {
  FencePlan plan{.seal = {0x12345678, 0x22334455}, .passage = {0x0a0b0c0d, 0x01020304}, .proxy_port = 15001, .dns_port = 15053};
  plan.allow = {{Prefix("10.9.0.0/16"), nft::Protocol::kTcp, 443, 443},
                {Prefix("10.0.0.0/8"), nft::Protocol::kTcp, 1, 1000},
                {Prefix("10.0.0.0/8"), nft::Protocol::kUdp, 123, 123},
                {Prefix("2001:db8::/32"), nft::Protocol::kTcp, 443, 8443}};
  plan.devices = {"eth0"};
  return plan;
}

constexpr const char* kDevice = "/usr/sbin/ip link add eth0 type veth peer name peer0 2>&1;";

// What nft(8) reads from the text, and what the bytes install, must list the same; and what is read back is what was planned.
void ExpectSame(const FencePlan& plan) {
  const std::vector<nft::Table> tables = FenceRuleset(plan);
  std::string text;
  for (const nft::Table& table : tables) text += nft::ToText(table);
  const std::string from_text = nft::InNewNamespace([&] {
    return nft::Command(std::string(kDevice) + "/usr/sbin/nft -f - 2>&1 <<'END'\n" + text + "END\n") + nft::Command(nft::kList);
  });
  const std::string from_bytes = nft::InNewNamespace([&]() -> std::string {
    nft::Command(kDevice);
    auto session = nft::Session::Open();
    if (!session) return session.error().message;
    nft::BatchBuilder builder((*session)->NextSequence());
    for (const nft::Table& table : tables) {
      builder.CreateTable(table, nft::Existing::kRefuse);
      if (auto filled = builder.Fill(table); !filled) return filled.error().message;
    }
    const auto batch = builder.Finish();
    if (!batch) return batch.error().message;
    if (auto committed = (*session)->Commit(*batch); !committed) return committed.error().message;
    for (const nft::Table& table : tables) {
      const auto found = (*session)->Read(table);
      if (!found) return found.error().message;
      if (const std::string difference = nft::Difference(nft::Plan(table), *found); !difference.empty()) return difference;
      if (found->Hash() != nft::Plan(table).Hash()) return "another hash";
    }
    return nft::Command(nft::kList);
  });
  EXPECT_THAT(from_text, HasSubstr("table inet sluice"));
  EXPECT_EQ(from_bytes, from_text) << text;
}

TEST(FenceRuleset, IsWhatNftReadsFromItsText) { ExpectSame(Plan()); }

TEST(FenceRuleset, ClosedIsToo) { ExpectSame(ClosedPlan(Plan())); }

TEST(FenceRuleset, BehindAVethIsToo) {
  FencePlan plan = Plan();
  plan.layout = FenceLayout::kBehind;
  plan.downlink = {"eth0", {*IpAddress::Parse("10.200.0.2"), *IpAddress::Parse("fd00::2")}};
  ExpectSame(plan);
  const std::string text = nft::ToText(FenceRuleset(plan).front());
  EXPECT_THAT(text, HasSubstr("iifname \"eth0\" ip saddr 10.200.0.2 accept"));
  EXPECT_THAT(text, HasSubstr("iifname \"eth0\" meta l4proto tcp redirect to :15001"));
  EXPECT_THAT(text, HasSubstr("oifname \"eth0\" counter drop"));
}

TEST(FenceRuleset, ClosedHasNoWayThrough) {
  const std::string text = nft::ToText(FenceRuleset(ClosedPlan(Plan())).front());
  EXPECT_THAT(text, testing::Not(HasSubstr("redirect to")));
  EXPECT_THAT(text, testing::Not(HasSubstr("10.9.0.0")));
  EXPECT_THAT(text, HasSubstr("hook output priority 10; policy drop;"));
}

TEST(FenceRuleset, AGenerationIsNeverZeroAndStaysInItsBits) {
  FencePlan plan = Plan();
  for (const uint32_t mask : {0xff000000U, 0x0000f000U, 0xffffffffU}) {
    plan.mark_mask = mask;
    for (const uint32_t generation : {0U, 1U, 254U, 255U, 4000000000U}) {
      plan.generation = generation;
      EXPECT_NE(GenerationMark(plan), 0U);
      EXPECT_EQ(GenerationMark(plan) & ~mask, 0U);
    }
    plan.generation = 7;
    const uint32_t seven = GenerationMark(plan);
    plan.generation = 8;
    EXPECT_NE(GenerationMark(plan), seven);
  }
}

TEST(FenceRuleset, DevicesOfLikeNamesHaveChainsOfTheirOwn) {
  FencePlan plan = Plan();
  plan.devices = {"eth0.1", "eth0-1", "eth0_1"};
  EXPECT_THAT(DeviceChains(plan), testing::ElementsAre("on_eth0_1", "on_eth0_1_", "on_eth0_1__"));
}

TEST(FenceRuleset, StaticAllowsEndAtDeny) {
  FencePlan plan = Plan();
  EXPECT_TRUE(StaticallyAllowed(plan, {*IpAddress::Parse("10.9.1.1"), nft::Protocol::kTcp, 443}));
  EXPECT_FALSE(StaticallyAllowed(plan, {*IpAddress::Parse("10.9.1.1"), nft::Protocol::kTcp, 1001}));
  EXPECT_FALSE(StaticallyAllowed(plan, {*IpAddress::Parse("10.9.1.1"), nft::Protocol::kUdp, 443}));
  plan.deny.push_back(Prefix("10.9.1.0/24"));
  EXPECT_FALSE(StaticallyAllowed(plan, {*IpAddress::Parse("10.9.1.1"), nft::Protocol::kTcp, 443}));
}

TEST(FenceRuleset, ManyQuestionsGetTheAnswersOfOne) {
  std::mt19937 random(20261130);
  size_t allowed = 0;
  for (int round = 0; round < 300; ++round) {
    FencePlan plan = Plan();
    plan.allow.clear();
    const auto v4 = [&] { return IpAddress::FromV4(0x0a000000 + random() % 32); };
    const auto v6 = [&] {
      auto bytes = IpAddress::Parse("2001:db8::")->bytes();
      bytes[15] = static_cast<uint8_t>(random() % 32);
      return IpAddress::FromV6(bytes);
    };
    const auto protocol = [&] { return random() % 2 == 0 ? nft::Protocol::kTcp : nft::Protocol::kUdp; };
    for (unsigned i = 0; i < 1 + random() % 6; ++i) {
      const auto from = static_cast<uint16_t>(random() % 20);
      const bool wide = random() % 2 == 0;
      plan.allow.push_back({wide ? Cidr::Of(v4(), static_cast<unsigned>(27 + random() % 6))
                                 : Cidr::Of(v6(), static_cast<unsigned>(123 + random() % 6)),
                            protocol(), from, static_cast<uint16_t>(from + random() % 10)});
    }
    if (round % 3 == 0) plan.deny.push_back(Prefix("10.0.0.4/30"));
    const StaticAllows statics(plan);
    for (int question = 0; question < 200; ++question) {
      const FenceElement element{question % 2 == 0 ? v4() : v6(), protocol(), static_cast<uint16_t>(random() % 32)};
      const bool one = StaticallyAllowed(plan, element);
      allowed += one ? 1 : 0;
      ASSERT_EQ(statics.Contain(element), one) << round;
    }
  }
  EXPECT_GT(allowed, 1000U);
}

TEST(FenceRuleset, AStaticSetIsBounded) {
  for (const char* first : {"10.0.0.0", "2001:db8::"}) {
    const IpAddress base = *IpAddress::Parse(first);
    FencePlan plan = Plan();
    plan.allow.clear();
    for (size_t i = 0; i < kFenceStaticElements; ++i) {
      // No two touch, so that they stay that many.
      auto bytes = base.bytes();
      bytes[15] = static_cast<uint8_t>(2 * i);
      bytes[14] = static_cast<uint8_t>(2 * i >> 8);
      bytes[13] = static_cast<uint8_t>(2 * i >> 16);
      plan.allow.push_back({Cidr::Of(IpAddress::FromV6(bytes), base.is_v4() ? 32 : 128), nft::Protocol::kTcp, 443, 443});
    }
    EXPECT_TRUE(CheckedFenceRuleset(plan)) << first;
    plan.allow.push_back({Prefix(base.is_v4() ? "192.0.2.0/24" : "2001:db9::/32"), nft::Protocol::kTcp, 443, 443});
    const auto refused = CheckedFenceRuleset(plan);
    ASSERT_FALSE(refused) << first;
    EXPECT_EQ(refused.error().code, Code::kExhausted);
    EXPECT_THAT(refused.error().message, HasSubstr("more than 65536 entries"));
    EXPECT_THAT(nft::ToText(FenceRuleset(plan).front()), testing::Not(HasSubstr("443"))) << "nothing instead";
  }
}

}  // namespace
}  // namespace sluice::supervisor
