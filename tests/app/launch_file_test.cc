#include "app/launch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/run.h"

namespace sluice::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(LaunchFile, SaysAllThatFlagsSay) {
  const auto file = ParseLaunchFile(R"({
    "version": 1, "command": ["sh", "-c", "", "x"], "workspace": "w", "cwd": "w/x", "read-write": ["a"], "read-only": ["b"],
    "environment": {"inherit": "none", "pass": ["CI"], "set": {"MODE": "t\u00e9st", "EMPTY": ""}, "unsafe-pass": ["TOKEN"]},
    "policy": {"file": "p.yaml", "fd": 7, "allow": ["GET a.test"], "presets": ["npm@1"]}, "name": "n", "labels": {"job": "7"},
    "limits": {"wall-time": "5m", "memory": "2GiB", "processes": 64, "open-files": 128, "output": 1048576},
    "publish": ["8080:80"], "transcript": "t", "result": "fd:3", "audit": "a.jsonl", "lifeline": 4, "on-disconnect": "freeze",
    "fail-on-deny": true, "kill-on-deny": true, "pid-namespace": true, "allow-user-namespaces": true, "allow-nested": true,
    "allow-containers": true, "quiet": true, "verbose": true, "log-fd": 8, "control": ["c.sock"], "await-hold": true, "mirror-certificates": true,
    "upstream": {"resolvers": ["1.1.1.1"], "stub-domains": ["a=1.1.1.1"], "ca": ["ca.pem"], "via": "http://p:1", "via-auth": "x",
                 "via-ca": "y", "via-except": ["z"]}, "ca-cert": "c", "ca-key": "k"})",
                                    "l.json");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_THAT(file->command, ElementsAre("sh", "-c", "", "x"));
  EXPECT_THAT(file->environment_set, ElementsAre(Pair("EMPTY", ""), Pair("MODE", "t\xc3\xa9st")));
  EXPECT_THAT(file->environment_unsafe, ElementsAre("TOKEN"));
  EXPECT_EQ(file->memory, "2GiB");
  EXPECT_EQ(file->output, "1048576");
  EXPECT_EQ(file->processes, 64u);
  EXPECT_EQ(file->lifeline, 4u);
  EXPECT_TRUE(file->kill_on_deny && file->fail_on_deny && file->quiet && file->allow_user_namespaces && file->allow_nested);
  EXPECT_TRUE(file->allow_containers);
  EXPECT_THAT(file->via_except, ElementsAre("z"));
  EXPECT_TRUE(file->verbose && file->await_hold && file->mirror_certificates);
  EXPECT_EQ(file->policy_fd, 7u);
  EXPECT_EQ(file->log_fd, 8u);
}

// A launch file in a folder of its own, as `--spec` reads it.
class Spec : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::pipe(log_.data()), 0);
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    for (const int fd : log_) ::close(fd);
  }

  Result<RunOptions> Read(const nlohmann::json& launch, RunOptions options = {}) const {
    options.spec = folder_ + "/launch.json";
    std::ofstream(options.spec) << launch;
    if (auto read = ReadLaunchFile(&options); !read) return std::unexpected(read.error());
    return options;
  }

  std::string folder_ = "/tmp/sluice-launch-XXXXXX";
  std::array<int, 2> log_{};
};

// All members that can stand together, "policy.fd" in place of the others.
nlohmann::json WholeLaunch(int log) {
  auto launch = nlohmann::json::parse(R"({
    "version": 1, "command": ["true"], "workspace": "w", "cwd": "w/x", "read-write": ["a"], "read-only": ["b"],
    "environment": {"inherit": "none", "pass": ["CI"], "set": {"MODE": "test"}, "unsafe-pass": ["TOKEN"]},
    "policy": {"file": "p.yaml", "allow": ["GET a.test"], "presets": ["npm@1"]}, "name": "n", "labels": {"job": "7"},
    "limits": {"wall-time": "5m", "memory": "2GiB", "processes": 64, "open-files": 128, "output": 1048576},
    "publish": ["8080:80"], "transcript": "t", "result": "r", "audit": "a.jsonl", "lifeline": 4, "on-disconnect": "freeze",
    "fail-on-deny": true, "kill-on-deny": true, "pid-namespace": true, "allow-user-namespaces": true, "allow-nested": true,
    "allow-containers": true, "quiet": true, "verbose": true, "control": ["c.sock"], "await-hold": true,
    "upstream": {"resolvers": ["1.1.1.1"], "stub-domains": ["a=1.1.1.1"], "ca": ["ca.pem"], "via": "http://p:1", "via-auth": "x",
                 "via-ca": "y", "via-except": ["z"]}, "ca-cert": "c", "ca-key": "k", "mirror-certificates": true})");
  launch["log-fd"] = log;
  return launch;
}

// A member that is read and goes no further would be a wish that nobody hears.
TEST_F(Spec, EachMemberReachesTheRun) {
  const nlohmann::json whole = WholeLaunch(log_[1]);
  const auto all = Read(whole);
  ASSERT_TRUE(all.has_value()) << all.error().message;
  for (const std::string& name : LaunchFileMembers()) {
    if (name == "version" || name == "pid-namespace" || name == "policy.fd") continue;  // always so; and its own test
    nlohmann::json without = whole;
    const size_t dot = name.find('.');
    if (dot == std::string::npos) {
      ASSERT_EQ(without.erase(name), 1u) << name << " is not in the whole launch of this test";
    } else {
      ASSERT_EQ(without[name.substr(0, dot)].erase(name.substr(dot + 1)), 1u) << name;
    }
    const auto rest = Read(without);
    EXPECT_TRUE(!rest.has_value() || *rest != *all) << name << " changes nothing";
  }
}

TEST_F(Spec, NamesAPolicyByItsDescriptorAlone) {
  const auto read = Read({{"version", 1}, {"policy", {{"fd", 9}}}});
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(read->policy_fd, 9);
  RunOptions flag;
  flag.policy = "/flag.yaml";
  const auto won = Read({{"version", 1}, {"policy", {{"fd", 9}}}}, flag);
  ASSERT_TRUE(won.has_value()) << won.error().message;
  EXPECT_EQ(won->policy_fd, -1);
  const auto text = [](const char* beside) { return nlohmann::json::parse(beside); };
  for (nlohmann::json policy :
       {text(R"({"file": "p"})"), text(R"({"allow": ["GET a.test"]})"), text(R"({"presets": ["npm@1"]})")}) {
    policy["fd"] = 9;
    const auto refused = Read({{"version", 1}, {"policy", policy}});
    ASSERT_FALSE(refused.has_value()) << policy;
    EXPECT_THAT(refused.error().message, HasSubstr("is the whole of it"));
  }
  EXPECT_FALSE(Read({{"version", 1}, {"policy", {{"fd", uint64_t{1} << 31}}}}).has_value());
}

TEST_F(Spec, TakesDescriptorsAsTheyAreAndPathsFromItsFolder) {
  const auto read = Read({{"version", 1}, {"transcript", "fd:5"}, {"result", "fd:6"}, {"control", {"fd:7", "c.sock"}}});
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(read->transcript, "fd:5");
  EXPECT_EQ(read->result, "fd:6");
  EXPECT_THAT(read->control, ElementsAre("fd:7", folder_ + "/c.sock"));
}

TEST_F(Spec, SaysWhichLogDescriptorIsNone) {
  const auto read = Read({{"version", 1}, {"log-fd", 1}});
  ASSERT_FALSE(read.has_value());
  EXPECT_THAT(read.error().message, HasSubstr("`log-fd`"));
}

struct Bad {
  const char* name;
  const char* text;
  const char* message;
  uint32_t line;
  uint32_t column;
};

class Refused : public testing::TestWithParam<Bad> {};

TEST_P(Refused, WithItsPlace) {
  const auto file = ParseLaunchFile(GetParam().text, "l.json");
  ASSERT_FALSE(file.has_value());
  EXPECT_THAT(file.error().message, HasSubstr(GetParam().message));
  ASSERT_TRUE(file.error().span.has_value());
  EXPECT_EQ(file.error().span->line, GetParam().line);
  EXPECT_EQ(file.error().span->column, GetParam().column);
}

INSTANTIATE_TEST_SUITE_P(
    Texts, Refused,
    testing::Values(
        Bad{"a_policy", "version: 1\n", "not valid JSON: a word that is no value", 1, 1},
        Bad{"unknown", "{\"version\": 1,\n  \"comand\": [\"x\"]}", "`comand` is no member of a launch; did you mean `command`?",
            2, 3},
        Bad{"unknown_inside", "{\"version\":1,\"limits\":{\"memry\":1}}",
            "`memry` is no member of `limits`; did you mean `memory`?", 1, 24},
        Bad{"twice", "{\"version\":1,\n\"name\":\"a\",\"name\":\"b\"}", "`name` is given twice", 2, 12},
        Bad{"twice_in_a_map", "{\"version\":1,\"labels\":{\"a\":\"1\",\"a\":\"2\"}}", "`a` is given twice in `labels`", 1, 32},
        Bad{"type", "{\"version\":1,\"command\":\"ls\"}", "`command` is a list of strings", 1, 24},
        Bad{"entry", "{\"version\":1,\"command\":[\"ls\",1]}", "`command[1]` is a string", 1, 30},
        Bad{"version", "{\"version\":2}", "`version` is 1", 1, 12}, Bad{"no_version", "{}", "`version` is missing", 1, 1},
        Bad{"empty", "{\"version\":1,\"name\":\"\"}", "`name` is empty", 1, 21},
        Bad{"null_character", "{\"version\":1,\"name\":\"a\\u0000\"}", "null character", 1, 21},
        Bad{"choice", "{\"version\":1,\"on-disconnect\":\"stop\"}", "is \"kill\" or \"freeze\"", 1, 30},
        Bad{"no_pid_namespace", "{\"version\":1,\"pid-namespace\":false}", "`pid-namespace` is true or left out", 1, 30},
        Bad{"negative", "{\"version\":1,\"limits\":{\"processes\":-1}}", "whole number", 1, 36},
        Bad{"fraction", "{\"version\":1,\"limits\":{\"memory\":1.5}}", "number of octets", 1, 33},
        Bad{"syntax", "{\"version\":1,}", "", 1, 14}, Bad{"more", "{\"version\":1} x", "", 1, 15},
        Bad{"list", "[]", "a launch is one JSON object", 1, 1}),
    [](const auto& about) { return std::string(about.param.name); });

// A launch of that member alone is taken by the one if it is by the other.
void Collect(const nlohmann::json& properties, const std::string& section, std::vector<std::string>* out) {
  for (const auto& [name, about] : properties.items()) {
    out->push_back(section.empty() ? name : section + "." + name);
    if (about.contains("properties")) Collect(about["properties"], name, out);
  }
}

TEST(LaunchFile, TheSchemaHasTheSameMembers) {
  std::ifstream file(SLUICE_SOURCE "/packaging/schema/launch.schema.json");
  std::vector<std::string> described;
  Collect(nlohmann::json::parse(file)["properties"], "", &described);
  EXPECT_THAT(LaunchFileMembers(), testing::UnorderedElementsAreArray(described));
}

TEST(LaunchFile, IsBounded) {
  EXPECT_FALSE(ParseLaunchFile(std::string(kMaxLaunchFile + 1, ' '), "l").has_value());
  std::string many = "{\"version\":1,\"command\":[\"x\"";
  for (int i = 0; i < 4096; ++i) many += ",\"x\"";
  EXPECT_FALSE(ParseLaunchFile(many + "]}", "l").has_value());
}

TEST(Octets, AreNumbersWithAUnit) {
  EXPECT_EQ(ParseOctets("1"), 1u);
  EXPECT_EQ(ParseOctets("512KiB"), 512u << 10);
  EXPECT_EQ(ParseOctets("64M"), 64u << 20);
  EXPECT_EQ(ParseOctets("2GiB"), uint64_t{2} << 30);
  for (const char* bad : {"", "0", "-1", "1.5GiB", "1GB", "GiB", "1 GiB", "99999999999TiB", "1152921504606846976"})
    EXPECT_FALSE(ParseOctets(bad).has_value()) << bad;
}

}  // namespace
}  // namespace sluice::app
