#include "dns/name.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace sluice::dns {
namespace {

std::optional<Name> ReadAt(const std::vector<uint8_t>& bytes, size_t at, size_t* end = nullptr) {
  auto name = Name::Read(bytes, &at);
  if (end != nullptr) *end = at;
  return name;
}

TEST(NameTest, TextGoesThereAndBack) {
  EXPECT_EQ(Name::FromText("API.example")->ToText(), "API.example");
  EXPECT_EQ(Name::FromText("API.example.")->Canonical(), "api.example");
  EXPECT_TRUE(Name::FromText(".")->is_root());
  EXPECT_EQ(Name().ToText(), ".");
  EXPECT_EQ(Name::FromText("a.bb.ccc")->label_count(), 3u);
  EXPECT_EQ(Name::FromText("a.bb.ccc")->longest_label(), 3u);
}

TEST(NameTest, TextOutOfBoundsIsRefused) {
  EXPECT_FALSE(Name::FromText(""));
  EXPECT_FALSE(Name::FromText("a..b"));
  EXPECT_FALSE(Name::FromText(".a"));
  EXPECT_TRUE(Name::FromText(std::string(63, 'a')));
  EXPECT_FALSE(Name::FromText(std::string(64, 'a')));
  const std::string label(49, 'a');  // 5 labels of 50 octets and the root: 251, a sixth is too much
  const std::string five = label + "." + label + "." + label + "." + label + "." + label;
  EXPECT_TRUE(Name::FromText(five));
  EXPECT_TRUE(Name::FromText(five + ".abc"));
  EXPECT_FALSE(Name::FromText(five + ".abcd"));
}

TEST(NameTest, OctetsThatAreNoTextAreEscaped) {
  const std::vector<uint8_t> wire = {5, 'a', '.', '\\', 0, 0xff, 0};
  EXPECT_EQ(ReadAt(wire, 0)->ToText(), "a\\.\\\\\\000\\255");
}

TEST(NameTest, PointersLeadBackOnly) {
  const std::vector<uint8_t> good = {1, 'b', 0, 1, 'a', 0xc0, 0, 9};
  size_t end = 0;
  EXPECT_EQ(ReadAt(good, 3, &end)->ToText(), "a.b");
  EXPECT_EQ(end, 7u);
  EXPECT_FALSE(ReadAt({0xc0, 0}, 0)) << "to itself";
  EXPECT_FALSE(ReadAt({1, 'a', 0xc0, 0}, 0)) << "into the labels just read";
  EXPECT_FALSE(ReadAt({0xc0, 2, 1, 'a', 0}, 0)) << "forward";
  EXPECT_FALSE(ReadAt({0xc0, 2, 0xc0, 0}, 2)) << "a pair that loops";
  EXPECT_FALSE(ReadAt({1, 'a', 0, 0xc0}, 3)) << "half a pointer";
}

TEST(NameTest, BrokenLabelsAreRefused) {
  EXPECT_FALSE(ReadAt({}, 0));
  EXPECT_FALSE(ReadAt({3, 'a', 'b'}, 0));
  EXPECT_FALSE(ReadAt({1, 'a'}, 0)) << "no end";
  EXPECT_FALSE(ReadAt({0x41, 'a', 0}, 0)) << "extended label type";
  EXPECT_FALSE(ReadAt({0x80, 'a', 0}, 0)) << "reserved label type";
}

TEST(NameTest, ANameOfMoreThan255OctetsIsRefusedHoweverItIsBuilt) {
  std::vector<uint8_t> bytes;
  size_t last = 0;
  for (int i = 0; i < 5; ++i) {  // each name is a label of 59 and a pointer to the one before: 60 octets more each time
    const size_t start = bytes.size();
    bytes.push_back(59);
    bytes.insert(bytes.end(), 59, 'x');
    if (i == 0) {
      bytes.push_back(0);
    } else {
      bytes.push_back(static_cast<uint8_t>(0xc0 | last >> 8));
      bytes.push_back(static_cast<uint8_t>(last));
    }
    last = start;
    EXPECT_EQ(ReadAt(bytes, start).has_value(), i < 4) << i;
  }
}

TEST(NameTest, CaseIsIgnoredInComparisonAndKeptInSpelling) {
  Name name = *Name::FromText("example.test");
  const Name plain = name;
  std::array<uint8_t, 32> ones{};
  ones.fill(0xff);
  name.RandomizeCase(ones);
  EXPECT_EQ(name.ToText(), "EXAMPLE.TEST");
  EXPECT_TRUE(name.EqualsIgnoringCase(plain));
  EXPECT_FALSE(name == plain);
  EXPECT_FALSE(name.EqualsIgnoringCase(*Name::FromText("example.tess")));
}

}  // namespace
}  // namespace sluice::dns
