// Globs and orders rewritten, against plain evaluators of what the tools do, over every small case.
#include <gmock/gmock.h>

#include <functional>
#include <random>

#include "policy/import/first_match.h"
#include "policy/import/import.h"
#include "policy/import/json.h"
#include "policy/import/openshell_glob.h"
#include "policy/io/load.h"
#include "policy/rule_keys.h"

namespace sluice::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The globset library with a literal separator, by backtracking over the pattern's text.
bool TheirMatch(std::string_view p, std::string_view s, bool start) {
  if (p.empty()) return s.empty();
  if (start && p.starts_with("**/")) {
    // No directory, or some.
    if (TheirMatch(p.substr(3), s, false)) return true;
    for (size_t i = 0; i < s.size(); ++i)
      if (s[i] == '/' && TheirMatch(p.substr(3), s.substr(i + 1), false)) return true;
    return false;
  }
  if (p.starts_with("/**/")) {
    if (!s.starts_with('/')) return false;
    for (size_t i = 0; i < s.size(); ++i)
      if (s[i] == '/' && TheirMatch(p.substr(4), s.substr(i + 1), false)) return true;
    return false;
  }
  if (p == "/**") return s.starts_with('/');
  if (p[0] == '*') {
    size_t stars = 0;
    while (stars < p.size() && p[stars] == '*') ++stars;
    for (size_t i = 0; i <= s.size(); ++i) {
      if (TheirMatch(p.substr(stars), s.substr(i), false)) return true;
      if (i < s.size() && s[i] == '/') return false;
    }
    return false;
  }
  if (s.empty()) return false;
  if (p[0] == '?') return s[0] != '/' && TheirMatch(p.substr(1), s.substr(1), false);
  return p[0] == s[0] && TheirMatch(p.substr(1), s.substr(1), false);
}

// All texts over `alphabet` of at most `length` characters that begin with '/'.
void ForEachText(std::string_view alphabet, size_t length, const std::function<void(const std::string&)>& f) {
  std::function<void(std::string)> extend = [&](const std::string& text) {
    f(text);
    if (text.size() == length) return;
    for (const char c : alphabet) extend(text + c);
  };
  extend("/");
}

bool IsCanonical(std::string_view path) { return path.find("//") == std::string_view::npos; }

bool OurMatch(const std::vector<std::string>& globs, std::string_view path) {
  for (const std::string& text : globs) {
    const auto glob = Glob::Path(text);
    if (!glob) {
      ADD_FAILURE() << text << ": " << glob.error().message;
      return false;
    }
    if (glob->Matches(path)) return true;
  }
  return false;
}

TEST(OpenShellGlobs, AllowTheSamePathsAndDenyNoFewer) {
  std::vector<std::string> paths;
  ForEachText("/a", 6, [&](const std::string& path) {
    if (IsCanonical(path)) paths.push_back(path);
  });
  size_t patterns = 0;
  ForEachText("/a*?", 6, [&](const std::string& pattern) {
    // `**` in a class of its own: three stars in a row are no pattern anyone writes.
    if (pattern.find("***") != std::string::npos || pattern.find("//") != std::string::npos) return;
    ++patterns;
    const auto allow = RewritePathGlob(Effect::kAllow, pattern);
    const auto deny = RewritePathGlob(Effect::kDeny, pattern);
    ASSERT_TRUE(deny) << pattern;
    EXPECT_EQ(allow.has_value(), pattern.find('?') == std::string::npos) << pattern;
    for (const std::string& path : paths) {
      const bool theirs = TheirMatch(pattern, path, true);
      if (allow && OurMatch(allow->globs, path) != theirs)
        ADD_FAILURE() << pattern << " allows " << path << ": they say " << theirs;
      if (theirs && !OurMatch(deny->globs, path)) ADD_FAILURE() << pattern << " denies " << path << " there";
      if (!deny->widened && OurMatch(deny->globs, path) != theirs)
        ADD_FAILURE() << pattern << " denies more at " << path << ", unsaid";
    }
  });
  EXPECT_GT(patterns, 500u);
}

TEST(OpenShellGlobs, KnowTheOtherForms) {
  EXPECT_THAT(RewritePathGlob(Effect::kAllow, "/{a,b}/c")->globs, ElementsAre("/a/c", "/b/c"));
  EXPECT_THAT(RewritePathGlob(Effect::kAllow, "**/info/refs")->globs, ElementsAre("/**/info/refs", "/info/refs"));
  EXPECT_THAT(RewritePathGlob(Effect::kAllow, "/a\\*b")->globs, ElementsAre("/a%2Ab"));
  EXPECT_TRUE(RewritePathGlob(Effect::kAllow, "a/b")->globs.empty());
  EXPECT_THAT(RewritePathGlob(Effect::kDeny, "/[a-z]x")->globs, ElementsAre("/*x"));
  EXPECT_THAT(RewritePathGlob(Effect::kDeny, "/[]a]x")->globs, ElementsAre("/*x"));
  for (const char* bad : {"/{a", "/a}", "/{a,{b,c}}", "/[a", "/a\\", "/[ab]"})
    EXPECT_FALSE(RewritePathGlob(Effect::kAllow, bad)) << bad;
  EXPECT_FALSE(RewritePathGlob(Effect::kAllow, "/**/a/**/a/**/a/**/a/**/a/**/a/**/a/b"));
  EXPECT_FALSE(RewritePathGlob(Effect::kDeny, "/{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}"));
  EXPECT_THAT(RewriteValueGlob(Effect::kAllow, "{v1,v2}.**")->globs, ElementsAre("v1.*", "v2.*"));
  EXPECT_FALSE(RewriteValueGlob(Effect::kAllow, "v?"));
  EXPECT_THAT(RewriteValueGlob(Effect::kDeny, "v?[0-9]")->globs, ElementsAre("v*"));
}

// Random lists in which the first match decides, against the rules made of them, over every name of a small universe. What the
// rules reach beyond the list is a fault; what they lack must have been said.
TEST(FirstMatch, NeverReachesMoreAndSaysWhatItLacks) {
  constexpr const char* kHosts[] = {"**", "x.t", "a.x.t", "b.a.x.t", "**.x.t", "**.a.x.t", "y.t", "**.t"};
  constexpr const char* kNames[] = {"x.t", "a.x.t", "b.x.t", "b.a.x.t", "c.b.a.x.t", "y.t", "z.y.t", "t", "other"};
  std::mt19937 random(20261129);
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  size_t equal = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<FirstMatchEntry> entries;
    Node node;
    node.span = {"list", 1, 1, 1};
    for (size_t n = 1 + pick(5); n > 0; --n) {
      auto rule = ImportBuilder::Make({.effect = Effect::kDeny, .verb = "tcp", .host = kHosts[pick(std::size(kHosts))]}, node);
      ASSERT_TRUE(rule);
      entries.push_back({pick(2) == 0 ? Effect::kAllow : Effect::kDeny, rule->host, &node});
    }
    ImportBuilder builder(ImportKind::kOpenSandbox);
    ASSERT_TRUE(AddFirstMatch(entries, "them", &builder));
    const Imported imported = builder.Finish("list");
    bool narrower = false;
    for (const ImportRemark& remark : imported.remarks) narrower |= remark.finding.code == "import-narrower";
    const auto snapshot = LoadText(WriteNative(imported, "list"), "p.yaml");
    ASSERT_TRUE(snapshot) << RenderError(snapshot.error(), false);
    bool same = true;
    for (const char* name : kNames) {
      bool theirs = false;
      for (const FirstMatchEntry& entry : entries)
        if (HostMatchesName(entry.host, name, false)) {
          theirs = entry.effect == Effect::kAllow;
          break;
        }
      ConnectQuery query;
      query.host = name;
      query.port = 443;
      const bool ours = (*snapshot)->DecideConnect(query).allowed();
      ASSERT_TRUE(theirs || !ours) << name << "\n" << WriteNative(imported, "list");
      same = same && ours == theirs;
    }
    ASSERT_TRUE(same || narrower) << WriteNative(imported, "list");
    equal += same;
  }
  EXPECT_GT(equal, 2000u);
}

std::string JsonFault(std::string_view text) {
  const auto node = ParseJson(text, "f.json");
  if (node) return "";
  return std::to_string(node.error().span->line) + ":" + std::to_string(node.error().span->column) + " " + node.error().message;
}

TEST(Json, IsReadStrictlyWithPlaces) {
  EXPECT_EQ(JsonFault("{\n\t\"a\": [1, true, null, \"x\"],\n\t\"b\": {}\n}\n"), "");
  EXPECT_THAT(JsonFault("{\n  \"a\": 1,\n  \"a\": 2\n}"), HasSubstr("3:3 `a` is already set on line 2"));
  EXPECT_THAT(JsonFault("{\"a\": [1,]}"), HasSubstr("1:10"));
  EXPECT_THAT(JsonFault("{\"a\" 1}"), HasSubstr("`:` is expected"));
  EXPECT_THAT(JsonFault("{'a': 1}"), HasSubstr("double quotes"));
  EXPECT_THAT(JsonFault("[\"a\nb\"]"), HasSubstr("control character"));
  EXPECT_THAT(JsonFault("[\"\\u200b\"]"), HasSubstr("invisible"));
  EXPECT_THAT(JsonFault("[\"\\ud800\"]"), HasSubstr("surrogate"));
  EXPECT_THAT(JsonFault("[\"\\n\"]"), HasSubstr("invisible"));
  EXPECT_THAT(JsonFault("[1] x"), HasSubstr("text after the end"));
  EXPECT_THAT(JsonFault("[tru]"), HasSubstr("1:2 not valid JSON: a word that is no value"));
  EXPECT_THAT(JsonFault("[01]"), HasSubstr("is no value"));
  EXPECT_THAT(JsonFault("// no\n{}"), HasSubstr("is no value"));
  EXPECT_THAT(JsonFault(""), HasSubstr("ends where a value"));
  EXPECT_THAT(JsonFault(std::string(40, '[')), HasSubstr("nested too deeply"));
  const auto node = ParseJson("[\"b\\u00fccher\\/\\uD83D\\uDE00\"]", "f.json");
  ASSERT_TRUE(node);
  EXPECT_EQ(node->items[0].text, "b\u00fccher/\U0001F600");
  EXPECT_FALSE(node->items[0].verbatim);
}

}  // namespace
}  // namespace sluice::policy
