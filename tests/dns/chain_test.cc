#include "dns/chain.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/dns/make.h"

namespace sluice::dns {
namespace {

const Question kAsked{*Name::FromText("a.test"), Type::kA, kClassIn};

Message Answer(std::vector<Record> records) { return AnswerTo(AskMessage("a.test", Type::kA), std::move(records)); }

TEST(ChainTest, AddressesAtTheEndOfTheChainCount) {
  const auto read = ReadAddresses(Answer({A("d.test", "192.0.2.4", 30), Cname("a.test", "B.test", 50),
                                          Cname("c.test", "d.test", 90), Cname("b.test", "c.test", 20)}),
                                  kAsked);
  ASSERT_TRUE(read);
  ASSERT_EQ(read->addresses.size(), 1u);
  EXPECT_EQ(read->addresses[0].ToString(), "192.0.2.4");
  EXPECT_EQ(read->ttl, 20u);
  EXPECT_EQ(read->targets, (std::vector<std::string>{"b.test", "c.test", "d.test"}));
}

TEST(ChainTest, AddressesOffTheChainAreDropped) {
  const auto read = ReadAddresses(Answer({A("evil.test", "192.0.2.66"), A("a.test", "192.0.2.1")}), kAsked);
  ASSERT_TRUE(read);
  ASSERT_EQ(read->addresses.size(), 1u);
  EXPECT_EQ(read->addresses[0].ToString(), "192.0.2.1");
  EXPECT_TRUE(ReadAddresses(Answer({Cname("a.test", "b.test"), A("a.test", "192.0.2.1")}), kAsked)->addresses.empty())
      << "an alias has no addresses of its own";
}

TEST(ChainTest, TwelveHopsAreWalkedAndThirteenAreNot) {
  std::vector<Record> records = {Cname("a.test", "h1.test")};
  for (int i = 1; i < 12; ++i) records.push_back(Cname("h" + std::to_string(i) + ".test", "h" + std::to_string(i + 1) + ".test"));
  records.push_back(A("h12.test", "192.0.2.1"));
  EXPECT_EQ(ReadAddresses(Answer(records), kAsked)->addresses.size(), 1u);
  records.back() = Cname("h12.test", "h13.test");
  EXPECT_FALSE(ReadAddresses(Answer(records), kAsked));
}

TEST(ChainTest, ALoopIsAFailure) {
  EXPECT_FALSE(ReadAddresses(Answer({Cname("a.test", "b.test"), Cname("b.test", "a.test")}), kAsked));
  EXPECT_FALSE(ReadAddresses(Answer({Cname("a.test", "a.test")}), kAsked));
}

TEST(ChainTest, AbsenceLivesAsLongAsItsSoaSaysAndNoLonger) {
  Message message = Answer({});
  EXPECT_EQ(ReadAddresses(message, kAsked)->ttl, 0u) << "no SOA, not kept";
  message.authority.push_back(SoaRecord(*Name::FromText("test"), Name(), Name(), 100));
  EXPECT_EQ(ReadAddresses(message, kAsked)->ttl, 100u);
  message.authority[0] = SoaRecord(*Name::FromText("test"), Name(), Name(), 86400);
  EXPECT_EQ(ReadAddresses(message, kAsked)->ttl, 300u);
  message.header.rcode = Rcode::kNxDomain;
  EXPECT_TRUE(ReadAddresses(message, kAsked)->no_such_name);
  message.header.rcode = Rcode::kServFail;
  EXPECT_FALSE(ReadAddresses(message, kAsked));
}

TEST(ChainTest, OnlyAnAnswerToThisVeryQuestionMatches) {
  const Message good = Answer({});
  const uint16_t id = good.header.id;
  EXPECT_EQ(MatchResponse(good, id, kAsked), Match::kYes);
  struct Case {
    const char* what;
    std::function<void(Message*)> change;
    Match match;
  };
  const Case cases[] = {
      {"another id", [](Message* m) { m->header.id ^= 1; }, Match::kNo},
      {"a query", [](Message* m) { m->header.response = false; }, Match::kNo},
      {"another opcode", [](Message* m) { m->header.opcode = 5; }, Match::kNo},
      {"no question", [](Message* m) { m->questions.clear(); }, Match::kNo},
      {"two questions", [](Message* m) { m->questions.push_back(m->questions[0]); }, Match::kNo},
      {"another type", [](Message* m) { m->questions[0].type = Type::kAaaa; }, Match::kNo},
      {"another class", [](Message* m) { m->questions[0].klass = 3; }, Match::kNo},
      {"another name", [](Message* m) { m->questions[0].name = *Name::FromText("b.test"); }, Match::kNo},
      {"another case", [](Message* m) { m->questions[0].name = *Name::FromText("A.test"); }, Match::kOtherCase},
  };
  for (const Case& c : cases) {
    Message message = good;
    c.change(&message);
    EXPECT_EQ(MatchResponse(message, id, kAsked), c.match) << c.what;
  }
}

}  // namespace
}  // namespace sluice::dns
