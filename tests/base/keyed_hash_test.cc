#include "base/keyed_hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/base/colliding_texts.h"

namespace sluice {
namespace {

// Octets 0 to n-1 under the key 00 01 … 0f, as the reference implementation's vectors have them.
TEST(KeyedHashTest, AgreesWithTheReference) {
  const HashKey key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::string octets;
  const auto of = [&](size_t size) {
    while (octets.size() < size) octets.push_back(static_cast<char>(octets.size()));
    return SipHash24(key, std::string_view(octets).substr(0, size));
  };
  EXPECT_EQ(of(0), 0x726fdb47dd0e0e31U);
  EXPECT_EQ(of(1), 0x74f839c593dc67fdU);
  EXPECT_EQ(of(8), 0x93f5f5799a932462U);
  EXPECT_EQ(of(15), 0xa129ca6149be45e5U);
}

TEST(KeyedHashTest, IsOneValueForTextHoweverHeld) {
  const std::string text = "n1.wild.test";
  EXPECT_EQ(KeyedHash(text), KeyedHash(std::string_view("n1.wild.test")));
  EXPECT_NE(KeyedHash(text), KeyedHash("n2.wild.test"));
  EXPECT_EQ(KeyedHasher{}(text), KeyedHash(text));
}

TEST(KeyedHashTest, IsKeyed) { EXPECT_NE(KeyedHash("n1.wild.test"), SipHash24({0, 0}, "n1.wild.test")); }

TEST(KeyedHashTest, KeepsApartWhatTheStandardHashDoesNot) {
  std::set<size_t> standard;
  std::set<size_t> keyed;
  for (const std::string& text : CollidingTexts::Make(8)) {
    standard.insert(std::hash<std::string>{}(text));
    keyed.insert(KeyedHasher{}(text));
  }
  EXPECT_EQ(standard.size(), 1U);
  EXPECT_EQ(keyed.size(), 256U);
}

}  // namespace
}  // namespace sluice
