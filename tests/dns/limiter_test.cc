#include "dns/limiter.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

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
  for (int i = 0; i < 300; ++i) passed += limiter.JudgeUpstream(1, kStart) ? 0 : 1;
  EXPECT_EQ(passed, 200);
  for (int i = 0; i < 300; ++i) passed += limiter.JudgeUpstream(1, kStart + seconds(1)) ? 0 : 1;
  EXPECT_EQ(passed, 250);
  EXPECT_FALSE(limiter.JudgeUpstream(2, kStart + seconds(1))) << "another client has its own ration";
}

TEST(LimiterTest, ManyClientsTogetherHaveABoundToo) {
  Limiter limiter({});
  int passed = 0;
  for (uint64_t client = 0; client < 10'000; ++client) passed += limiter.JudgeUpstream(client, kStart) ? 0 : 1;
  EXPECT_EQ(passed, 800);
}

TEST(LimiterTest, ANameCountsByWhatItMayCarry) {
  EXPECT_EQ(NameWeight("api.a.test", "a.test"), 1);
  EXPECT_EQ(NameWeight("my-service.a.test", "a.test"), 1);
  EXPECT_EQ(NameWeight(std::string(40, 'a') + ".a.test", "a.test"), 1) << "long, and says nothing";
  EXPECT_GE(NameWeight("0123456789abcdef0123456789abcdef.a.test", "a.test"), 3);
  EXPECT_EQ(NameWeight("k7q2zx9vb4n8m1pw5t3y6u0i2o4a7s9d.f5g8h1j3k6l9.a.test", "a.test"), 4) << "the most";
  EXPECT_EQ(NameWeight("a.test", "a.test"), 1);
  Limiter limiter({});
  int passed = 0;
  for (int i = 0; i < 100; ++i)
    passed += limiter.JudgeNewName("k7q2zx9vb4n8m1pw5t3y6u0i2o4a" + std::to_string(1000 + i) + ".a.test", "GET *.a.test", kStart)
                  ? 0
                  : 1;
  EXPECT_LT(passed, 31);
  EXPECT_GE(passed, 15) << "a score, not a verdict";
}

TEST(LimiterTest, ADomainWhoseNewNamesDoNotExistGetsNoMore) {
  Limiter limiter({});
  const std::string rule = "GET *.a.test";
  const auto ask = [&](int i, bool exists, SteadyTime now) {
    const std::string name = "n" + std::to_string(i) + ".a.test";
    if (limiter.JudgeAbsence(name, rule, now) || limiter.JudgeNewName(name, rule, now)) return false;
    limiter.NoteExistence(name, rule, exists, now);
    return true;
  };
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(ask(i, false, kStart)) << i;
  EXPECT_FALSE(ask(20, false, kStart));
  EXPECT_FALSE(limiter.JudgeAbsence("n0.a.test", rule, kStart)) << "names that passed keep passing";
  EXPECT_FALSE(limiter.JudgeAbsence("n0.b.test", "GET *.b.test", kStart)) << "another domain";
  EXPECT_FALSE(limiter.JudgeAbsence("spelled.a.test", "GET spelled.a.test", kStart));
  EXPECT_TRUE(ask(21, false, kStart + std::chrono::minutes(1))) << "halved";
  Limiter mixed({});
  for (int i = 0; i < 40; ++i) {
    const std::string name = "n" + std::to_string(i) + ".a.test";
    EXPECT_FALSE(mixed.JudgeAbsence(name, rule, kStart)) << i;
    mixed.NoteExistence(name, rule, i % 2 == 0, kStart);
  }
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

// Forgetting is a gift, so it must take as many as docs/limits.md says.
TEST(LimiterTest, NamesOverTheBoundMakeItForgetThemAll) {
  Limiter limiter({.new_names_per_minute = 1e9});
  const std::string rule = "GET *.a.test";
  const auto name = [](size_t i) { return "n" + std::to_string(i) + ".a.test"; };
  for (size_t i = 0; i < kMaxKnownNames; ++i) ASSERT_FALSE(limiter.JudgeNewName(name(i), rule, kStart));
  EXPECT_FALSE(limiter.IsNew(name(0), rule));
  EXPECT_FALSE(limiter.JudgeNewName(name(kMaxKnownNames), rule, kStart));
  EXPECT_TRUE(limiter.IsNew(name(0), rule));
  EXPECT_FALSE(limiter.IsNew(name(kMaxKnownNames), rule));
}

TEST(LimiterTest, DomainsOverTheBoundMakeItForgetThemAll) {
  Limiter limiter({.new_names_per_minute = 1});
  const auto passes = [&](size_t domain, int name) {
    const std::string text = "d" + std::to_string(domain) + ".test";
    return !limiter.JudgeNewName("n" + std::to_string(name) + "." + text, "GET *." + text, kStart);
  };
  for (size_t i = 0; i < kMaxDomains; ++i) ASSERT_TRUE(passes(i, 0));
  EXPECT_FALSE(passes(0, 1));
  EXPECT_TRUE(passes(kMaxDomains, 0));
  EXPECT_TRUE(passes(0, 2));
}

TEST(LimiterTest, ClientsOverTheBoundMakeItForgetThemAll) {
  Limiter limiter({.client_burst = 1, .upstream_burst = 1e9});
  const auto passes = [&](size_t client) { return !limiter.JudgeUpstream(client, kStart); };
  for (size_t i = 0; i < kMaxClients; ++i) ASSERT_TRUE(passes(i));
  EXPECT_FALSE(passes(0));
  EXPECT_TRUE(passes(kMaxClients));
  EXPECT_TRUE(passes(0));
}

TEST(LimiterTest, ResolversThatShareRationsCountTogether) {
  const auto rations = std::make_shared<SharedRations>();
  Limiter outer({}, rations);
  Limiter inner({}, rations);
  int passed = 0;
  for (int i = 0; i < 100; ++i) {
    Limiter& limiter = i % 2 == 0 ? outer : inner;
    passed += limiter.JudgeNewName("n" + std::to_string(i) + ".a.test", "GET *.a.test", kStart) ? 0 : 1;
  }
  EXPECT_EQ(passed, 60);
  EXPECT_FALSE(inner.JudgeNewName("n0.a.test", "GET *.a.test", kStart)) << "what passed in one passes in the other";
  EXPECT_TRUE(inner.JudgeNewName("n99.a.test", "GET *.a.test", kStart));
  Limiter later({}, rations);
  EXPECT_TRUE(later.JudgeNewName("n99.a.test", "GET *.a.test", kStart)) << "a later one begins with what is left";
  EXPECT_FALSE(later.JudgeNewName("n99.a.test", "GET *.a.test", kStart + seconds(2))) << "one a second comes back";
  EXPECT_FALSE(later.JudgeNewName("n0.example.org", "GET **", kStart)) << "another domain has its own ration";
}

TEST(LimiterTest, ResolversThatShareRationsHaveOneBoundUpstream) {
  const auto rations = std::make_shared<SharedRations>();
  int passed = 0;
  for (uint64_t run = 0; run < 10; ++run) {
    Limiter limiter({}, rations);
    for (uint64_t client = 0; client < 200; ++client) passed += limiter.JudgeUpstream(client, kStart) ? 0 : 1;
  }
  EXPECT_EQ(passed, 800);
}

TEST(LimiterTest, NamesThatDoNotExistAreCountedTogetherToo) {
  const auto rations = std::make_shared<SharedRations>();
  Limiter inner({}, rations);
  for (int i = 0; i < 20; ++i) inner.NoteExistence("n" + std::to_string(i) + ".a.test", "GET *.a.test", false, kStart);
  Limiter later({}, rations);
  EXPECT_TRUE(later.JudgeAbsence("new.a.test", "GET *.a.test", kStart));
  EXPECT_FALSE(later.JudgeAbsence("new.b.test", "GET *.b.test", kStart)) << "another domain";
  EXPECT_FALSE(later.JudgeAbsence("new.a.test", "GET *.a.test", kStart + seconds(70))) << "they are halved";
}

}  // namespace
}  // namespace sluice::dns
