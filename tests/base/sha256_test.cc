#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>

#include "base/hex.h"

namespace sluice {
namespace {

std::string Counted(size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += static_cast<char>(i * 7 % 251);
  return text;
}

// Around each place where the padding takes another block. The digests are Python's.
TEST(Sha256, IsWhatOthersComputeAtEveryLengthThatMatters) {
  const std::initializer_list<std::pair<size_t, const char*>> cases = {
      {0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {1, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"},
      {55, "8af594de0e003fdee5c8bb088216c824349b4137070f559574f4a4bddd27b714"},
      {56, "db81bc2bfd43620591df192139062da77d4c376f1888ea3d2190bd07c8d901f9"},
      {63, "bd535b38bf0d0d1a09d370b7e34b2696cea3767801a45d5611a4aaa6954e8527"},
      {64, "292be91abe8c0909fe3d26575af5755eee74d23816dc68c3ba41765136967654"},
      {65, "ba65aedf7884642499a59ae124894611d986cf429e69f569488048af3a99e25a"},
      {119, "d367ab298e74477421127b0b448667c37c006c636f5738f081c39388756e5fad"},
      {120, "be7beb9c82089eb08da8fe6eb30c13b9d56869014e228a8c3eb0fdfe832efab2"},
      {1000, "59425e4412e296fc74736673ce067027f384203f59c0d2c3e6be7b13347b3ffc"}};
  for (const auto& [size, digest] : cases) EXPECT_EQ(HexText(Sha256(Counted(size))), digest) << size;
  // FIPS 180-4's own examples.
  EXPECT_EQ(HexText(Sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HexText(Sha256(std::string(1'000'000, 'a'))), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace sluice
