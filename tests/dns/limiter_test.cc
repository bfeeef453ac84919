#include "dns/limiter.h"

#include <gtest/gtest.h>

namespace sluice::dns {
namespace {

using std::chrono::seconds;
const SteadyTime kStart{seconds(1000)};

TEST(LimiterTest, ANameSpelledOutInTheRuleIsNeverLimited) {
  Limiter limiter({});
  const std::string name = std::string(60, 'a') + ".test";
  EXPECT_FALSE(limiter.JudgeShape(name, "GET " + name + "/**"));
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(limiter.JudgeNewName(name, "GET " + name, kStart));
}

TEST(LimiterTest, ShapesUnderAWildcardAreBounded) {
  const Limiter limiter({});
  struct Case {
    std::string name;
    bool passes;
  };
  const std::string l40(40, 'a');
  const Case cases[] = {
      {l40 + ".a.test", true},
      {l40 + "a.a.test", false},
      {"a.b.c.d.e.f.g.h.a.test", true},
      {"a.b.c.d.e.f.g.h.i.j.k.a.test", false},
      {l40 + "." + l40 + "." + l40 + ".a.test", false},
  };
  for (const Case& c : cases) EXPECT_EQ(!limiter.JudgeShape(c.name, "GET **.a.test"), c.passes) << c.name;
}

TEST(LimiterTest, NewNamesAreRationedForEachDomain) {
  Limiter limiter({});
  int passed = 0;
  for (int i = 0; i < 100; ++i)
    passed += limiter.JudgeNewName("n" + std::to_string(i) + ".a.test", "GET *.a.test", kStart) ? 0 : 1;
  EXPECT_EQ(passed, 60);
  EXPECT_FALSE(limiter.JudgeNewName("n0.a.test", "GET *.a.test", kStart)) << "known names pass";
  EXPECT_FALSE(limiter.JudgeNewName("n0.example.org", "GET **", kStart)) << "another domain has its own ration";
  EXPECT_TRUE(limiter.JudgeNewName("n99.a.test", "GET *.a.test", kStart));
  EXPECT_FALSE(limiter.JudgeNewName("n99.a.test", "GET *.a.test", kStart + seconds(2))) << "one a second comes back";
}

TEST(LimiterTest, UpstreamLookupsMayBurstButNotFlow) {
  Limiter limiter({});
  int passed = 0;
  for (int i = 0; i < 300; ++i) passed += limiter.JudgeUpstream(kStart) ? 0 : 1;
  EXPECT_EQ(passed, 200);
  for (int i = 0; i < 300; ++i) passed += limiter.JudgeUpstream(kStart + seconds(1)) ? 0 : 1;
  EXPECT_EQ(passed, 250);
}

TEST(LimiterTest, DomainsAreCountedByWhatTheRuleSpellsOrOneCanRegister) {
  EXPECT_EQ(CountingDomain("n.x.io", "GET *.x.io/**"), "x.io");
  EXPECT_EQ(CountingDomain("n.m.x.io", "GET **.x.io/**"), "x.io");
  EXPECT_EQ(CountingDomain("n.m.x.io", "GET *.*.io"), "io");
  EXPECT_EQ(CountingDomain("a.b.example.org", "GET **"), "example.org");
  EXPECT_EQ(CountingDomain("n.x.io", "GET **"), "x.io");
  EXPECT_EQ(CountingDomain("a.example.co.uk", "GET **"), "example.co.uk");
  EXPECT_EQ(CountingDomain("a.b.t.co", "GET **"), "t.co");
  EXPECT_EQ(CountingDomain("example.org", "GET **"), "example.org");
  EXPECT_EQ(CountingDomain("db", "GET **"), "db");
}

}  // namespace
}  // namespace sluice::dns
