#include "dns/answer.h"

#include <gtest/gtest.h>

#include "dns/rdata.h"
#include "dns/svcb.h"
#include "tests/dns/make.h"

namespace sluice::dns {
namespace {

TargetVerdict AllowOnly(const std::string& name, std::optional<uint16_t> port) {
  if (port && *port != 443) return TargetVerdict::kForbidden;
  return name == "ok.test" || name == "a.test" ? TargetVerdict::kAllowed : TargetVerdict::kForbidden;
}

Record Https(std::string_view owner, const Svcb& svcb) {
  return {*Name::FromText(owner), Type::kHttps, kClassIn, 60, EncodeSvcb(svcb)};
}

TEST(AnswerTest, ADenialIsNxdomainWithAShortSoaAndTheReason) {
  const Message m = Denied(AskQuery("Evil.Test", Type::kA), "no rule names evil.test");
  EXPECT_EQ(m.header.rcode, Rcode::kNxDomain);
  EXPECT_TRUE(m.header.response);
  EXPECT_EQ(m.header.id, 0x1234);
  EXPECT_EQ(m.questions[0].name.ToText(), "Evil.Test");
  ASSERT_EQ(m.authority.size(), 1u);
  EXPECT_EQ(m.authority[0].owner.ToText(), "test");
  EXPECT_EQ(NegativeTtlOf(m.authority[0]), 5u);
  ASSERT_TRUE(m.edns && m.edns->error);
  EXPECT_EQ(m.edns->error->code, Ede::kBlocked);
  EXPECT_EQ(m.edns->error->text, "no rule names evil.test");
}

TEST(AnswerTest, WithoutEdnsThereIsNoOpt) {
  EXPECT_FALSE(Denied(AskQuery("evil.test", Type::kA, WithEdns::kNo), "why").edns);
  EXPECT_FALSE(WithAddresses(AskQuery("a.test", Type::kA, WithEdns::kNo), {}, 5).edns);
}

TEST(AnswerTest, TheExplanationIsPrintableAndBounded) {
  const Message m = Denied(AskQuery("evil.test", Type::kA), "a\x1b[31m\n" + std::string(1000, 'x'));
  EXPECT_EQ(m.edns->error->text.size(), kMaxEdeText);
  EXPECT_TRUE(m.edns->error->text.starts_with("a?[31m?x"));
}

TEST(AnswerTest, AnAncestorIsNodata) {
  const Message m = NoData(AskQuery("example.test", Type::kA), "only names below it are in the policy");
  EXPECT_EQ(m.header.rcode, Rcode::kNoError);
  EXPECT_TRUE(m.answers.empty());
  EXPECT_EQ(m.authority.size(), 1u);
  EXPECT_EQ(m.edns->error->code, Ede::kBlocked);
  EXPECT_FALSE(NoData(AskQuery("example.test", Type::kA), {}).edns->error) << "plain absence is no denial";
}

TEST(AnswerTest, AddressesAreOfTheAskedFamilyWithABoundedTtl) {
  const IpAddress both[] = {*IpAddress::Parse("198.18.0.1"), *IpAddress::Parse("fd00::1")};
  struct Case {
    Type type;
    uint32_t ttl;
    const char* address;
    uint32_t client_ttl;
  };
  for (const Case& c :
       {Case{Type::kA, 0, "198.18.0.1", 5}, Case{Type::kAaaa, 60, "fd00::1", 60}, Case{Type::kA, 86400, "198.18.0.1", 300}}) {
    const Message m = WithAddresses(AskQuery("A.test", c.type), both, c.ttl);
    ASSERT_EQ(m.answers.size(), 1u);
    EXPECT_EQ(AddressOf(m.answers[0])->ToString(), c.address);
    EXPECT_EQ(m.answers[0].ttl, c.client_ttl);
    EXPECT_EQ(m.answers[0].owner.ToText(), "A.test");
  }
  EXPECT_EQ(WithAddresses(AskQuery("a.test", Type::kAaaa), std::span(both, 1), 5).authority.size(), 1u) << "NODATA";
}

TEST(AnswerTest, AnyIsOneHinfo) {
  const Message m = MinimalAny(AskQuery("a.test", Type::kAny));
  ASSERT_EQ(m.answers.size(), 1u);
  EXPECT_EQ(m.answers[0].type, Type::kHinfo);
  EXPECT_TRUE(Decode(Encode(m)).has_value());
}

TEST(AnswerTest, RelayedRecordsStandUnderTheQuestionsName) {
  const Query query = AskQuery("a.test", Type::kTxt);
  Message upstream = AnswerTo(AskMessage("a.test", Type::kTxt), {Cname("a.test", "b.test")});
  upstream.answers.push_back({*Name::FromText("b.test"), Type::kTxt, kClassIn, 86400, "\x02hi"});
  upstream.answers.push_back({*Name::FromText("c.test"), Type::kTxt, kClassIn, 60, "\x02no"});
  upstream.answers.push_back(A("b.test", "10.0.0.1"));
  upstream.additional.push_back(A("x.test", "10.0.0.2"));
  const Message m = Relayed(query, upstream, AllowOnly);
  ASSERT_EQ(m.answers.size(), 1u);
  EXPECT_EQ(m.answers[0].owner.ToText(), "a.test");
  EXPECT_EQ(m.answers[0].rdata, "\x02hi");
  EXPECT_EQ(m.answers[0].ttl, 300u);
  EXPECT_TRUE(m.additional.empty()) << "no address comes in by the side door";
}

TEST(AnswerTest, HttpsRecordsLoseHintsAndKeepAnAllowedTarget) {
  const Query query = AskQuery("a.test", Type::kHttps);
  const Svcb own{1, Name(), {{1, "\x02h2"}, {4, "\x0a\0\0\1"}, {5, "ech"}}};
  const Svcb elsewhere{1, *Name::FromText("ok.test"), {}};
  const Svcb forbidden{0, *Name::FromText("evil.test"), {}};
  const Message upstream = AnswerTo(AskMessage("a.test", Type::kHttps),
                                    {Https("a.test", own), Https("a.test", elsewhere), Https("a.test", forbidden)});
  const Message m = Relayed(query, upstream, AllowOnly);
  ASSERT_EQ(m.answers.size(), 2u);
  const auto first = ParseSvcb(Octets(m.answers[0].rdata));
  ASSERT_EQ(first->params.size(), 1u);
  EXPECT_EQ(first->params[0].key, 1);
  EXPECT_EQ(ParseSvcb(Octets(m.answers[1].rdata))->target.ToText(), "ok.test");
}

TEST(AnswerTest, AServicePortMustBeOneThatThePolicyAllows) {
  const std::string allowed("\x01\xbb", 2);
  const std::string other("\x20\xfb", 2);
  const Message upstream =
      AnswerTo(AskMessage("a.test", Type::kHttps),
               {Https("a.test", Svcb{1, Name(), {{3, allowed}}}), Https("a.test", Svcb{1, Name(), {{3, other}}}),
                Https("a.test", Svcb{1, *Name::FromText("ok.test"), {{3, other}}})});
  const Message m = Relayed(AskQuery("a.test", Type::kHttps), upstream, AllowOnly);
  ASSERT_EQ(m.answers.size(), 1u);
  EXPECT_EQ(PortOf(*ParseSvcb(Octets(m.answers[0].rdata))), 443);
}

TEST(AnswerTest, ADenialMayBeARefusal) {
  const Message m = Refused(AskQuery("a.test", Type::kA), "no");
  EXPECT_EQ(m.header.rcode, Rcode::kRefused);
  EXPECT_TRUE(m.authority.empty());
  EXPECT_EQ(m.edns->error->code, Ede::kBlocked);
}

TEST(AnswerTest, AnHttpsAliasOutsideThePolicyIsNodata) {
  const Message upstream =
      AnswerTo(AskMessage("a.test", Type::kHttps), {Https("a.test", Svcb{0, *Name::FromText("evil.test"), {}})});
  const Message m = Relayed(AskQuery("a.test", Type::kHttps), upstream, AllowOnly);
  EXPECT_EQ(m.header.rcode, Rcode::kNoError);
  EXPECT_TRUE(m.answers.empty());
  EXPECT_EQ(m.authority.size(), 1u);
}

}  // namespace
}  // namespace sluice::dns
