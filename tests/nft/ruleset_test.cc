#include "nft/ruleset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nft/encode.h"

namespace sluice::nft {
namespace {

using testing::HasSubstr;

Cidr Prefix(const char* text) { return Cidr::Parse(text).value(); }

Table Wrap(std::vector<Rule> rules) {
  return {Family::kInet, "t", {{"c", Hook::kPrerouting, -150, Policy::kAccept, std::move(rules)}}};
}

TEST(Ruleset, PrintsEachExpressionAsNftDoes) {
  const std::vector<std::pair<Rule, std::string>> cases = {
      {{DestinationIn{Prefix("127.0.0.0/8")}, Verdict::kAccept}, "ip daddr 127.0.0.0/8 accept"},
      {{DestinationIn{Prefix("192.0.0.8")}, Verdict::kDrop}, "ip daddr 192.0.0.8 drop"},
      {{DestinationIn{Prefix("::1")}, Verdict::kAccept}, "ip6 daddr ::1 accept"},
      {{DestinationIn{Prefix("fd00::/8")}, Verdict::kAccept}, "ip6 daddr fd00::/8 accept"},
      {{DestinationPort{Protocol::kUdp, 53}, Verdict::kAccept}, "udp dport 53 accept"},
      {{OpensTcp{}, Reject::kTcpReset}, "tcp flags & (syn | ack) == syn reject with tcp reset"},
      {{ProtocolIs{Protocol::kTcp}, SocketIsTransparent{}, Verdict::kAccept}, "meta l4proto tcp socket transparent 1 accept"},
      {{ProtocolIs{Protocol::kTcp}, TproxyTo{801}, Verdict::kAccept}, "meta l4proto tcp tproxy to :801 accept"},
      {{IcmpUnreachable{Protocol::kIcmp6}, Verdict::kAccept}, "icmpv6 type destination-unreachable accept"},
      {{Reject::kAdminProhibited}, "reject with icmpx type admin-prohibited"},
  };
  for (const auto& [rule, text] : cases) EXPECT_EQ(ToText(rule), text);
}

TEST(Ruleset, RefusesRulesThatMeanNothing) {
  for (const Rule& rule : std::vector<Rule>{{},
                                            {DestinationPort{Protocol::kIcmp, 1}, Verdict::kAccept},
                                            {IcmpUnreachable{Protocol::kTcp}, Verdict::kAccept},
                                            {Verdict::kAccept, ProtocolIs{Protocol::kTcp}},
                                            {Reject::kTcpReset, Verdict::kAccept}}) {
    const auto batch = EncodeAdd(Wrap({rule}), 1);
    ASSERT_FALSE(batch.has_value()) << ToText(rule);
    EXPECT_EQ(batch.error().code, Code::kInvalid);
  }
}

TEST(Ruleset, NamesTheObjectOfEachMessage) {
  const auto batch = EncodeAdd(Wrap({{DestinationPort{Protocol::kTcp, 1}, Verdict::kDrop}, {Verdict::kAccept}}), 7);
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->first_sequence, 7U);
  EXPECT_THAT(batch->objects, testing::ElementsAre("table t", "chain t c", "rule t c: tcp dport 1 drop", "rule t c: accept"));
  EXPECT_EQ(batch->acknowledged, 11U) << "the last rule asks for the answer";
  EXPECT_EQ(EncodeAdd(Wrap({{Verdict::kAccept}}), 1)->bytes, EncodeAdd(Wrap({{Verdict::kAccept}}), 1)->bytes);
}

TEST(Ruleset, ABatchIsBounded) {
  const std::vector<Rule> many(2000, Rule{DestinationIn{Prefix("10.0.0.0/8")}, Verdict::kAccept});
  const auto batch = EncodeAdd(Wrap(many), 1);
  ASSERT_FALSE(batch.has_value());
  EXPECT_EQ(batch.error().code, Code::kExhausted);
}

}  // namespace
}  // namespace sluice::nft
