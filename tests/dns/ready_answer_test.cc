#include "dns/ready_answer.h"

#include <gtest/gtest.h>

#include "dns/answer.h"
#include "tests/dns/make.h"

namespace sluice::dns {
namespace {

std::string KeyOf(const std::vector<uint8_t>& query) {
  ReadyKey key;
  return key.Read(query) ? std::string(key.text()) : std::string();
}

TEST(ReadyAnswerTest, OnlyTheIdAndTheCaseOfTheNameMakeNoDifference) {
  const Message plain = AskMessage("api.test", Type::kA);
  Message other = AskMessage("API.Test", Type::kA);
  other.header.id = 77;
  EXPECT_EQ(KeyOf(Encode(plain)), KeyOf(Encode(other)));
  EXPECT_NE(KeyOf(Encode(plain)), "");
  const auto differs = [&](const Message& message) { return KeyOf(Encode(message)) != KeyOf(Encode(plain)); };
  EXPECT_TRUE(differs(AskMessage("api.tesu", Type::kA)));
  EXPECT_TRUE(differs(AskMessage("api.test", Type::kAaaa)));
  Message flags = plain;
  flags.header.recursion_desired = false;
  EXPECT_TRUE(differs(flags));
  flags = plain;
  flags.header.checking_disabled = true;
  EXPECT_TRUE(differs(flags));
  Message edns = plain;
  edns.edns.emplace();
  EXPECT_TRUE(differs(edns));
  Message small = edns;
  small.edns->udp_octets = 512;
  EXPECT_NE(KeyOf(Encode(small)), KeyOf(Encode(edns)));
  // 65 and 97 are letters that differ in case.
  EXPECT_NE(KeyOf(Encode(AskMessage("api.test", Type{65}))), KeyOf(Encode(AskMessage("api.test", Type{97}))));
}

TEST(ReadyAnswerTest, WhatIsNoPlainQuestionHasNoKey) {
  const auto plain = Encode(AskMessage("api.test", Type::kA));
  for (const size_t at : {2u, 4u, 6u, 7u, 8u, 9u}) {
    auto changed = plain;
    changed[at] |= 0x80;
    EXPECT_EQ(KeyOf(changed), "") << at;
  }
  auto two = plain;
  two[5] = 2;
  EXPECT_EQ(KeyOf(two), "");
  auto pointer = plain;
  pointer[12] = 0xc0;
  EXPECT_EQ(KeyOf(pointer), "");
  for (size_t size = 0; size < plain.size() - 4; ++size)
    EXPECT_EQ(KeyOf({plain.begin(), plain.begin() + static_cast<std::ptrdiff_t>(size)}), "") << size;
  EXPECT_EQ(KeyOf(std::vector<uint8_t>(2000, 0)), "");
}

TEST(ReadyAnswerTest, TheRetoldAnswerIsWhatWouldHaveBeenEncoded) {
  const IpAddress addresses[] = {*IpAddress::Parse("93.184.216.34"), *IpAddress::Parse("93.184.216.35")};
  for (const WithEdns edns : {WithEdns::kNo, WithEdns::kYes}) {
    const Query first = AskQuery("api.test", Type::kA, edns);
    const auto kept = Encode(WithAddresses(first, addresses, 60));
    Message asked = AskMessage("aPI.teST", Type::kA);
    asked.header.id = 0x4321;
    if (edns == WithEdns::kYes) asked.edns.emplace();
    const auto wire = Encode(asked);
    ReadyKey key;
    ASSERT_TRUE(key.Read(wire));
    const Query second = std::get<Query>(ReadQuery(wire));
    EXPECT_EQ(Retell(kept, wire, key.name_octets()), Encode(WithAddresses(second, addresses, 60)));
  }
}

}  // namespace
}  // namespace sluice::dns
