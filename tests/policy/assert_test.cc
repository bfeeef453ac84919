// `assert:` as data: what is read, where it stands, and that nothing enforced depends on it.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "policy/compiled.h"
#include "tests/policy/support.h"

namespace sluice::policy {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

#define ASSERT_LIST "version: 1\nassert:\n  - "

TEST(Assert, IsKeptAsRulesThatReadLikeDenyAndAllow) {
  const auto s = Loaded(
      ASSERT_LIST
      "never: POST api.github.com/**\n"
      "  - never: git receive-pack **\n    note: only reads\n    id: no-push\n"
      "  - always: { methods: [GET], host: api.github.com, path: [/a, /b] }\n    by: [/usr/bin/node]\n    query: { q: x* }\n");
  const auto& list = s->assertions();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].kind, Assertion::Kind::kNever);
  EXPECT_FALSE(list[0].rule.allow);
  EXPECT_TRUE(list[0].rule.ports.empty());  // every port, as a deny
  EXPECT_FALSE(list[0].rule.scheme.has_value());
  EXPECT_EQ(list[0].info.text, "POST api.github.com/**");
  EXPECT_EQ(list[0].info.id, "p.yaml:3");
  EXPECT_EQ(list[0].info.span, (SourceSpan{"p.yaml", 3, 12, 22}));
  EXPECT_EQ(list[1].info.id, "no-push");
  EXPECT_EQ(list[1].info.note, "only reads");
  EXPECT_EQ(list[1].rule.verb, Verb::kGitReceivePack);
  EXPECT_EQ(list[2].kind, Assertion::Kind::kAlways);
  EXPECT_TRUE(list[2].rule.allow);
  EXPECT_EQ(list[2].rule.ports, (std::vector<PortRange>{{443, 443}}));  // 443, as an allow
  EXPECT_EQ(list[2].rule.paths.size(), 2u);
  EXPECT_EQ(list[2].rule.by.size(), 1u);
  EXPECT_EQ(list[2].rule.query.size(), 1u);
  EXPECT_EQ(list[2].info.span.line, 7u);
}

TEST(Assert, EnforcesNothing) {
  const std::string rules = WithRules("  - allow: GET a.test\n");
  const auto plain = Loaded(rules);
  const auto asserted = Loaded(rules + "assert:\n  - never: GET a.test\n  - always: POST b.test\n");
  EXPECT_EQ(plain->digest(), asserted->digest());
  EXPECT_EQ(asserted->rules().size(), 1u);
  EXPECT_TRUE(asserted->DecideRequest(Request("GET", To("a.test", 443), "/").Get()).allowed);
  EXPECT_FALSE(asserted->DecideRequest(Request("POST", To("b.test", 443), "/").Get()).allowed);
  EXPECT_EQ(asserted->DecideName({nullptr, "b.test", kDnsA, kNow}).verdict, NameVerdict::kDeny);
}

TEST(Assert, RefusesWhatItCannotMean) {
  struct Case {
    const char* text;
    const char* error;
  };
  for (const Case& c : {
           Case{"version: 1\nassert: {}\n", "p.yaml:2:9: error: `assert` is a list"},
           Case{ASSERT_LIST "POST a.test\n", "p.yaml:3:5: error: an assertion is `always: VERB TARGET`"},
           Case{ASSERT_LIST "note: x\n", "p.yaml:3:5: error: an assertion needs `always` or `never`"},
           Case{ASSERT_LIST "nevr: GET a.test\n", "p.yaml:3:5: error: unknown key `nevr` in an assertion; did you mean `never`?"},
           Case{ASSERT_LIST "deny: GET a.test\n", "p.yaml:3:5: error: unknown key `deny` in an assertion; here it is `never`"},
           Case{ASSERT_LIST "allow: GET a.test\n", "p.yaml:3:5: error: unknown key `allow` in an assertion; here it is `always`"},
           Case{ASSERT_LIST "never: GET a.test\n    always: GET a.test\n",
                "p.yaml:4:5: error: an assertion is one `always` or one `never`"},
           Case{ASSERT_LIST "never: GTE a.test\n", "p.yaml:3:12: error: unknown verb `GTE`; did you mean `GET`?"},
           Case{ASSERT_LIST "never: GET a.tes st\n", "p.yaml:3:21: error: one target a rule"},
           Case{ASSERT_LIST "never: GET a.test\n    under: [/x]\n", "p.yaml:4:5: error: `under` in a never"},
           Case{ASSERT_LIST "never: GET a.test\n    query-keys: [a]\n",
                "p.yaml:4:5: error: `query-keys` closes the keys of an always; a never takes `query`"},
           Case{ASSERT_LIST "never: GET a.test\n    encoded-slash: true\n", "p.yaml:4:5: error: `encoded-slash` opens an always"},
           Case{ASSERT_LIST "always: GET a.test\n    until: 2027-01-01\n",
                "p.yaml:4:5: error: unknown key `until` in an assertion; it holds in every version"},
           Case{ASSERT_LIST "never: GET a.test\n    with: x\n", "p.yaml:4:5: error: unknown key `with` in an assertion"},
           Case{ASSERT_LIST "always: tcp a.test\n", "p.yaml:3:17: error: `tcp` needs ports"},
           Case{"version: 1\nrules:\n  - never: GET a.test\n",
                "p.yaml:3:5: error: unknown key `never` in a rule; it stands under `assert`"},
           Case{"version: 1\nrules:\n  - allow: GET a.test\n    id: x\nassert:\n  - never: GET b.test\n    id: x\n",
                "p.yaml:6:12: error: the id `x` is already that of the rule at p.yaml:3"},
       })
    EXPECT_THAT(LoadMessage(c.text), StartsWith(c.error)) << c.text;
  std::string many = "version: 1\nassert:\n";
  for (int i = 0; i < 1001; ++i) many += "  - never: GET a.test\n";
  EXPECT_THAT(LoadMessage(many), StartsWith("p.yaml:1003:12: error: more than 1000 assertions"));
}

TEST(Assert, EntriesOfOneLineHaveIdsOfTheirOwn) {
  const auto s = Loaded(
      "version: 1\nrules: [{allow: GET a.test}, {allow: GET b.test}]\n"
      "assert: [{never: GET c.test}, {never: GET d.test}]\n");
  EXPECT_EQ(s->rules()[0].id, "p.yaml:2");
  EXPECT_EQ(s->rules()[1].id, "p.yaml:2:38");
  EXPECT_EQ(s->assertions()[1].info.id, "p.yaml:3:39");
}

TEST(Assert, OfAnIncludedFileBindsTheComposition) {
  std::string folder = (std::filesystem::temp_directory_path() / "assert-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  folder = std::filesystem::canonical(folder).string();
  const auto write = [&](const char* name, const char* text) { std::ofstream(folder + name) << text; };
  write("/top.yaml", "version: 1\ninclude: [common.yaml]\nassert:\n  - always: GET a.test\nrules:\n  - allow: POST a.test\n");
  write("/common.yaml", "version: 1\nassert:\n  - never: POST a.test\n");
  const auto s = LoadFile(folder + "/top.yaml");
  write("/script", "#!/bin/sh\n");
  write("/by.yaml", ("version: 1\nassert:\n  - never: GET a.test\n    by: [" + folder + "/script]\n").c_str());
  const auto by = LoadFile(folder + "/by.yaml");
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(s) << s.error().message;
  ASSERT_EQ((*s)->assertions().size(), 2u);
  EXPECT_EQ((*s)->assertions()[1].info.id, "common.yaml:3");
  EXPECT_THAT((*s)->assertions()[1].info.span.file, HasSubstr("common.yaml"));
  // An assertion about a script would be about no process at all.
  ASSERT_FALSE(by);
  EXPECT_THAT(by.error().message, HasSubstr("is a script"));
}

}  // namespace
}  // namespace sluice::policy
