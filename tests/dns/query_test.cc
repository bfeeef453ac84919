#include "dns/query.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/dns/make.h"

namespace sluice::dns {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes Wire(const std::function<void(Message*)>& change) {
  Message message = AskMessage("a.test", Type::kA);
  change(&message);
  return Encode(message);
}

TEST(QueryTest, AWellFormedQuestionIsRead) {
  const auto read = ReadQuery(Wire([](Message* m) { m->questions[0].name = *Name::FromText("A.Test"); }));
  const auto* query = std::get_if<Query>(&read);
  ASSERT_NE(query, nullptr);
  EXPECT_EQ(query->name, "a.test");
  EXPECT_EQ(query->question.name.ToText(), "A.Test") << "the client's spelling is kept for the answer";
  EXPECT_TRUE(query->host_name);
}

TEST(QueryTest, NamesThatNoPolicyCanNameAreMarked) {
  const auto read = ReadQuery(Wire([](Message* m) { m->questions[0].name = *Name::FromText("a b.test"); }));
  EXPECT_FALSE(std::get<Query>(read).host_name);
  EXPECT_EQ(std::get<Query>(read).name, "a\\032b.test");
  // A dot inside a label must not read as two labels of an allowed name.
  Bytes dotted = {0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 6, 'a', '.', 't', 'e', 's', 't', 0, 0, 1, 0, 1};
  EXPECT_FALSE(std::get<Query>(ReadQuery(dotted)).host_name);
}

TEST(QueryTest, ShortMessagesAndResponsesAreMetWithSilence) {
  EXPECT_TRUE(std::holds_alternative<Silence>(ReadQuery(Bytes(5))));
  EXPECT_TRUE(std::holds_alternative<Silence>(ReadQuery(Bytes{})));
  EXPECT_TRUE(std::holds_alternative<Silence>(ReadQuery(Wire([](Message* m) { m->header.response = true; }))));
}

TEST(QueryTest, FaultsAreAnsweredByCode) {
  Bytes self_pointing = {0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1};
  Bytes trailing = Wire([](Message*) {});
  trailing.push_back(0);
  Bytes two_opt = Wire([](Message* m) { m->edns.emplace(); });
  two_opt.insert(two_opt.end(), two_opt.end() - 11, two_opt.end());
  two_opt[11] = 2;
  struct Case {
    const char* what;
    Bytes wire;
    Rcode rcode;
  };
  const Case cases[] = {
      {"no question", Wire([](Message* m) { m->questions.clear(); }), Rcode::kFormErr},
      {"two questions", Wire([](Message* m) { m->questions.push_back(m->questions[0]); }), Rcode::kFormErr},
      {"a name that points at itself", self_pointing, Rcode::kFormErr},
      {"trailing octets", trailing, Rcode::kFormErr},
      {"two OPT", two_opt, Rcode::kFormErr},
      {"an answer in a query", Wire([](Message* m) { m->answers.push_back(A("a.test", "192.0.2.1")); }), Rcode::kFormErr},
      {"TC in a query", Wire([](Message* m) { m->header.truncated = true; }), Rcode::kFormErr},
      {"EDNS 1", Wire([](Message* m) { m->edns = Edns{.version = 1}; }), Rcode::kBadVers},
      {"opcode NOTIFY", Wire([](Message* m) { m->header.opcode = 4; }), Rcode::kNotImp},
      {"class CH", Wire([](Message* m) { m->questions[0].klass = 3; }), Rcode::kRefused},
      {"AXFR", Wire([](Message* m) { m->questions[0].type = Type::kAxfr; }), Rcode::kRefused},
      {"IXFR", Wire([](Message* m) { m->questions[0].type = Type::kIxfr; }), Rcode::kRefused},
  };
  for (const Case& c : cases) {
    const auto read = ReadQuery(c.wire);
    const auto* refusal = std::get_if<Refusal>(&read);
    ASSERT_NE(refusal, nullptr) << c.what;
    EXPECT_EQ(refusal->response.header.rcode, c.rcode) << c.what;
    const auto decoded = Decode(Encode(refusal->response));
    ASSERT_TRUE(decoded.has_value()) << c.what;
    EXPECT_TRUE(decoded->header.response) << c.what;
    EXPECT_EQ(decoded->header.rcode, c.rcode) << c.what;
    EXPECT_EQ(decoded->header.id, static_cast<uint16_t>(c.wire[0] << 8 | c.wire[1])) << c.what;
  }
}

TEST(QueryTest, TheClientsSizeIsKeptWithinBounds) {
  EXPECT_EQ(UdpLimit(std::nullopt), 512u);
  EXPECT_EQ(UdpLimit(Edns{.udp_octets = 100}), 512u);
  EXPECT_EQ(UdpLimit(Edns{.udp_octets = 900}), 900u);
  EXPECT_EQ(UdpLimit(Edns{.udp_octets = 4096}), 1232u);
}

}  // namespace
}  // namespace sluice::dns
