#include "policy/target.h"

#include <gtest/gtest.h>

#include <random>

#include "policy/host_pattern.h"

namespace sluice::policy {
namespace {

TEST(CanonicalizeTarget, BringsSpellingsToOneForm) {
  struct Case {
    const char* raw;
    const char* path;
    const char* matched;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"/", "/", "/"},
           {"/a//b///c", "/a/b/c", "/a/b/c"},
           {"/a/./b/../c", "/a/c", "/a/c"},
           {"/a/..", "/", "/"},
           {"/a/.", "/a/", "/a/"},
           {"/a/b/..", "/a/", "/a/"},
           {"/%7euser/%41%2d%2e", "/~user/A-.", "/~user/A-."},
           {"/a/%2e%2e/b", "/b", "/b"},
           {"/%c3%bc", "/%C3%BC", "/%C3%BC"},
           {"/a%40b%3a", "/a%40b%3A", "/a@b:"},
           {"/a@b:", "/a@b:", "/a@b:"},
           {"/a%2Ab", "/a%2Ab", "/a*b"},
           {"/a[0]", "/a%5B0%5D", "/a%5B0%5D"},
           {"/a%252e", "/a%252e", "/a%252e"},
           {"/a%2fb", "/a%2Fb", "/a%2Fb"},
           {"/a;x=1", "/a;x=1", "/a;x=1"},
           {"/a%3Bx", "/a%3Bx", "/a%3Bx"},
       }) {
    const auto target = CanonicalizeTarget(c.raw);
    ASSERT_TRUE(target) << c.raw;
    EXPECT_EQ(target->path, c.path) << c.raw;
    EXPECT_EQ(target->ForMatching(), c.matched) << c.raw;
  }
}

TEST(CanonicalizeTarget, RefusesWhatServersReadDifferently) {
  const std::string too_long = "/" + std::string(16 * 1024, 'a');
  for (const char* bad :
       {"",   "a",   "*",    "?q",  "/a b",     "/a#b",      "/a\\b", "/a%5cb",    "/%00",   "/%0a",   "/%7f",
        "/%", "/%4", "/%zz", "/..", "/a/../..", "/%2e%2e/x", "/a\tb", "/\xc3\xbc", "/a?b c", "/a?b#c", too_long.c_str()})
    EXPECT_FALSE(CanonicalizeTarget(bad)) << bad;
  EXPECT_FALSE(CanonicalizeTarget(std::string_view("/a\0b", 4)));
}

TEST(CanonicalizeTarget, KeepsTheQueryVerbatim) {
  const auto target = CanonicalizeTarget("/a/../b?x=%41&y=../+/");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->ForUpstream(), "/b?x=%41&y=../+/");
  const auto bare = CanonicalizeTarget("/a?");
  ASSERT_TRUE(bare);
  EXPECT_TRUE(bare->has_query);
  EXPECT_EQ(bare->ForUpstream(), "/a?");
}

TEST(CanonicalizeTarget, GivesDeniesTheOtherReadings) {
  const auto readings = [](const char* raw) { return CanonicalizeTarget(raw)->wide_readings; };
  EXPECT_TRUE(readings("/plain/%41").empty());
  EXPECT_EQ(readings("/a%2F..%2Fadmin"), std::vector<std::string>{"/admin"});
  EXPECT_EQ(readings("/a/..;/admin;x"), std::vector<std::string>{"/admin"});
  EXPECT_EQ(readings("/a%2F..;x%2Fadmin"), (std::vector<std::string>{"/a/..;x/admin", "/a%2F..", "/admin"}));
  EXPECT_EQ(readings("/%2F..%2F..%2Fx"), std::vector<std::string>{"/x"});
}

TEST(CanonicalizeTarget, IsAFixedPointOnRandomTargets) {
  std::mt19937 random(7);
  const std::string_view pieces[] = {"/",   "/",   "a",   ".", "..",     "%2e", "%2F", "%2f", ";",
                                     "%41", "%25", "%3a", "[", "%c3%bc", "?",   "&",   "~",   "%7E"};
  size_t good = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string raw = "/";
    for (size_t n = random() % 10; n > 0; --n) raw += pieces[random() % std::size(pieces)];
    const auto once = CanonicalizeTarget(raw);
    if (!once) continue;
    ++good;
    const auto twice = CanonicalizeTarget(once->ForUpstream());
    ASSERT_TRUE(twice) << raw;
    ASSERT_EQ(twice->ForUpstream(), once->ForUpstream()) << raw;
    ASSERT_EQ(twice->ForMatching(), once->ForMatching()) << raw;
    ASSERT_EQ(once->path.find("//"), std::string::npos) << raw;
    ASSERT_EQ((once->path + "/").find("/../"), std::string::npos) << raw;
  }
  EXPECT_GT(good, 20000u);
}

TEST(CanonicalName, LowersAndStripsOneFinalDotOnly) {
  EXPECT_EQ(CanonicalName("API.GitHub.com."), "api.github.com");
  EXPECT_EQ(CanonicalName("db"), "db");
  EXPECT_EQ(CanonicalName("_dns.a-b.xn--bcher-kva"), "_dns.a-b.xn--bcher-kva");
  const std::string label63(63, 'a');
  EXPECT_TRUE(CanonicalName(label63 + ".b"));
  for (const std::string& bad : {std::string(),
                                 std::string("."),
                                 std::string("a.."),
                                 std::string(".a"),
                                 std::string("a..b"),
                                 label63 + "a.b",
                                 std::string("b\xc3\xbc.de"),
                                 std::string("a b"),
                                 std::string("a/b"),
                                 std::string("a:1"),
                                 std::string("1.2.3.4"),
                                 std::string("127.1"),
                                 std::string("0x7f.1"),
                                 std::string("0x7f000001"),
                                 std::string("017700000001"),
                                 std::string("a.0x1"),
                                 std::string("a.1"),
                                 std::string("a\0b", 3),
                                 std::string("*.a"),
                                 label63 + "." + label63 + "." + label63 + "." + label63})
    EXPECT_FALSE(CanonicalName(bad)) << bad;
}

TEST(ParseAuthority, TakesHostPortAndLiteralsOnly) {
  EXPECT_EQ(ParseAuthority("A.test:8443")->name, "a.test");
  EXPECT_EQ(ParseAuthority("A.test:8443")->port, 8443);
  EXPECT_EQ(ParseAuthority("a.test")->port, std::nullopt);
  EXPECT_EQ(ParseAuthority("[::1]:80")->address, IpAddress::Parse("::1"));
  EXPECT_EQ(ParseAuthority("1.2.3.4:80")->address, IpAddress::Parse("1.2.3.4"));
  for (const char* bad :
       {"",          ":80",      "a.test:", "a.test:0",  "a.test:65536", "a.test:8x", "u@a.test", "a.test:80:80",
        "::1",       "[::1",     "[::1]80", "[1.2.3.4]", "[fe80::1%lo]", "127.1",     "0x7f.1",   "017700000001",
        "1.2.3.4.5", "a%2etest", "a.test/", " a.test"})
    EXPECT_FALSE(ParseAuthority(bad)) << bad;
}

TEST(HostPattern, BringsPolicyTextToALabels) {
  struct Case {
    const char* text;
    const char* canonical;
  };
  for (const Case& c : std::initializer_list<Case>{{"API.Ex.com.", "api.ex.com"},
                                                   {"b\xc3\xbc"
                                                    "cher.ex",
                                                    "xn--bcher-kva.ex"},
                                                   {"B\xc3\x9c"
                                                    "CHER.ex",
                                                    "xn--bcher-kva.ex"},
                                                   {"stra\xc3\x9f"
                                                    "e.de",
                                                    "xn--strae-oqa.de"},
                                                   {"**.a-*.test", "**.a-*.test"},
                                                   {"*", "*"},
                                                   {"**", "**"},
                                                   {"1.2.3.4", "1.2.3.4"},
                                                   {"10.0.0.0/8", "10.0.0.0/8"},
                                                   {"::ffff:1.2.3.4", "1.2.3.4"}}) {
    const auto pattern = ParseHostPattern(c.text);
    ASSERT_TRUE(pattern) << c.text << ": " << pattern.error().message;
    EXPECT_EQ(pattern->text, c.canonical);
  }
  for (const char* bad : {"",
                          ".",
                          "a..b",
                          "a.**",
                          "a**.b",
                          "**a.b",
                          "***",
                          "b\xc3\xbc*.ex",
                          "\xef\xbc\xa1.test" /* full-width A */,
                          "a\xef\xbc\x8f"
                          "b" /* full-width slash */,
                          "a\xe2\x80\x8d"
                          "b.test" /* joiner */,
                          "a\xc2\xad"
                          "b.test" /* soft hyphen */,
                          "\xef\xbc\x91.2.3.4",
                          "1.2.3",
                          "0x7f.1",
                          "10.0.0.1/8",
                          "10.0.0.0/33",
                          "a b",
                          "a/b",
                          "a:b",
                          "a%2e.test"})
    EXPECT_FALSE(ParseHostPattern(bad)) << bad;
}

TEST(HostPattern, WildcardsCountLabels) {
  const auto matches = [](const char* pattern, const char* name, bool allow) {
    return HostMatchesName(*ParseHostPattern(pattern), name, allow);
  };
  EXPECT_TRUE(matches("*.x.test", "a.x.test", true));
  EXPECT_FALSE(matches("*.x.test", "x.test", true));
  EXPECT_FALSE(matches("*.x.test", "a.b.x.test", true));
  EXPECT_TRUE(matches("**.x.test", "a.b.x.test", true));
  EXPECT_FALSE(matches("**.x.test", "x.test", true));
  EXPECT_TRUE(matches("a*.test", "a.test", true));
  EXPECT_FALSE(matches("a*.test", "ba.test", true));
  EXPECT_TRUE(matches("*.test", "xn--q.test", true));
  EXPECT_FALSE(matches("x*.test", "xn--q.test", true));
  EXPECT_TRUE(matches("x*.test", "xn--q.test", false));
}

TEST(PathGlobText, DecodesWhatMatchingDecodes) {
  EXPECT_EQ(CanonicalizePathGlob("/%7Eme/a%40b")->text, "/~me/a@b");
  EXPECT_EQ(CanonicalizePathGlob("/a%2ab*")->text, "/a%2Ab*");
  EXPECT_TRUE(CanonicalizePathGlob("/a%2fb")->has_encoded_slash);
  EXPECT_TRUE(CanonicalizePathGlob("/a;b")->has_path_params);
  for (const char* bad :
       {"", "a", "/a?b", "/a{b}", "/a[b]", "/a//b", "/a/./b", "/a/..", "/a%", "/a%00", "/a\\b", "/a b", "/a#b", "/\xc3\xbc"})
    EXPECT_FALSE(CanonicalizePathGlob(bad)) << bad;
}

}  // namespace
}  // namespace sluice::policy
