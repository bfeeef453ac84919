// What an upstream sends back of a secret is not what the workload reads.

#include "proxy/credential/redact.h"

#include <gtest/gtest.h>

#include <string>

#include "proxy/credential/encoding.h"

namespace sluice::proxy {
namespace {

TEST(Redact, TakesOutEverySpellingOfTheSecret) {
  const std::string secret = "gh/p_S3cret+token?x";
  Redactor redactor;
  EXPECT_FALSE(redactor.Redact(secret));
  redactor.Add(secret);
  struct Row {
    std::string text;
    std::optional<std::string> expected;
  };
  const std::string all(kRedacted);
  const std::string twice = PercentEncode(PercentEncode(secret));
  const Row rows[] = {
      {"nothing", std::nullopt},
      {"", std::nullopt},
      {secret, all},
      {"a " + secret + " b " + secret, "a " + all + " b " + all},
      {"https://a/?t=" + PercentEncode(secret), all},
      {"https://a/?t=" + LowerCase("%2F") + "x gh%2fp_S3cret%2btoken%3Fx", all},
      {"next=" + twice, all},
      {"Basic " + Base64Encode("u:" + secret), all},
      {"Basic " + Base64Encode("us:" + secret), all},
      {"Basic " + Base64Encode("use:" + secret + "!"), all},
      {Base64Encode(secret), all},
      {"gh/p_S3cret", std::nullopt},
  };
  for (const Row& row : rows) EXPECT_EQ(redactor.Redact(row.text), row.expected) << row.text;
  // base64url of a secret that has '-' and '_' in that alphabet.
  Redactor odd;
  odd.Add("\xfb\xff\xfe\xfb\xff\xfe");
  EXPECT_EQ(odd.Redact("-__--__-"), all);
}

TEST(Redact, PassesOverWhatIsTooShortToBeLookedFor) {
  Redactor redactor;
  redactor.Add("abc");
  EXPECT_TRUE(redactor.empty());
  EXPECT_FALSE(redactor.Redact("abcabc"));
  redactor.Add("abcd");
  EXPECT_EQ(redactor.Redact("xabcdx"), "x" + std::string(kRedacted) + "x");
}

TEST(Redact, ComesToAnEndWhereTheSecretIsPartOfTheMark) {
  Redactor redactor;
  redactor.Add("redacted");
  EXPECT_EQ(redactor.Redact("redacted redacted"), "[redacted] [redacted]");
}

}  // namespace
}  // namespace sluice::proxy
