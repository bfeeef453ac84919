#include "dns/message.h"

#include <gtest/gtest.h>

#include <random>

#include "dns/rdata.h"
#include "tests/dns/make.h"

namespace sluice::dns {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes Header(uint16_t questions, uint16_t answers, uint16_t authority, uint16_t additional) {
  Bytes out = {0x12, 0x34, 0x81, 0x80};
  for (const uint16_t count : {questions, answers, authority, additional}) {
    out.push_back(static_cast<uint8_t>(count >> 8));
    out.push_back(static_cast<uint8_t>(count & 0xff));
  }
  return out;
}

Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

const Bytes kQuestion = {1, 'a', 4, 't', 'e', 's', 't', 0, 0, 1, 0, 1};

TEST(MessageTest, EveryUnderstoodTypeSurvivesEncodingAndDecoding) {
  Message message = AnswerTo(AskMessage("Api.Example.test", Type::kA), {});
  message.header.checking_disabled = true;
  message.answers = {A("Api.Example.test", "192.0.2.1"), A("api.example.test", "2001:db8::1"), Cname("example.test", "b.test")};
  std::string mx("\0\x0a", 2);
  mx += Name::FromText("mail.test")->wire();
  message.answers.push_back({*Name::FromText("example.test"), Type::kMx, kClassIn, 30, mx});
  message.answers.push_back({*Name::FromText("example.test"), Type::kTxt, kClassIn, 30,
                             std::string("\x03"
                                         "abc\x00",
                                         5)});
  message.authority.push_back(SoaRecord(*Name::FromText("test"), *Name::FromText("ns.test"), *Name::FromText("root.test"), 300));
  message.edns = Edns{.udp_octets = 1232, .dnssec_ok = true, .error = ExtendedError{Ede::kBlocked, "no"}};
  message.header.rcode = Rcode::kBadVers;
  const auto decoded = Decode(Encode(message));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(*decoded, message);
}

TEST(MessageTest, OwnersAreCompressed) {
  Message message = AnswerTo(AskMessage("a.long.name.test", Type::kA), {});
  for (int i = 0; i < 60; ++i) message.answers.push_back(A("a.long.name.test", "192.0.2." + std::to_string(i)));
  EXPECT_EQ(Encode(message).size(), 12u + 22 + 60 * 16);
}

TEST(MessageTest, CompressedNamesInRecordDataAreExpanded) {
  // CNAME of a.test to b.test, written as "b" and a pointer to "test".
  const Bytes wire = Header(1, 1, 0, 0) + kQuestion + Bytes{0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 4, 1, 'b', 0xc0, 14};
  const auto message = Decode(wire);
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(TargetOf(message->answers[0])->ToText(), "b.test");
  EXPECT_EQ(message->answers[0].rdata, Name::FromText("b.test")->wire());
}

TEST(MessageTest, MalformedMessagesAreRefused) {
  const Bytes opt = {0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0};
  const Bytes a_record = {0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 1};
  Bytes short_a = a_record;
  short_a[11] = 3;
  short_a.pop_back();
  struct Case {
    const char* what;
    Bytes wire;
    DecodeFault fault;
  };
  const Case cases[] = {
      {"eleven octets", Bytes(11), DecodeFault::kShort},
      {"a question that is not there", Header(1, 0, 0, 0), DecodeFault::kName},
      {"half a question", Header(1, 0, 0, 0) + Bytes{1, 'a', 0, 0, 1}, DecodeFault::kRecord},
      {"a name that points at itself", Header(1, 0, 0, 0) + Bytes{0xc0, 12, 0, 1, 0, 1}, DecodeFault::kName},
      {"trailing octets", Header(1, 0, 0, 0) + kQuestion + Bytes{0}, DecodeFault::kTrailing},
      {"an A of three octets", Header(1, 1, 0, 0) + kQuestion + short_a, DecodeFault::kRecord},
      {"data beyond the end", Header(1, 1, 0, 0) + kQuestion + Bytes{0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 1},
       DecodeFault::kRecord},
      {"a CNAME with more behind its name",
       Header(1, 1, 0, 0) + kQuestion + Bytes{0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 3, 0xc0, 12, 0}, DecodeFault::kRecord},
      {"a CNAME whose name ends outside its data",
       Header(1, 1, 0, 0) + kQuestion + Bytes{0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 9, 0, 1, 1, 'a', 0}, DecodeFault::kRecord},
      {"a TXT string longer than its data",
       Header(1, 1, 0, 0) + kQuestion + Bytes{0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 9, 0, 2, 2, 'a'}, DecodeFault::kRecord},
      {"two OPT", Header(1, 0, 0, 2) + kQuestion + opt + opt, DecodeFault::kEdns},
      {"OPT among the answers", Header(1, 1, 0, 0) + kQuestion + opt, DecodeFault::kEdns},
      {"OPT of another owner", Header(1, 0, 0, 1) + kQuestion + Bytes{1, 'a'} + opt, DecodeFault::kEdns},
      {"an option longer than OPT", Header(1, 0, 0, 1) + kQuestion + Bytes{0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 4, 0, 10, 0, 9},
       DecodeFault::kEdns},
      {"more records than any answer has", Header(1, 0x7fff, 0, 0) + kQuestion, DecodeFault::kTooMany},
  };
  for (const Case& c : cases) {
    const auto message = Decode(c.wire);
    ASSERT_FALSE(message.has_value()) << c.what;
    EXPECT_EQ(message.error(), c.fault) << c.what;
  }
}

TEST(MessageTest, TtlWithTheTopBitIsZero) {
  const auto message = Decode(Header(1, 1, 0, 0) + kQuestion + Bytes{0xc0, 12, 0, 1, 0, 1, 0x80, 0, 0, 9, 0, 4, 192, 0, 2, 1});
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->answers[0].ttl, 0u);
}

TEST(MessageTest, ClientOptionsAreDropped) {
  const auto message =
      Decode(Header(1, 0, 0, 1) + kQuestion + Bytes{0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 12, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8});
  ASSERT_TRUE(message.has_value());
  const Bytes wire = Encode(*message);
  EXPECT_EQ(wire.size(), 12u + kQuestion.size() + 11) << "a bare OPT";
}

TEST(MessageTest, WhatDoesNotFitIsTruncatedWithOptKept) {
  Message message = AnswerTo(AskMessage("a.test", Type::kA), {});
  for (int i = 0; i < 60; ++i) message.answers.push_back(A("a.test", "192.0.2." + std::to_string(i)));
  message.edns.emplace();
  const auto cut = Decode(EncodeWithin(message, 512));
  ASSERT_TRUE(cut.has_value());
  EXPECT_TRUE(cut->header.truncated);
  EXPECT_TRUE(cut->answers.empty());
  EXPECT_TRUE(cut->edns.has_value());
  EXPECT_EQ(cut->questions, message.questions);
  EXPECT_EQ(Decode(EncodeWithin(message, kMaxMessageOctets))->answers.size(), 60u);
}

TEST(MessageTest, WhatIsDecodedEncodesToTheSameMeaning) {
  // Property: for mutations of a valid message, Decode either refuses or agrees with itself after one encoding.
  Message message =
      AnswerTo(AskMessage("www.example.test", Type::kA), {Cname("www.example.test", "b.test"), A("b.test", "192.0.2.1")});
  message.edns = Edns{.error = ExtendedError{Ede::kOther, "text"}};
  const Bytes original = Encode(message);
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    Bytes bytes = original;
    for (unsigned n = random() % 3; n < 3; ++n) bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    const auto first = Decode(bytes);
    if (!first) continue;
    ++accepted;
    bool opaque = false;
    for (const auto* section : {&first->answers, &first->authority, &first->additional})
      for (const Record& r : *section) opaque |= !r.understood;
    if (opaque) continue;
    const auto second = Decode(Encode(*first));
    ASSERT_TRUE(second.has_value());
    EXPECT_TRUE(*second == *first) << "mutation " << i;
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace sluice::dns
