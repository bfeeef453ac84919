// `sluice preset list` and `show`, and the two places that other commands name.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "app/explain.h"
#include "app/preset.h"
#include "tests/app/command_capture.h"

namespace sluice::app {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Captured Show(const std::string& name, std::vector<std::string> sets = {}, OutputFormat format = OutputFormat::kText) {
  return Capture([&] { return RunPresetShow({name, std::move(sets), format}); });
}

TEST(PresetCommands, ListNamesEachWithItsVersion) {
  const Captured text = Capture([] { return RunPresetList(OutputFormat::kText); });
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, AllOf(HasSubstr("npm@1 "), HasSubstr("git-write@1 "), HasSubstr("EVERY branch")));
  const auto json = nlohmann::json::parse(Capture([] { return RunPresetList(OutputFormat::kJson); }).out);
  EXPECT_GE(json.at("presets").size(), 18u);
  EXPECT_EQ(json["presets"][0]["version"], 1);
}

TEST(PresetCommands, ShowPrintsRulesWithTheirPlacesOrWhatWasPutIn) {
  EXPECT_THAT(Show("go").out, AllOf(HasSubstr("go@1: "), HasSubstr("  - allow: GET ${host}${path}/**\n"),
                                    HasSubstr("  # only with sum:\n  - allow: GET ${sum}/latest\n"), HasSubstr("\nnotes\n")));
  EXPECT_THAT(Show("go@1", {"host=proxy.corp.example"}).out,
              AllOf(HasSubstr("  - allow: GET proxy.corp.example/**\n"), HasSubstr("  #  - allow: GET ${sum}/latest\n")));
  EXPECT_THAT(Show("go", {"host=proxy.corp.example", "sum=sum.corp.example"}).out,
              AllOf(HasSubstr("  - allow: GET sum.corp.example/latest\n"), Not(HasSubstr("only with"))));
  const auto json = nlohmann::json::parse(Show("npm", {"host=registry.corp.example"}, OutputFormat::kJson).out);
  EXPECT_EQ(json.at("rules").at(0).at("line"), 9);
  EXPECT_THAT(json.at("rules").at(0).at("yaml").get<std::string>(), HasSubstr("GET registry.corp.example/**"));
  EXPECT_EQ(json.at("parameters").at(0).at("required"), true);
  EXPECT_EQ(json.at("parameters").at(1).at("default"), "/");
}

TEST(PresetCommands, RefuseWhatIsNotUnderstood) {
  struct Case {
    std::string name;
    std::vector<std::string> sets;
    const char* error;
  };
  for (const Case& c : {Case{"nmp", {}, "did you mean `npm`?"}, Case{"npm@7", {}, "the newest is `npm@1`"},
                        Case{"npm", {"hsot=a.test"}, "did you mean `host`?"}, Case{"npm", {"host=*"}, "takes no wildcard"}}) {
    const Captured refused = Show(c.name, c.sets);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.out, IsEmpty());
    EXPECT_THAT(refused.err, HasSubstr(c.error));
  }
}

class PresetCommandsOnFiles : public InFolder {};

TEST_F(PresetCommandsOnFiles, ExplainNamesThePresetsLineAndTheOneThatUsesIt) {
  ExplainOptions options;
  options.file = Write("policy.yaml", "version: 1\npresets:\n  - npm@1: { host: registry.corp.example }\n");
  options.question = "GET https://registry.corp.example/left-pad";
  const Captured text = Capture([&] { return RunExplain(options); });
  options.format = OutputFormat::kJson;
  const auto json = nlohmann::json::parse(Capture([&] { return RunExplain(options); }).out);
  EXPECT_THAT(text.out, HasSubstr("npm@1:9, from " + folder_ + "/policy.yaml:3"));
  EXPECT_EQ(json.at("rule").at("line"), 3);
  EXPECT_EQ(json.at("rule").at("origin"), (nlohmann::json{{"file", "preset:npm@1"}, {"line", 9}}));
}

}  // namespace
}  // namespace sluice::app
