// Presets: what ships, what a use of one may say, and where its rules come from.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>

#include "policy/compiled.h"
#include "policy/finding.h"
#include "policy/io/preset_store.h"
#include "tests/policy/support.h"

namespace sluice::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Using(const std::string& entry) { return "version: 1\npresets:\n  - " + entry + "\n"; }

std::vector<std::string> Texts(const std::string& entry) {
  std::vector<std::string> texts;
  const auto snapshot = Loaded(Using(entry));
  for (const RuleInfo& info : snapshot->rules()) texts.push_back(info.text);
  return texts;
}

// A value for each parameter, so that every rule of every preset is made.
std::string Sample(const Preset& preset) {
  static const std::map<ParameterType, std::string> values{
      {ParameterType::kHost, "host.example"}, {ParameterType::kPath, "/base"},      {ParameterType::kSegments, "group/team"},
      {ParameterType::kName, "hello"},        {ParameterType::kLabel, "eu-west-1"}, {ParameterType::kScheme, "https"}};
  std::string entry = preset.Id() + ":";
  for (const PresetParameter& parameter : preset.parameters)
    entry += "\n      " + parameter.name + ": " + values.at(parameter.type);
  return entry;
}

// What a version means: its parameters with their defaults, and its rules with each place filled.
std::string Meaning(const Preset& preset) {
  std::string text;
  for (const PresetParameter& p : preset.parameters)
    text += p.name + " " + std::string(ParameterTypeText(p.type)) + (p.fallback ? "=" + *p.fallback : "") +
            (p.optional ? "?" : "") + " ";
  return text + Loaded(Using(Sample(preset)))->digest();
}

TEST(Presets, ThatShipAreReadAndNeverChange) {
  // A version that has shipped stays as it is: a change is a new version, in a file of its own and a new line here.
  const std::map<std::string, std::string> shipped{
      {"anthropic@1", "host host=api.anthropic.com path path= 0f46f96dd13831e497eda2eb5651bca4530c665d4553c4c09fe3c219b91e399b"},
      {"apt@1",
       "host host path path=/debian scheme scheme=https 2f26b230030297119365e3ebff70deca317b190011f996f71db8013e6f5a6e5a"},
      {"azure-openai@1", "host host deployment name=* 348812b918ab0e940edb753ab4c795a0b2f39b75187d0370e4289ccd5037f3ac"},
      {"bedrock@1", "host host b5d611c5a794e483780609f09c6a268ca3c2ba40ca596ccfe9dd5e0357f97d48"},
      {"cargo@1",
       "host host path path= files host=${host} files-path path= "
       "1f8a8ac7cf5ff0ceafdb0608b4f137db84426a64c02c506572da4d823aba6b46"},
      {"container-pull@1",
       "host host image segments=** auth host? auth-path path=/token blobs host? "
       "91926b0e68010c9c0e0657a41c0c5a418521611e7b862c7628e95ddeac02ab66"},
      {"gemini@1",
       "host host=generativelanguage.googleapis.com 3f2f1374cb0c7bc4ba07dd17f5bebdf28b31c8186ff13bbc119ee24c0abe932b"},
      {"git-read@1",
       "host host=github.com owner segments repo name=* 7cf62a09b658da61e1609f549709423a532f1420b7be51c956b415625dda7939"},
      {"git-write@1",
       "host host=github.com owner segments repo name 24c2d24bf374035291a3259daca63ea6262acb60e004bc0b4163a9406919887e"},
      {"git-write@2",
       "host host=github.com owner segments repo name branches segments "
       "e14c514c700a28f0db0a622ef8c8cea85a1d2cb7fbac79ad206b31762fe03f29"},
      {"github-api-read@1",
       "host host=api.github.com path path= owner name repo name=* "
       "2726f742af77b5a769ed395e9e74e8a9d58a42274016fcdcc7e40e3b06c7638b"},
      {"go@1", "host host path path= sum host? 5f2628bf03d4b917dadaca565d2aed7c1d1ca2077bf7d8d0cda23a27dfabb701"},
      {"mistral@1", "host host=api.mistral.ai a12cf1eeee7844aeffb5da998291bacc6704e0f3f27a49e140c2e22080d3021c"},
      {"npm@1", "host host path path= 9ee554f995a1452fe0bfd834101c60b46fc86c55573a5bb6ce2527c72e6d05b9"},
      {"openai@1", "host host=api.openai.com 0d2f524ad53396f1f863b5652222f78390f5b41f6bdb641dc8e14a20025aa30e"},
      {"openai-compatible@1",
       "host host path path=/v1 scheme scheme=https abf295408fc0ba531bef7a09cb19dc1b93f066ed6fe2addcf2fa4e142f009dc6"},
      {"openrouter@1", "host host=openrouter.ai 4c6eb42adaff354d753e7f1acfff784aefb2ee641784642d04a03e51a124c790"},
      {"pip@1",
       "host host path path=/simple files host=${host} files-path path=/packages "
       "1f8a8ac7cf5ff0ceafdb0608b4f137db84426a64c02c506572da4d823aba6b46"},
      {"vertex@1",
       "region label project name host host=${region}-aiplatform.googleapis.com "
       "6441b98ace64c290b89da18a02c3f0af0cee897b77b77ed224e1b0eba0ba7448"},
  };
  std::map<std::string, std::string> now;
  std::set<std::string> about;
  for (const PresetText& text : PresetTexts()) {
    const auto preset = LoadPreset(text);
    ASSERT_TRUE(preset) << text.name << ": " << RenderError(preset.error(), false);
    EXPECT_EQ(preset->name, text.name);
    EXPECT_EQ(preset->version, text.version);
    EXPECT_TRUE(about.insert(preset->about).second);
    now[preset->Id()] = Meaning(*preset);
    // Defaults are values like others, but for a wildcard that the preset itself writes.
    for (const PresetParameter& p : preset->parameters)
      if (p.fallback && p.fallback->find_first_of("*$") == std::string::npos && !p.fallback->empty())
        EXPECT_TRUE(CheckParameter(p.type, *p.fallback)) << preset->Id() << " " << p.name;
  }
  EXPECT_EQ(now, shipped);
  EXPECT_TRUE(std::is_sorted(PresetTexts().begin(), PresetTexts().end(), [](const PresetText& a, const PresetText& b) {
    return std::pair(a.name, a.version) < std::pair(b.name, b.version);
  }));
}

TEST(Presets, NeedNoMoreThanWhatTheyRequire) {
  for (const PresetText& text : PresetTexts()) {
    const auto preset = LoadPreset(text);
    ASSERT_TRUE(preset);
    std::string entry = preset->Id() + ": {";
    size_t optional = 0;
    for (const PresetParameter& p : preset->parameters)
      if (p.required())
        entry +=
            (entry.ends_with('{') ? " " : ", ") + p.name + ": " + (p.type == ParameterType::kHost ? "host.example" : "hello");
    for (const Node& rule : preset->rules) {
      bool open = false;
      PresetValues values;
      for (const PresetParameter& p : preset->parameters)
        if (!p.optional) values.emplace_back(p.name, "x");
      (void)FillPlaces(rule.members[0].value.text, values, &open);
      optional += open ? 1 : 0;
    }
    EXPECT_EQ(Texts(entry + " }").size(), preset->rules.size() - optional) << entry;
  }
}

TEST(Presets, ExpandIntoPlainRules) {
  const auto preset = Loaded("version: 1\npresets:\n  - npm@1: { host: registry.corp.example }\nrules:\n  - allow: GET a.test\n");
  const auto plain =
      Loaded("version: 1\nrules:\n  - allow: GET registry.corp.example/**\n    encoded-slash: true\n  - allow: GET a.test\n");
  EXPECT_EQ(preset->digest(), plain->digest());
  const RuleInfo& info = preset->rules()[0];
  EXPECT_EQ(info.span, (SourceSpan{"p.yaml", 3, 5, 5}));
  EXPECT_EQ(info.origin.file, "preset:npm@1");
  EXPECT_EQ(info.origin.line, 9u);
  EXPECT_EQ(info.id, "p.yaml:3/npm@1:9");
  EXPECT_EQ(PlaceText(info.span, info.origin), "npm@1:9, from p.yaml:3");
  EXPECT_EQ(PlaceText(preset->rules()[1].span, preset->rules()[1].origin), "p.yaml:5");
}

TEST(Presets, FillTheirPlaces) {
  EXPECT_THAT(Texts("git-read@1: { owner: octo }"), ElementsAre("git fetch-pack github.com/octo/*"));
  EXPECT_THAT(Texts("git-read@1: { host: 'git.corp.example:8443', owner: group/team, repo: hello.git }"),
              ElementsAre("git fetch-pack git.corp.example:8443/group/team/hello"));
  EXPECT_THAT(Texts("npm@1: { host: Registry.Corp.Example, path: /api/npm }"),
              ElementsAre("GET registry.corp.example/api/npm/**"));
  EXPECT_THAT(Texts("npm@1: { host: 10.0.0.7, ip: 10.0.0.7 }"), ElementsAre("GET 10.0.0.7/**"));
  EXPECT_THAT(Texts("npm@1: { host: '[fd00::1]:4873', ip: [fd00::/8] }"), ElementsAre("GET [fd00::1]:4873/**"));
  EXPECT_THAT(Texts("npm@1: { host: bücher.example }"), ElementsAre("GET xn--bcher-kva.example/**"));
  EXPECT_THAT(Texts("apt@1: { host: mirror.corp.example, scheme: http }"),
              ElementsAre("GET http://mirror.corp.example/debian/dists/**", "GET http://mirror.corp.example/debian/pool/**"));
  // A default may name an earlier parameter.
  EXPECT_THAT(Texts("pip@1: { host: index.corp.example }"),
              ElementsAre("GET index.corp.example/simple/**", "GET index.corp.example/packages/**"));
  EXPECT_THAT(Texts("pip@1: { host: index.corp.example, files: files.corp.example, files-path: / }"),
              ElementsAre("GET index.corp.example/simple/**", "GET files.corp.example/**"));
  // Rules of an optional parameter that is not given are not there.
  EXPECT_THAT(Texts("go@1: { host: proxy.corp.example }"), ElementsAre("GET proxy.corp.example/**"));
  EXPECT_EQ(Texts("go@1: { host: proxy.corp.example, sum: sum.corp.example }").size(), 4u);
}

TEST(Presets, TakeAddressesAndExecutablesThatNarrowEveryRule) {
  const auto s = Loaded(Using("pip@1: { host: a.test, ip: [10.1.0.0/16, fd00::/8], by: /usr/bin/python3.11 }"));
  ASSERT_EQ(s->compiled().rules.size(), 2u);
  for (const Rule& rule : s->compiled().rules) {
    EXPECT_EQ(rule.ip.size(), 2u);
    ASSERT_EQ(rule.by.size(), 1u);
    EXPECT_EQ(rule.by[0].text, "/usr/bin/python3.11");
  }
}

TEST(Presets, StandInIncludesAndTwiceOnOneLine) {
  const auto s = Loaded("version: 1\npresets: [{npm@1: {host: a.test}}, {npm@1: {host: b.test}}]\n");
  EXPECT_EQ(s->rules()[0].id, "p.yaml:2/npm@1:9");
  EXPECT_EQ(s->rules()[1].id, "p.yaml:2:37/npm@1:9");
}

TEST(Presets, LintSaysWhichOfTheirRulesIsMeant) {
  const auto s = Loaded(Using("git-write@1: { owner: octo, repo: hello }"));
  const auto findings = Lint(*s, kNow);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].code, "older-preset");
  EXPECT_THAT(findings[0].message, HasSubstr("`git-write@1` has a newer version, `git-write@2`"));
  EXPECT_EQ(findings[1].code, "push");
  EXPECT_EQ(findings[1].span.line, 3u);
  EXPECT_EQ(findings[1].origin.line, 11u);
  EXPECT_THAT(findings[1].message, HasSubstr("(git-write@1:11, from p.yaml:3)"));
}

TEST(Presets, RefuseWhatTheyDoNotKnow) {
  struct Case {
    std::string entry;
    const char* error;
  };
  for (const Case& c : {
           Case{"npm: { host: a.test }", "p.yaml:3:5: error: `npm` needs a version; the newest is `npm@1`"},
           Case{"npm", "p.yaml:3:5: error: `npm` needs a version"},
           Case{"npm@7: { host: a.test }", "p.yaml:3:5: error: there is no `npm@7`; the newest is `npm@1`"},
           Case{"npm@x: { host: a.test }", "p.yaml:3:5: error: `x` is not a version; write `npm@1`"},
           Case{"npm@01: { host: a.test }", "p.yaml:3:5: error: `01` is not a version"},
           Case{"npm@1.2: { host: a.test }", "p.yaml:3:5: error: `1.2` is not a version"},
           Case{"nmp@1: { host: a.test }", "p.yaml:3:5: error: unknown preset `nmp`; did you mean `npm`?"},
           Case{"something@1", "p.yaml:3:5: error: unknown preset `something`; `sluice preset list` names them"},
           Case{"npm@1", "p.yaml:3:5: error: `npm@1` needs `host`: the registry"},
           Case{"npm@1: {}", "p.yaml:3:5: error: `npm@1` needs `host`"},
           Case{"npm@1: a.test", "p.yaml:3:12: error: an entry of `presets` is"},
           Case{"npm@1:", "p.yaml:3:5: error: an entry of `presets` is"},
           Case{"npm@1: { hots: a.test }", "p.yaml:3:14: error: `npm@1` has no parameter `hots`; did you mean `host`?"},
           Case{"npm@1: { registry: a.test }",
                "p.yaml:3:14: error: `npm@1` has no parameter `registry`; it takes `host`, `path`, `ip`, `by`"},
           Case{"npm@1: { host: a.test, host: b.test }", "p.yaml:3:28: error: `host` is already set on line 3"},
           Case{"{ npm@1: { host: a.test }, pip@1: { host: a.test } }", "p.yaml:3:32: error: one preset an entry"},
           Case{"[npm@1]", "p.yaml:3:5: error: an entry of `presets` is"},
           Case{"npm@1: { host: [a.test] }", "p.yaml:3:20: error: a text is expected for `host`, not a list"},
           Case{"git-read@1: { owner: 12 }", "p.yaml:3:26: error: `12` is not a text to every YAML reader"},
           Case{"npm@1: { host: a.test, by: /usr/bin/* }", "p.yaml:3:41: error: `by`: a preset's parameter takes no wildcard"},
           Case{"npm@1: { host: a.test, ip: 10.0.0.1/8 }", "p.yaml:3:32: error: `ip`: `10.0.0.1/8` is not an address"},
           Case{"npm@1: { host: a.test, ip: [] }", "p.yaml:3:32: error: `ip` is an empty list"},
       })
    EXPECT_THAT(LoadMessage(Using(c.entry)), StartsWith(c.error)) << c.entry;
  std::string many = "npm@1: { host: a.test, ip: [";
  for (int i = 0; i < 1025; ++i) many += "10.0.0.1, ";
  EXPECT_THAT(LoadMessage(Using(many + "10.0.0.1] }")), StartsWith("p.yaml:3:32: error: `ip` has more than 1024 entries"));
  EXPECT_THAT(LoadMessage("version: 1\npresets: {}\n"), StartsWith("p.yaml:2:10: error: `presets` is a list"));
}

// Exact point 18. Nothing that means something in a rule passes.
TEST(Presets, ParametersCannotSmuggle) {
  struct Case {
    ParameterType type;
    std::vector<const char*> good;
    std::vector<const char*> bad;
  };
  for (const Case& c : {
           Case{ParameterType::kHost,
                {"a.test", "db", "a.test:8443", "10.0.0.1", "10.0.0.1:80", "[fd00::1]", "[fd00::1]:443", "a_b.test"},
                {"*",
                 "**",
                 "*.a.test",
                 "**.a.test",
                 "a*.test",
                 "a.test/x",
                 "a.test /x",
                 "a.test:443,80",
                 "a.test:1-5",
                 "a.test:0",
                 "a.test:",
                 "a.test:x",
                 ":443",
                 "https://a.test",
                 "10.0.0.0/8",
                 "10.0.0.1/32",
                 "fd00::1",
                 "[a.test]",
                 "[fd00::1",
                 "[fd00::1]x",
                 "]",
                 "[",
                 "[]",
                 "a b",
                 "a\tb",
                 "a..b",
                 "${host}",
                 "a.test?x",
                 "a.test#x",
                 "user@a.test",
                 "0x7f.1",
                 "a%2fb",
                 "a.test:+1",
                 "a.test:0443",
                 ""}},
           Case{ParameterType::kPath,
                {"/", "/a", "/a/b.c_d~e-f", "/@scope/x", "/v1:x"},
                {"a",    "/a/",  "//",    "/a//b", "/../x", "/a/..", "/a/./b", "/*",   "/a/**", "/a b",
                 "/a?b", "/a#b", "/a%2f", "/a;b",  "/a,b",  "/a\\b", "/${x}",  "/{a}", "/[a]",  ""}},
           Case{ParameterType::kSegments,
                {"octo", "group/team"},
                {"/octo", "octo/", "a//b", "..", "a/../b", "*", "a/*", "a b", ""}},
           Case{ParameterType::kName, {"hello", "hello.git", "a-b_c"}, {"a/b", ".", "..", "*", "a*", "a b", "a,b", "a%2fb", ""}},
           Case{ParameterType::kLabel, {"eu-west-1"}, {"a.b", "-a", "a-", "A", "*", "a_b", "a/b", ""}},
           Case{ParameterType::kScheme, {"https", "http"}, {"HTTPS", "ftp", "https://", ""}},
           Case{ParameterType::kExecutables, {"/usr/bin/node"}, {"node", "/usr/bin/*", "/usr/../x", "sha256:12", ""}},
       }) {
    for (const char* text : c.good) EXPECT_TRUE(CheckParameter(c.type, text)) << ParameterTypeText(c.type) << " " << text;
    for (const char* text : c.bad) EXPECT_FALSE(CheckParameter(c.type, text)) << ParameterTypeText(c.type) << " " << text;
  }
  // A default may be a wildcard, a value may not, and the error says what to do.
  EXPECT_THAT(
      LoadMessage(Using("git-read@1: { owner: octo, repo: '*' }")),
      StartsWith("p.yaml:3:39: error: `repo`: a preset's parameter takes no wildcard; write a rule of your own for more than "
                 "one, or leave `repo` out for every one"));
}

// The requests that each protocol documents, and its writing ones. Clients that Debian has are run in tests/e2e/presets_test.py.
TEST(Presets, LetTheirProtocolsThroughAndNothingThatWrites) {
  struct Case {
    const char* entry;
    const char* host;
    std::vector<std::pair<const char*, const char*>> allowed;
    std::vector<std::pair<const char*, const char*>> denied;
  };
  for (const Case& c : {
           Case{"cargo@1: { host: index.test, files: files.test, files-path: /crates }",
                "index.test",
                {{"GET", "/config.json"}, {"GET", "/se/rd/serde"}},
                {{"PUT", "/api/v1/crates/new"}, {"DELETE", "/api/v1/crates/x/1.0.0/yank"}}},
           Case{"cargo@1: { host: index.test, files: files.test, files-path: /crates }",
                "files.test",
                {{"GET", "/crates/serde/1.0.0/download"}},
                {{"GET", "/other"}, {"PUT", "/crates/x"}}},
           Case{"go@1: { host: proxy.test, path: /mod, sum: sum.test }",
                "proxy.test",
                {{"GET", "/mod/golang.org/x/text/@v/list"},
                 {"GET", "/mod/example.com/!m/@v/v1.0.0.zip"},
                 {"GET", "/mod/x/@latest"}},
                {{"GET", "/elsewhere"}, {"POST", "/mod/x"}}},
           Case{"go@1: { host: proxy.test, sum: sum.test }",
                "sum.test",
                {{"GET", "/lookup/golang.org/x/text@v0.3.2"}, {"GET", "/tile/8/0/x001/234"}, {"GET", "/latest"}},
                {{"GET", "/"}, {"POST", "/lookup/x"}}},
           Case{"container-pull@1: { host: oci.test, image: team/app, auth: auth.test, blobs: store.test }",
                "oci.test",
                {{"GET", "/v2/"},
                 {"HEAD", "/v2/team/app/manifests/latest"},
                 {"GET", "/v2/team/app/manifests/sha256:00"},
                 {"GET", "/v2/team/app/blobs/sha256:00"},
                 {"GET", "/v2/team/app/tags/list"}},
                {{"GET", "/v2/team/other/manifests/latest"},
                 {"GET", "/v2/_catalog"},
                 {"POST", "/v2/team/app/blobs/uploads/"},
                 {"PUT", "/v2/team/app/manifests/latest"},
                 {"DELETE", "/v2/team/app/manifests/sha256:00"},
                 {"GET", "/v2/team/app/x/manifests/latest"}}},
           Case{"container-pull@1: { host: oci.test, auth: auth.test }",
                "auth.test",
                {{"GET", "/token?service=oci.test&scope=repository:a:pull"}},
                {{"POST", "/token"}, {"GET", "/other"}}},
           Case{"container-pull@1: { host: oci.test }",
                "oci.test",
                {{"GET", "/v2/any/depth/of/name/blobs/sha256:00"}},
                {{"POST", "/v2/any/blobs/uploads/"}, {"GET", "/v2/_catalog"}}},
           Case{"github-api-read@1: { owner: octo }",
                "api.github.com",
                {{"GET", "/repos/octo/hello"},
                 {"GET", "/repos/octo/hello/pulls?state=open"},
                 {"GET", "/rate_limit"},
                 {"GET", "/repos/octo/hello/branches/feature%2Fx"}},
                {{"GET", "/repos/mallory/loot"},
                 {"POST", "/repos/octo/hello/issues"},
                 {"POST", "/graphql"},
                 {"GET", "/user"},
                 {"GET", "/repos/octo/..%2F..%2Fuser"},
                 {"GET", "/repos/octo"}}},
           Case{"anthropic@1",
                "api.anthropic.com",
                {{"POST", "/v1/messages?beta=true"},
                 {"POST", "/v1/messages/count_tokens"},
                 {"GET", "/v1/models"},
                 {"GET", "/v1/models/x"}},
                {{"POST", "/v1/messages/batches"}, {"POST", "/v1/files"}, {"GET", "/v1/organizations/me"}}},
           Case{"openai@1",
                "api.openai.com",
                {{"POST", "/v1/responses"}, {"POST", "/v1/chat/completions"}, {"POST", "/v1/embeddings"}, {"GET", "/v1/models"}},
                {{"POST", "/v1/files"}, {"POST", "/v1/batches"}, {"GET", "/v1/responses/resp_1"}, {"DELETE", "/v1/models/x"}}},
           Case{"openai-compatible@1: { host: 'llm.test', path: /api/v1 }",
                "llm.test",
                {{"POST", "/api/v1/chat/completions"}, {"GET", "/api/v1/models/org/name"}},
                {{"POST", "/v1/chat/completions"}, {"POST", "/api/v1/files"}}},
           Case{"gemini@1",
                "generativelanguage.googleapis.com",
                {{"POST", "/v1beta/models/gemini-x:generateContent?key=k"},
                 {"POST", "/v1beta/models/x:streamGenerateContent?alt=sse"},
                 {"POST", "/v1/models/x%3AcountTokens"},
                 {"GET", "/v1beta/models"}},
                {{"POST", "/v1beta/files"},
                 {"POST", "/upload/v1beta/files"},
                 {"POST", "/v1beta/models/x:predict"},
                 {"POST", "/v1beta/tunedModels/x:generateContent"}}},
           Case{"vertex@1: { region: europe-west4, project: lab-1 }",
                "europe-west4-aiplatform.googleapis.com",
                {{"POST", "/v1/projects/lab-1/locations/europe-west4/publishers/google/models/x:generateContent"},
                 {"POST", "/v1/projects/lab-1/locations/europe-west4/publishers/anthropic/models/x@1:streamRawPredict"}},
                {{"POST", "/v1/projects/other/locations/europe-west4/publishers/google/models/x:generateContent"},
                 {"POST", "/v1/projects/lab-1/locations/europe-west4/tuningJobs"}}},
           Case{"bedrock@1: { host: bedrock-runtime.eu-central-1.amazonaws.com }",
                "bedrock-runtime.eu-central-1.amazonaws.com",
                {{"POST", "/model/a.b-v1%3A0/converse"},
                 {"POST", "/model/a.b-v1:0/invoke-with-response-stream"},
                 {"POST", "/model/arn%3Aaws%3Abedrock%3Aeu%3A1%3Ainference-profile%2Fx/invoke"}},
                {{"POST", "/guardrail/x/version/1/apply"}, {"GET", "/async-invoke"}, {"POST", "/async-invoke"}}},
           Case{"azure-openai@1: { host: lab.openai.azure.com, deployment: small }",
                "lab.openai.azure.com",
                {{"POST", "/openai/deployments/small/chat/completions?api-version=2024-06-01"}, {"POST", "/openai/v1/responses"}},
                {{"POST", "/openai/deployments/large/chat/completions"}, {"POST", "/openai/files"}}},
           Case{
               "mistral@1", "api.mistral.ai", {{"POST", "/v1/fim/completions"}}, {{"POST", "/v1/files"}, {"POST", "/v1/agents"}}},
           Case{"openrouter@1",
                "openrouter.ai",
                {{"POST", "/api/v1/chat/completions"}, {"GET", "/api/v1/models"}},
                {{"POST", "/api/v1/keys"}, {"GET", "/api/v1/credits"}}},
       }) {
    const auto snapshot = Loaded(Using(c.entry));
    for (const auto& [method, path] : c.allowed)
      EXPECT_TRUE(snapshot->DecideRequest(Request(method, To(c.host, 443), path).Get()).allowed) << c.host << method << path;
    for (const auto& [method, path] : c.denied)
      EXPECT_FALSE(snapshot->DecideRequest(Request(method, To(c.host, 443), path).Get()).allowed) << c.host << method << path;
  }
}

TEST(Presets, OfTheCommandLine) {
  LoadOptions options;
  options.extra_presets = {"npm:host=registry.corp.example:4873,path=/npm", "git-read@1:owner=octo",
                           "pip:host=a.test,ip=10.0.0.0/8,ip=fd00::/8"};
  options.extra_allows = {"GET a.test"};
  const auto s = LoadRules(options);
  ASSERT_TRUE(s) << RenderError(s.error(), false);
  ASSERT_EQ((*s)->rules().size(), 5u);
  EXPECT_EQ((*s)->rules()[1].text, "GET registry.corp.example:4873/npm/**");
  EXPECT_EQ((*s)->rules()[1].id, "--preset:1/npm@1:9");
  EXPECT_EQ((*s)->rules()[2].text, "git fetch-pack github.com/octo/*");
  EXPECT_EQ((*s)->compiled().rules[4].ip.size(), 2u);
  const auto message = [](const std::string& text) {
    LoadOptions one;
    one.extra_presets = {text};
    const auto loaded = LoadRules(one);
    return loaded ? "loaded" : RenderError(loaded.error(), false);
  };
  EXPECT_THAT(message("nmp:host=a"), StartsWith("--preset:1:1: error: unknown preset `nmp`; did you mean `npm`?"));
  EXPECT_THAT(message("npm@2:host=a"), StartsWith("--preset:1:1: error: there is no `npm@2`"));
  EXPECT_THAT(message("npm"), StartsWith("--preset:1:1: error: `npm@1` needs `host`"));
  EXPECT_THAT(message("npm:"), StartsWith("--preset:1:5: error: parameters are written `NAME=VALUE`"));
  EXPECT_THAT(message("npm:host"), StartsWith("--preset:1:5: error: parameters are written `NAME=VALUE`"));
  EXPECT_THAT(message("npm:host=a,"), StartsWith("--preset:1:12: error: parameters are written `NAME=VALUE`"));
  EXPECT_THAT(message("npm:host=a,hsot=b"), StartsWith("--preset:1:12: error: `npm@1` has no parameter `hsot`"));
  EXPECT_THAT(message("npm:host=a,host=b"), StartsWith("--preset:1:10: error: `host` takes one value, and 2 are given"));
  EXPECT_THAT(message("npm:host=*.a"), StartsWith("--preset:1:10: error: `host`: a preset's parameter takes no wildcard"));
  EXPECT_THAT(message("npm:host=a b"), StartsWith("--preset:1:11: error: `host`: ` ` cannot stand in a host"));
}

}  // namespace
}  // namespace sluice::policy
