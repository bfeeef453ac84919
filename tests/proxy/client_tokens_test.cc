#include "proxy/io/client_tokens.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::proxy {
namespace {

// SHA-256 of "foo" and "bar".
const std::string kFoo = "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
const std::string kBar = "sha256:fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9";

TEST(ClientTokens, KnowsClientsByNameAndToken) {
  const auto table =
      TokenTable::Parse("# clients\n\n ci " + kFoo + " team=build env=prod\nlaptop\t" + kBar + " # mine\n", "tokens");
  ASSERT_TRUE(table) << table.error().message;
  ASSERT_NE(table->Find("ci", "foo"), nullptr);
  EXPECT_EQ(table->Find("ci", "foo")->client, "ci");
  EXPECT_EQ(table->Find("ci", "foo")->client_labels, "team=build env=prod");
  EXPECT_TRUE(table->Find("ci", "foo")->exe.path.empty());
  EXPECT_EQ(table->Find("", "bar")->client, "laptop");
  EXPECT_EQ(table->Find("ci", "bar"), nullptr);
  EXPECT_EQ(table->Find("CI", "foo"), nullptr);
  EXPECT_EQ(table->Find("ci", ""), nullptr);
  EXPECT_EQ(table->Find("ci", std::string(2000, 'x')), nullptr);
}

TEST(ClientTokens, ReadsProxyAuthorization) {
  const auto table = TokenTable::Parse("ci " + kFoo + "\n", "tokens");
  ASSERT_TRUE(table);
  for (const char* good : {"Bearer foo", "bearer  foo", "Basic Y2k6Zm9v", "BASIC Y2k6Zm9v"})
    EXPECT_NE(table->FromField(good), nullptr) << good;
  for (const char* bad : {"", "foo", "Bearer", "Bearer ", "Bearer fo", "Digest foo", "Basic Y2k6Zm9",
                          "Basic Y2k6Zm9v=", "Basic !!!!", "Basic OmZvbw==", "Basic Y2k=", "Basic eDpmb28="})
    EXPECT_EQ(table->FromField(bad), nullptr) << bad;
}

TEST(ClientTokens, KnowsWhoIsInTheNextFileToo) {
  const auto before = TokenTable::Parse("a " + kFoo + " env=prod\nb " + kBar + "\n", "tokens");
  ASSERT_TRUE(before);
  const auto a = before->Find("a", "foo");
  const auto b = before->Find("b", "bar");
  auto same = TokenTable::Parse("b " + kBar + "\na " + kFoo + " env=prod\n", "tokens");
  same->TakeOver(*before);
  EXPECT_TRUE(same->Knows(a) && same->Knows(b));
  EXPECT_EQ(same->Find("a", "foo"), a);
  for (const std::string& text : {"c " + kFoo + " env=prod\n", "a " + kBar + " env=prod\n", "a " + kFoo + " env=test\n"}) {
    auto other = TokenTable::Parse(text, "tokens");
    other->TakeOver(*before);
    EXPECT_FALSE(other->Knows(a) || other->Knows(b)) << text;
  }
}

TEST(ClientTokens, SaysWhatIsWrongWithAFile) {
  const struct {
    std::string text, says;
  } cases[] = {
      {"", "no tokens"},
      {"ci\n", "tokens:1: after the name"},
      {"ci foo\n", "tokens:1: after the name"},
      {"ci sha256:12\n", "tokens:1: after the name"},
      {"\nc/i " + kFoo, "tokens:2: `c/i` is no name"},
      {"ci " + kFoo + "\nci " + kBar, "tokens:2: the name ci comes twice"},
      {"ci " + kFoo + "\nother " + kFoo, "tokens:2: the token of other is another client's too"},
      {"ci " + kFoo + " build", "tokens:1: `build` is no label"},
  };
  for (const auto& c : cases) {
    const auto table = TokenTable::Parse(c.text, "tokens");
    ASSERT_FALSE(table) << c.text;
    EXPECT_NE(table.error().message.find(c.says), std::string::npos) << table.error().message;
  }
}

}  // namespace
}  // namespace sluice::proxy
