#include "audit/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

namespace sluice::audit {
namespace {

using ::testing::HasSubstr;

std::string Json(std::string_view text) {
  std::string out;
  AppendJsonString(&out, text);
  return out;
}

TEST(JsonStringTest, WhatIsNotPrintableAsciiIsEscaped) {
  struct Case {
    std::string_view in;
    std::string_view out;
  };
  const Case cases[] = {
      {"plain", R"("plain")"},
      {"a\"b\\c", R"("a\"b\\c")"},
      {std::string_view("\n\x1b\0", 3), R"("\u000a\u001b\u0000")"},
      {"\x7f", R"("\u007f")"},
      {"\xc3\xa9", R"("\u00e9")"},
      {"\xe2\x80\xae", R"("\u202e")"},
      {"\xf0\x9f\x98\x80", R"("\ud83d\ude00")"},
      {"\xff", R"("\ufffd")"},
      {"\xc0\x80", R"("\ufffd\ufffd")"},
      {"\xed\xa0\x80", R"("\ufffd\ufffd\ufffd")"},
      {"\xf4\x90\x80\x80", R"("\ufffd\ufffd\ufffd\ufffd")"},
      {"\xe2\x80", R"("\ufffd\ufffd")"},
  };
  for (const Case& c : cases) EXPECT_EQ(Json(c.in), c.out);
}

TEST(JsonStringTest, AnyBytesMakeOneValidLine) {
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    std::string bytes;
    for (unsigned n = random() % 40; n > 0; --n) bytes += static_cast<char>(random());
    const std::string json = Json(bytes);
    for (const char c : json) ASSERT_TRUE(c >= 0x20 && c < 0x7f);
    const auto parsed = nlohmann::json::parse(json, nullptr, false);  // an independent reader
    ASSERT_TRUE(parsed.is_string()) << json;
    const bool ascii = std::ranges::all_of(bytes, [](char c) { return c >= 0; });
    if (ascii) ASSERT_EQ(parsed.get<std::string>(), bytes);
  }
}

TEST(VisibleTest, ControlCharactersAndSpacesAreEncodedAndLengthIsBounded) {
  EXPECT_EQ(Visible("a\x1b[31m\nb c", 100), "a%1B[31m%0Ab%20c");
  EXPECT_EQ(VisibleSentence("a b\xc3", 100), "a b%C3");
  EXPECT_EQ(Visible(std::string(50, 'x'), 10), "xxxxxxxxxx...");
}

TEST(ShellQuoteTest, QuotesCannotBeLeft) {
  EXPECT_EQ(ShellQuote("GET a.test/x"), "'GET a.test/x'");
  EXPECT_EQ(ShellQuote("a'; rm -rf ~ #"), R"('a'\''; rm -rf ~ #')");
}

TEST(RedactTest, TokensAreReplacedAndWordsAreNot) {
  struct Case {
    const char* in;
    const char* out;
  };
  const Case cases[] = {
      {"/repos/octo/hello-world/issues/42", "/repos/octo/hello-world/issues/42"},
      {"/x/ghp_0123456789abcdefABCDEF0123456789abcd/y", "/x/...redacted/y"},
      {"/hook/T00000000/B00000000/XXXXabcd0123XXXXabcd0123", "/hook/T00000000/B00000000/...redacted"},
      {"/bot123456:AAabcdefghijklmnopqrstuvwxyz0123456/send", "/bot123456:...redacted/send"},
      {"/t/0123456789abcdef0123456789abcdef", "/t/...redacted"},
      {"0123456789abcdef0123456789abcdef.evil.example", "...redacted.evil.example"},
      {"/j/eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0", "/j/...redacted....redacted"},
      {"/k/AKIAIOSFODNN7EXAMPLE", "/k/...redacted"},
      {"/packages/some-very-long-package-name-with-many-words", "/packages/some-very-long-package-name-with-many-words"},
      {"/v1/2026-11-29T14:16:18Z", "/v1/2026-11-29T14:16:18Z"},
      {"", ""},
  };
  for (const Case& c : cases) EXPECT_EQ(Redact(c.in), c.out);
  EXPECT_EQ(Redact("GET a.test/x/ghp_0123456789abcdefABCDEF", "*"), "GET a.test/x/*");
}

TEST(RedactTest, AServersPinIsPublicWhereSluiceSaysItAndNowhereElse) {
  const std::string pin = "sha256//Aa0+Bb1/Cc2Dd3Ee4Ff5Gg6Hh7Ii8Jj9Kk0Ll1Mm2Nn=";
  const std::string said = "no key of its chain is one that the rule pins; its own is ";
  EXPECT_EQ(RedactSentence(said + pin), said + pin);
  EXPECT_EQ(RedactSentence("a.test: " + said + pin + "; and more"), "a.test: " + said + pin + "; and more");
  EXPECT_EQ(RedactSentence(said + "ghp_0123456789abcdefABCDEF"), said + "...redacted");
  for (const std::string& other :
       {"/x/" + pin, "its key is " + pin, said + pin + "0", said + pin + "/x", std::string("ghp_0123456789abcdefABCDEF; x")})
    EXPECT_THAT(RedactSentence(other), HasSubstr("...redacted")) << other;
  EXPECT_THAT(Redact(said + pin), HasSubstr("...redacted")) << "what a workload may have chosen is no sentence";
}

TEST(QueryKeysTest, ValuesAreDropped) {
  EXPECT_EQ(QueryKeys("a=1&b&c=x=y"), "a=&b&c=");
  EXPECT_EQ(QueryKeys("a=&b="), "a=&b=");
  EXPECT_EQ(QueryKeys(""), "");
}

TEST(TextTest, ASuggestionKeepsItsMeaningWhereASecretIsTakenOut) {
  const std::string hex = "0123456789abcdef0123456789abcdef";
  EXPECT_EQ(RedactSuggestion("GET a.test/x/" + hex + "/y"), "GET a.test/x/*/y");
  EXPECT_EQ(RedactSuggestion("GET http://a.test:8080/" + hex), "GET http://a.test:8080/*");
  EXPECT_EQ(RedactSuggestion("git fetch-pack a.test/o/r"), "git fetch-pack a.test/o/r");
  // A star in the host would open every name beside it, and there is no verb that is a star.
  EXPECT_EQ(RedactSuggestion("GET " + hex + ".a.test/x"), "");
  EXPECT_EQ(RedactSuggestion("GET http://" + hex + ".a.test"), "");
  EXPECT_EQ(RedactSuggestion("tcp " + hex + ".a.test:5432"), "");
  EXPECT_EQ(RedactSuggestion(hex + " a.test/x"), "");
}

}  // namespace
}  // namespace sluice::audit
