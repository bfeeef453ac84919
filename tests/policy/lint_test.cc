#include <gmock/gmock.h>

#include <functional>
#include <random>

#include "policy/overlap.h"
#include "tests/policy/support.h"

namespace sluice::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Codes(const std::string& rules) {
  std::vector<std::string> codes;
  for (const Finding& finding : Lint(*Loaded(WithRules(rules)), kNow)) codes.push_back(finding.code);
  return codes;
}

TEST(Lint, FindsWhatIsWorthARemark) {
  EXPECT_THAT(Codes("  - allow: GET a.test\n  - deny: GET a.test/x\n"), IsEmpty());
  EXPECT_THAT(Codes("  - allow: GET http://a.test\n"), ElementsAre("cleartext"));
  EXPECT_THAT(Codes("  - allow: git receive-pack a.test/x\n"), ElementsAre("push"));
  EXPECT_THAT(Codes("  - allow: GET a.test\n    until: 2026-01-01\n"), ElementsAre("expired"));
  EXPECT_THAT(Codes("  - allow: tcp a.test:50-60\n"), ElementsAre("port-53"));
  EXPECT_THAT(Codes("  - allow: GET a.test\n  - allow: GET A.test:443\n    note: again\n"), ElementsAre("duplicate"));
}

TEST(Lint, SeesRulesThatADenyEmpties) {
  for (const char* deny :
       {"dns a.test", "dns **", "dns *.test", "tcp a.test", "tls a.test:443", "GET,POST a.test", "http a.test/**", "http **"})
    EXPECT_THAT(Codes("  - allow: GET a.test/x\n  - deny: " + std::string(deny) + "\n"), ElementsAre("shadowed")) << deny;
  for (const char* deny :
       {"dns b.test", "tcp a.test:80", "HEAD a.test", "GET a.test/y", "GET http://a.test", "udp a.test", "git fetch-pack a.test"})
    EXPECT_THAT(Codes("  - allow: GET a.test/x\n  - deny: " + std::string(deny) + "\n"), IsEmpty()) << deny;
  EXPECT_THAT(Codes("  - allow: GET a.test/x\n  - deny: http a.test\n    by: [/usr/bin/x]\n"), IsEmpty());
}

TEST(Lint, CallsAnOpaqueAllowThatMeetsAnInnerDenyAnError) {
  const auto findings = Lint(*Loaded(WithRules("  - allow: tls *.test\n  - deny: POST a.test/admin\n")), kNow);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].code, "opaque-allow-meets-deny");
  EXPECT_EQ(findings[0].severity, Finding::Severity::kError);
  EXPECT_EQ(findings[0].span.line, 3u);
  EXPECT_EQ(findings[0].other.line, 4u);
  EXPECT_THAT(findings[0].message, HasSubstr("p.yaml:4"));
  EXPECT_THAT(Codes("  - allow: tcp a.test:5432\n  - deny: POST a.test\n"), IsEmpty());
  EXPECT_THAT(Codes("  - allow: tcp a.test:5432\n  - deny: POST a.test:5000-6000\n"), ElementsAre("opaque-allow-meets-deny"));
  EXPECT_THAT(Codes("  - allow: tls a.test\n  - deny: POST b.test\n"), IsEmpty());
  EXPECT_THAT(Codes("  - allow: tls a.test\n    by: [/usr/bin/a*]\n  - deny: POST a.test\n    by: [/usr/bin/b]\n"), IsEmpty());
  EXPECT_THAT(Codes("  - allow: tls a.test\n    by: [/usr/bin/a*]\n  - deny: POST a.test\n    by: [/usr/**]\n"),
              ElementsAre("opaque-allow-meets-deny"));
}

TEST(Lint, SeesAVerbLeftHalfWorking) {
  EXPECT_THAT(Codes("  - allow: git fetch-pack a.test/o/*\n  - deny: POST a.test\n"), ElementsAre("half-working"));
  EXPECT_THAT(Codes("  - allow: git fetch-pack a.test/o/*\n  - deny: POST a.test/o/r.git/**\n"), ElementsAre("half-working"));
  EXPECT_THAT(Codes("  - allow: git fetch-pack a.test/o/*\n  - deny: POST a.test/p/**\n"), IsEmpty());
  EXPECT_THAT(Codes("  - allow: git fetch-pack a.test/o/*\n  - deny: DELETE a.test\n"), IsEmpty());
}

TEST(Lint, KnowsOperations) {
  struct Case {
    const char* rules;
    std::vector<std::string> codes;
  };
  for (const Case& c :
       {Case{"  - allow: ws ws://a.test/s\n", {"cleartext"}},
        Case{"  - allow: git receive-pack a.test/x\n    refs: [refs/heads/*]\n", {}},
        Case{"  - allow: mcp tools/call a.test/mcp\n", {"mcp-session"}},
        Case{"  - allow: mcp tools/call a.test/mcp\n  - allow: mcp initialize a.test/mcp\n", {}},
        Case{"  - allow: mcp tools/call a.test/mcp\n  - allow: mcp initialize a.test/other\n", {"mcp-session"}},
        Case{"  - allow: mcp tools/call a.test/mcp\n  - allow: POST a.test/**\n", {}},
        Case{"  - allow: mcp * a.test/mcp\n", {}},
        Case{"  - allow: mcp * a.test/mcp\n  - deny: GET a.test\n", {"half-working"}},
        Case{"  - allow: mcp * a.test/mcp\n  - deny: GET,POST,DELETE a.test\n", {"shadowed"}},
        Case{"  - allow: graphql query a.test/q\n  - deny: GET a.test\n", {"half-working"}},
        Case{"  - allow: graphql mutation a.test/q\n  - deny: GET a.test\n", {}},
        Case{"  - allow: graphql mutation a.test/q\n  - deny: POST a.test\n", {"shadowed"}},
        Case{"  - allow: ws a.test/q\n  - deny: GET a.test\n", {"shadowed"}},
        Case{"  - allow: grpc a.test p.S/M\n  - deny: grpc a.test p.S/*\n", {"shadowed"}},
        Case{"  - allow: grpc a.test p.S/M*\n  - deny: grpc a.test p.S/N\n", {}},
        Case{"  - allow: graphql query a.test/q\n  - deny: graphql query a.test/q\n", {"shadowed"}},
        Case{"  - allow: graphql query a.test/q\n  - deny: graphql query a.test/q\n    fields: [x]\n", {}},
        Case{"  - allow: POST a.test/q\n  - deny: POST a.test/q\n    json: { /a: [x] }\n", {}},
        Case{"  - allow: http a.test\n  - deny: graphql mutation a.test\n", {"deny-by-body"}},
        Case{"  - allow: git receive-pack a.test/x\n  - deny: git receive-pack a.test/x\n    refs: [refs/heads/main]\n",
             {"push"}},
        Case{"  - allow: tls a.test\n  - deny: ws a.test\n", {"opaque-allow-meets-deny"}}})
    EXPECT_EQ(Codes(c.rules), c.codes) << c.rules;
  std::vector<std::string> codes;
  for (const Finding& finding :
       Lint(*Loaded("version: 1\ncredentials: { c: { from: env C, send: bearer, to: '*.a.test' } }\nrules:\n"
                    "  - allow: GET *.a.test\n    with: c\n"),
            kNow))
    codes.push_back(finding.code);
  EXPECT_THAT(codes, ElementsAre("broad-credential"));
}

// An effective opaque allow that a deny voids at some point is always found: no silent loss.
TEST(Overlap, OfGlobsIsSymmetricAndExactOnExamples) {
  struct Case {
    const char* a;
    const char* b;
    bool overlap;
  };
  for (const Case& c : std::initializer_list<Case>{{"/a/**", "/**/b", true},
                                                   {"/a/*", "/*/b", true},
                                                   {"/a/*", "/b/**", false},
                                                   {"/a*c", "/ab*", true},
                                                   {"/a*", "/*/b", false},
                                                   {"/x", "/x", true},
                                                   {"/**", "/anything/else", true},
                                                   {"/*a", "/*b", false}}) {
    const Glob a = *Glob::Path(c.a);
    const Glob b = *Glob::Path(c.b);
    EXPECT_EQ(GlobsOverlap(a, b), c.overlap) << c.a << " " << c.b;
    EXPECT_EQ(GlobsOverlap(b, a), c.overlap) << c.b << " " << c.a;
  }
}

// Every text of a small world, against what the patterns say of each other.
TEST(Overlap, OfPatternsAgreesWithEveryTextOfASmallWorld) {
  std::vector<std::string> texts;
  const std::function<void(std::string)> grow = [&](const std::string& text) {
    texts.push_back(text);
    if (text.size() < 6)
      for (const char c : {'a', 'b', '/'}) grow(text + c);
  };
  grow("/");
  std::mt19937 random(7);
  const auto draw = [&] {
    static constexpr std::string_view kSegments[] = {"a", "b", "*", "a*", "*b", "**", "ab", ""};
    std::string text;
    const size_t count = 1 + random() % 3;
    for (size_t i = 0; i < count; ++i) text += "/" + std::string(kSegments[random() % std::size(kSegments)]);
    return text;
  };
  size_t held = 0;
  size_t met = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<Glob> outer;
    std::vector<PathPattern> patterns;
    for (size_t i = 0; i < 1 + random() % 2; ++i) {
      auto glob = Glob::Path(draw());
      if (!glob) continue;
      patterns.push_back(PatternOf(*glob, "", PathCase::kExact));
      outer.push_back(std::move(*glob));
    }
    const auto inner = Glob::Path(draw());
    if (!inner || outer.empty()) continue;
    const PathPattern pattern = PatternOf(*inner, "", PathCase::kExact);
    bool all = true;
    bool some = false;
    for (const std::string& text : texts) {
      if (!inner->Matches(text)) continue;
      const bool in = std::any_of(outer.begin(), outer.end(), [&](const Glob& g) { return g.Matches(text); });
      all &= in;
      some |= in && outer[0].Matches(text);
    }
    const bool holds = PathsHold(patterns, pattern);
    // Longer texts may tell two patterns apart that these do not.
    if (holds) EXPECT_TRUE(all) << inner->text() << " in " << outer[0].text();
    held += holds ? 1 : 0;
    const auto common = CommonText(patterns[0], pattern);
    if (some) EXPECT_TRUE(common) << inner->text() << " and " << outer[0].text();
    if (common) {
      EXPECT_TRUE(inner->Matches(*common) && outer[0].Matches(*common)) << *common;
      ++met;
    }
  }
  EXPECT_GT(held, 100u);
  EXPECT_GT(met, 500u);
}

}  // namespace
}  // namespace sluice::policy
