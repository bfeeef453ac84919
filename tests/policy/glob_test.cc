#include "policy/glob.h"

#include <gtest/gtest.h>
#include <re2/re2.h>

#include <ctime>
#include <random>

namespace sluice::policy {
namespace {

TEST(PathGlob, MatchesAsTheLanguageSays) {
  struct Case {
    const char* glob;
    const char* subject;
    bool matches;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"/v1/**", "/v1/", true},
           {"/v1/**", "/v1/a/b", true},
           {"/v1/**", "/v1", false},
           {"/**/x", "/x", false},
           {"/**/x", "/a/x", true},
           {"/**/x", "/a/b/x", true},
           {"/**/x", "/a/x/b", false},
           {"/*", "/", true},
           {"/*", "/a", true},
           {"/*", "/a/b", false},
           {"/a*c", "/ac", true},
           {"/a*c", "/abbc", true},
           {"/a*c", "/ab/c", false},
           {"/**", "/", true},
           {"/**", "/a/b", true},
           {"/a/**/b/*/c", "/a/b/x/b/y/c", true},
           {"/a/**/b/*/c", "/a/b/y/c", false},
           {"/a/**/b/*/c", "/a/z/b/y/c", true},
           {"/a%2Ab", "/a*b", true},
           {"/a%2Ab", "/axb", false},
           {"/*a*b*", "/xaxbx", true},
           {"/*a*b*", "/xbxax", false},
           {"/**/*.git/**", "/o/r.git/x", true},
           {"/x", "/x/", false},
       }) {
    const auto glob = Glob::Path(c.glob);
    ASSERT_TRUE(glob) << c.glob;
    EXPECT_EQ(glob->Matches(c.subject), c.matches) << c.glob << " on " << c.subject;
  }
}

TEST(PathGlob, RefusesDoubleStarsGluedToText) {
  for (const char* bad : {"/a**", "/**a", "/a/**b/c", "/***", "/a/b**"}) EXPECT_FALSE(Glob::Path(bad)) << bad;
}

TEST(TextGlob, TreatsBothStarsAlike) {
  for (const char* text : {"v*", "v**"}) {
    const auto glob = Glob::Text(text);
    ASSERT_TRUE(glob);
    EXPECT_TRUE(glob->Matches("v"));
    EXPECT_TRUE(glob->Matches("v1/2 3"));
    EXPECT_FALSE(glob->Matches("av"));
  }
  EXPECT_TRUE(Glob::Text("")->Matches(""));
  EXPECT_FALSE(Glob::Text("")->Matches("a"));
}

// Independent of Glob: a regular expression from the glob's text.
std::string ToRegex(const std::string& glob, bool path) {
  std::string regex;
  for (size_t i = 0; i < glob.size(); ++i) {
    if (glob[i] != '*') {
      regex += RE2::QuoteMeta(glob.substr(i, 1));
    } else if (!path || glob.compare(i, 2, "**") == 0) {
      regex += "(?s:.)*";
      if (glob.compare(i, 2, "**") == 0) ++i;
    } else {
      regex += "[^/]*";
    }
  }
  return regex;
}

std::string RandomText(std::mt19937* random, const char* alphabet, size_t longest) {
  const std::string_view letters(alphabet);
  std::string text;
  for (size_t n = (*random)() % (longest + 1); n > 0; --n) text += letters[(*random)() % letters.size()];
  return text;
}

TEST(Glob, AgreesWithRegularExpressions) {
  std::mt19937 random(20261129);
  size_t positive = 0;
  for (int round = 0; round < 6000; ++round) {
    const bool path = round % 2 == 0;
    std::string text = path ? "/" : "";
    const char* const segments[] = {"**", "*", "a", "b*", "*a", "a*b", "ab", "*a*", ""};
    if (path) {
      for (size_t n = random() % 5; n > 0; --n) text += std::string(segments[random() % 9]) + "/";
      text += segments[random() % 9];
    } else {
      text = RandomText(&random, "ab**/", 8);
    }
    const auto glob = path ? Glob::Path(text) : Glob::Text(text);
    ASSERT_TRUE(glob) << text;
    const RE2 regex(ToRegex(text, path));
    for (int i = 0; i < 40; ++i) {
      const std::string subject = (path ? "/" : "") + RandomText(&random, "aab//", 9);
      const bool expected = RE2::FullMatch(subject, regex);
      positive += expected ? 1u : 0u;
      ASSERT_EQ(glob->Matches(subject), expected) << text << " on " << subject;
    }
  }
  EXPECT_GT(positive, 5000u);
}

// The longest subject and the worst globs that a policy may hold: still far under the time of one round trip.
TEST(Glob, StaysFastOnHostileGlobs) {
  std::string deep;
  while (deep.size() + 6 < kMaxGlob) deep += "/**/x";
  deep += "/z";
  std::string stars = "/**/";
  while (stars.size() + 3 < kMaxGlob) stars += "*a";
  stars += "b";
  std::string text;
  while (text.size() + 3 < kMaxGlob) text += "*aa";
  text += "b";
  std::string slashes;
  while (slashes.size() + 2 < 16 * 1024) slashes += "/x";
  const std::string letters = "/" + std::string(16 * 1024 - 1, 'a');
  const std::clock_t start = std::clock();  // of this process, so that a busy machine does not fail it
  for (const std::string& subject : {slashes, letters, "/q" + letters}) {
    EXPECT_FALSE(Glob::Path(deep)->Matches(subject));
    EXPECT_FALSE(Glob::Path(stars)->Matches(subject));
    EXPECT_FALSE(Glob::Text(text)->Matches(subject));
  }
  EXPECT_LT(std::clock() - start, 2 * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace sluice::policy
