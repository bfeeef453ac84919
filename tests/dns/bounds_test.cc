// What is over a bound of docs/limits.md is refused or cut, and what is just within it is not.

#include <gtest/gtest.h>

#include <string>

#include "dns/answer.h"
#include "dns/chain.h"
#include "dns/message.h"
#include "tests/dns/make.h"

namespace sluice::dns {
namespace {

Record Text(std::string_view owner, std::string_view text) {
  return {*Name::FromText(owner), Type::kTxt, kClassIn, 60, std::string(1, static_cast<char>(text.size())) + std::string(text)};
}

Message Many(size_t records) {
  Message message = AnswerTo(AskMessage("a.test", Type::kTxt), {});
  for (size_t i = 0; i < records; ++i) message.answers.push_back(Text("a.test", "x"));
  return message;
}

TEST(DnsBounds, RecordsOfAMessage) {
  EXPECT_TRUE(Decode(Encode(Many(kMaxRecords - 1)))) << "and the question";
  const auto refused = Decode(Encode(Many(kMaxRecords)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), DecodeFault::kTooMany);
}

TEST(DnsBounds, RecordsOfARelayedAnswer) {
  const auto never = [](const std::string&, std::optional<uint16_t>) { return TargetVerdict::kForbidden; };
  const Query query = AskQuery("a.test", Type::kTxt);
  EXPECT_EQ(Relayed(query, Many(kMaxRelayed), never).answers.size(), kMaxRelayed);
  EXPECT_EQ(Relayed(query, Many(kMaxRelayed + 50), never).answers.size(), kMaxRelayed);
}

TEST(DnsBounds, AddressesOfAName) {
  Message message = AnswerTo(AskMessage("a.test", Type::kA), {});
  for (size_t i = 0; i < kMaxAddresses + 16; ++i) message.answers.push_back(A("a.test", "192.0.2." + std::to_string(i + 1)));
  const auto found = ReadAddresses(message, message.questions.front());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->addresses.size(), kMaxAddresses);
}

TEST(DnsBounds, TextThatExplainsARefusal) {
  Message message = AnswerTo(AskMessage("a.test", Type::kA), {});
  message.edns.emplace();
  message.edns->error = ExtendedError{Ede::kBlocked, std::string(kMaxExtendedText + 100, 'x')};
  const auto read = Decode(Encode(message));
  ASSERT_TRUE(read && read->edns && read->edns->error);
  EXPECT_EQ(read->edns->error->text.size(), kMaxExtendedText);
}

// More names than are remembered, the last ones beyond the reach of a pointer.
TEST(DnsBounds, NamesThatAreNoLongerPointedBackToAreWrittenOut) {
  Message message = AnswerTo(AskMessage("a.test", Type::kTxt), {});
  for (int i = 0; i < 300; ++i) message.answers.push_back(Text("n" + std::to_string(i) + ".zone.test", std::string(200, 'x')));
  for (int i = 0; i < 300; ++i) message.answers.push_back(Text("n" + std::to_string(i) + ".zone.test", "again"));
  const auto wire = Encode(message);
  EXPECT_GT(wire.size(), 2U * 16'383);
  const auto read = Decode(wire);
  ASSERT_TRUE(read);
  EXPECT_TRUE(*read == message);
}

}  // namespace
}  // namespace sluice::dns
