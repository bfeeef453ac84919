#include "nft/set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace sluice::nft {
namespace {

Cidr Prefix(const char* text) { return Cidr::Parse(text).value(); }

std::vector<std::string> Texts(const Set& set) {
  std::vector<std::string> texts;
  for (const Element& element : set.elements) texts.push_back(ToText(set, element));
  return texts;
}

TEST(Set, RangesJoinWhatOverlapsOrTouches) {
  const std::vector<Cidr> prefixes = {Prefix("10.0.0.0/25"), Prefix("10.0.0.128/25"), Prefix("10.0.0.7"), Prefix("10.0.2.0/24"),
                                      Prefix("255.255.255.255")};
  const Set set{.name = "s", .key = {KeyType::kAddress4}, .kind = SetKind::kInterval, .elements = Ranges(prefixes)};
  EXPECT_THAT(Texts(set), testing::ElementsAre("10.0.0.0/24", "10.0.2.0/24", "255.255.255.255"));
  const std::vector<Cidr> uneven = {Prefix("10.0.0.0/31"), Prefix("10.0.0.2")};
  const Set range{.name = "s", .key = {KeyType::kAddress4}, .kind = SetKind::kInterval, .elements = Ranges(uneven)};
  EXPECT_THAT(Texts(range), testing::ElementsAre("10.0.0.0-10.0.0.2"));
}

TEST(Set, AKeyIsFollowedByTheNext) {
  EXPECT_EQ(Following(Key().Address(IpAddress::FromV4(0x0a0000ff))), Key().Address(IpAddress::FromV4(0x0a000100)));
  EXPECT_EQ(Following(Key().Address(IpAddress::FromV4(0xffffffff))), std::nullopt);
}

// Against the boxes themselves: the same points are in, and no two pieces have one in common.
TEST(Set, DisjointBoxesCoverWhatTheBoxesDid) {
  std::mt19937 random(20261130);
  for (int round = 0; round < 200; ++round) {
    std::vector<Box> boxes;
    for (unsigned i = 0; i < 1 + random() % 6; ++i) {
      const auto from = static_cast<uint16_t>(random() % 20);
      boxes.push_back({Cidr::Of(IpAddress::FromV4(0x0a000000 + random() % 16), static_cast<unsigned>(28 + random() % 5)),
                       static_cast<uint8_t>(random() % 2 == 0 ? 6 : 17), from, static_cast<uint16_t>(from + random() % 10)});
    }
    if (round % 20 == 0) boxes.push_back({Prefix("10.0.0.0/28"), 6, 0, 65535});
    const std::vector<Element> pieces = Disjoint(boxes, 1000).value();
    for (uint32_t address = 0; address < 16; ++address)
      for (const uint8_t protocol : {uint8_t{6}, uint8_t{17}})
        for (const uint32_t port : {0U, 1U, 5U, 10U, 15U, 19U, 25U, 30U, 65535U}) {
          const Key point =
              Key().Address(IpAddress::FromV4(0x0a000000 + address)).Protocol(protocol).Port(static_cast<uint16_t>(port));
          const auto within = [&](const Element& piece) {
            for (size_t field = 0; field < 12; field += 4)
              for (const bool low : {true, false}) {
                const auto bound = (low ? piece.first : piece.last).bytes().subspan(field, 4);
                const auto value = point.bytes().subspan(field, 4);
                if (low ? std::ranges::lexicographical_compare(value, bound) : std::ranges::lexicographical_compare(bound, value))
                  return false;
              }
            return true;
          };
          const auto wanted = std::ranges::any_of(boxes, [&](const Box& box) {
            return box.prefix.Contains(IpAddress::FromV4(0x0a000000 + address)) && box.protocol == protocol &&
                   box.first_port <= port && port <= box.last_port;
          });
          ASSERT_EQ(std::ranges::count_if(pieces, within), wanted ? 1 : 0) << round;
        }
  }
}

TEST(Set, CuttingIsBoundedByPiecesAndByWork) {
  std::vector<Box> boxes;
  for (uint32_t i = 0; i < 100; ++i) boxes.push_back({Cidr::Of(IpAddress::FromV4(0x0a000000 + 2 * i), 32), 6, 443, 443});
  EXPECT_EQ(Disjoint(boxes, 100).value().size(), 100U);
  EXPECT_FALSE(Disjoint(boxes, 99));
  // 20,000 addresses of a prefix whose ports are cut 2,000 times: one piece in the end, and forty million looks.
  boxes.clear();
  for (uint32_t i = 0; i < 20'000; ++i) boxes.push_back({Cidr::Of(IpAddress::FromV4(0x0a000000 + i), 32), 6, 0, 65535});
  for (uint16_t port = 1; port <= 1000; ++port)
    boxes.push_back({Cidr::Of(IpAddress::FromV4(0x0b000000 + port), 32), 6, static_cast<uint16_t>(2 * port),
                     static_cast<uint16_t>(2 * port)});
  EXPECT_GT(20'000U * 2'000U, kMaxCutWork);
  EXPECT_FALSE(Disjoint(boxes, 1'000'000));
}

}  // namespace
}  // namespace sluice::nft
