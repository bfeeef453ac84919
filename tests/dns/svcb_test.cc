#include "dns/svcb.h"

#include <gtest/gtest.h>

#include "dns/rdata.h"

namespace sluice::dns {
namespace {

using std::string_literals::operator""s;

Svcb Make(std::vector<SvcParam> params) { return {1, *Name::FromText("b.test"), std::move(params)}; }

TEST(SvcbTest, EncodingIsReadBack) {
  const Svcb svcb = Make({{1, "\x02h2"}, {3, "\x01\xbb"s}});
  const auto parsed = ParseSvcb(Octets(EncodeSvcb(svcb)));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->priority, 1);
  EXPECT_EQ(parsed->target.ToText(), "b.test");
  ASSERT_EQ(parsed->params.size(), 2u);
  EXPECT_EQ(parsed->params[1].value, "\x01\xbb"s);
}

TEST(SvcbTest, HintsAndEchAreRemoved) {
  const auto stripped = StripSvcb(Make({{1, "\x02h2"}, {4, "\1\2\3\4"}, {5, "ech"}, {6, std::string(16, 'x')}, {9, "z"}}));
  ASSERT_TRUE(stripped);
  ASSERT_EQ(stripped->params.size(), 2u);
  EXPECT_EQ(stripped->params[0].key, 1);
  EXPECT_EQ(stripped->params[1].key, 9);
}

TEST(SvcbTest, MandatoryNoLongerNamesWhatWasRemoved) {
  auto stripped = StripSvcb(Make({{0, "\0\1\0\5"s}, {1, "\x02h2"}, {5, "ech"}}));
  ASSERT_TRUE(stripped);
  EXPECT_EQ(stripped->params[0].value, "\0\1"s);
  stripped = StripSvcb(Make({{0, "\0\5"s}, {5, "ech"}}));
  ASSERT_TRUE(stripped);
  EXPECT_TRUE(stripped->params.empty());
  EXPECT_FALSE(StripSvcb(Make({{0, "\0\7"s}}))) << "it names a key that is not there";
}

TEST(SvcbTest, MalformedDataIsRefused) {
  EXPECT_FALSE(ParseSvcb(Octets("\0\1"s)));
  EXPECT_FALSE(ParseSvcb(Octets("\0\1\xc0\x00"s))) << "a compressed target";
  EXPECT_FALSE(ParseSvcb(Octets("\0\1\1a\xc0\x00"s))) << "a target that points into itself";
  EXPECT_FALSE(ParseSvcb(Octets("\0\1\0\0\1\0\2h"s))) << "a value cut short";
  EXPECT_FALSE(ParseSvcb(Octets(EncodeSvcb(Make({{3, "a"}, {1, "b"}}))))) << "keys that fall";
  EXPECT_FALSE(ParseSvcb(Octets(EncodeSvcb(Make({{3, "a"}, {3, "b"}}))))) << "keys that repeat";
}

}  // namespace
}  // namespace sluice::dns
