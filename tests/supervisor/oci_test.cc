// What container runtimes send, what /proc tells of their containers, and the profile they are given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "supervisor/container_text.h"
#include "supervisor/oci_profile.h"
#include "supervisor/oci_state.h"
#include "supervisor/seccomp_rules.h"

namespace sluice::supervisor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr const char* kRunc =
    R"({"ociVersion":"1.0.2-dev","fds":["seccompFd"],"pid":9246,"metadata":"m","state":{"ociVersion":"1.0.2-dev","id":"c1",)"
    R"("status":"creating","pid":9246,"bundle":"/b","annotations":{"dev.sluice.policy":"p"}}})";

TEST(OciState, ReadsWhatRuncSends) {
  const auto state = ParseOciState(kRunc);
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_EQ(state->id, "c1");
  EXPECT_EQ(state->pid, 9246);
  EXPECT_EQ(state->status, "creating");
  EXPECT_EQ(state->metadata, "m");
  EXPECT_EQ(state->annotations.at("dev.sluice.policy"), "p");
  EXPECT_THAT(state->fds, ElementsAre("seccompFd"));
}

TEST(OciState, EndsWhereItsBracesBalanceWhateverStandsInStrings) {
  const std::string text = R"(  {"a":"}\"{","b":{"c":"\\"}}  )";
  const auto end = FindOciStateEnd(text);
  ASSERT_TRUE(end && *end);
  EXPECT_EQ(**end, text.size() - 2);
  for (size_t cut = 0; cut < **end; ++cut) {
    const auto more = FindOciStateEnd(text.substr(0, cut));
    EXPECT_TRUE(more && !*more) << cut;
  }
  OciStateEnd in_pieces;
  for (size_t cut = 1; cut <= **end; ++cut) {
    const auto found = in_pieces.Find(text.substr(0, cut));
    ASSERT_TRUE(found) << cut;
    EXPECT_EQ(*found, cut == **end ? *end : std::nullopt) << cut;
  }
}

TEST(OciState, RefusesWhatIsNoObjectAndWhatIsTooLong) {
  EXPECT_FALSE(FindOciStateEnd("[1]"));
  EXPECT_FALSE(FindOciStateEnd("}"));
  EXPECT_TRUE(FindOciStateEnd("{" + std::string(kMaxOciMessage - 2, ' ')));
  EXPECT_FALSE(FindOciStateEnd("{" + std::string(kMaxOciMessage, ' ')));
}

TEST(OciState, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"fds":["seccompFd"],"pid":1})", "`state` is missing"},
      {R"({"fds":["seccompFd"],"pid":1,"state":{"id":"a/b"}})", "state.id"},
      {R"({"fds":["seccompFd"],"pid":1,"state":{"id":".."}})", "state.id"},
      {R"({"fds":["seccompFd"],"pid":-1,"state":{"id":"a"}})", "pid"},
      {R"({"fds":["seccompFd"],"pid":4194305,"state":{"id":"a"}})", "pid"},
      {R"({"fds":["seccompFd"],"pid":1.5,"state":{"id":"a"}})", "pid"},
      {R"({"fds":["other"],"pid":1,"state":{"id":"a"}})", "seccompFd"},
      {R"({"fds":["seccompFd","seccompFd"],"pid":1,"state":{"id":"a"}})", "seccompFd"},
      {R"({"fds":["seccompFd"],"pid":1,"state":{"id":"a","id":"b"}})", "twice"},
      {R"({"fds":["seccompFd"],"pid":1,"state":{"id":"a","annotations":{"k":1}}})", "`k`"},
      {R"({"fds":["seccompFd"],"pid":1,"state":{"id":"a","annotations":{"k":"\u0000"}}})", "`k`"},
      {R"({"fds":["seccompFd"],"pid":1,"state":{"id":"a"}} x)", "after"},
  };
  for (const auto& [text, word] : cases) {
    const auto state = ParseOciState(text);
    ASSERT_FALSE(state) << text;
    EXPECT_EQ(state.error().code, Code::kInvalid);
    if (std::string_view(word) != "after") EXPECT_THAT(state.error().message, HasSubstr(word)) << text;
  }
}

TEST(ContainerText, JoinsAllCapabilitySetsAndNamesThoseThatLeadOut) {
  const std::string status =
      "Name:\tCapPrm:\\n\nCapInh:\t0000000000000001\nCapPrm:\t0000000000000400\nCapEff:\t0000000000000000\n"
      "CapBnd:\t0000000000001000\nCapAmb:\t0000000000000000\n";
  const auto all = ParseCapabilities(status);
  ASSERT_TRUE(all);
  EXPECT_EQ(*all, 0x1401u);
  EXPECT_EQ(CapabilitiesThatLeadOut(*all), "CAP_NET_ADMIN");
  EXPECT_EQ(CapabilitiesThatLeadOut(1u << CAP_NET_RAW | 1u << CAP_NET_BIND_SERVICE), "");
  EXPECT_FALSE(ParseCapabilities("Name:\tx\nCapInh:\t0\n"));
}

TEST(ContainerText, KillsNoCgroupThatHoldsMoreThanTheContainer) {
  EXPECT_EQ(ParseCgroup2Path("5:cpu:/x\n0::/a/b\n"), "/a/b");
  EXPECT_FALSE(ParseCgroup2Path("5:cpu:/x\n"));
  EXPECT_TRUE(IsCgroupOfItsOwn("/machine/c1", "/system/agent"));
  EXPECT_TRUE(IsCgroupOfItsOwn("/a/b", "/a"));
  EXPECT_TRUE(IsCgroupOfItsOwn("/a", "/ab"));
  for (const char* path : {"/", "", "/a", "/a/b", "/../x", "relative"}) EXPECT_FALSE(IsCgroupOfItsOwn(path, "/a/b")) << path;
}

TEST(ContainerText, TellsAContainersOwnTreesFromTheHosts) {
  const std::string mounts =
      "1 0 0:50 / / rw,relatime - overlay overlay rw\n"
      "2 1 0:51 / /proc rw - proc proc rw\n"
      "3 1 0:52 / /tmp rw - tmpfs tmpfs rw\n"
      "4 1 0:25 / /run rw - tmpfs tmpfs rw\n"
      "5 1 8:1 /srv/data /data rw - ext4 /dev/sda1 rw\n"
      "6 1 8:1 /run/docker\\040x.sock /var/run/docker.sock ro - ext4 /dev/sda1 rw\n"
      "malformed\n";
  const auto trees = FindContainerTrees(mounts, MountedDevices("9 0 0:25 / /run rw - tmpfs tmpfs rw\n"));
  EXPECT_THAT(trees.own, ElementsAre("/", "/tmp"));
  EXPECT_THAT(trees.shared, ElementsAre("/run", "/data", "/var/run/docker.sock"));
  const auto read_only = FindContainerTrees("1 0 0:50 / / ro - overlay overlay rw\n", {});
  EXPECT_THAT(read_only.own, ElementsAre());
  EXPECT_THAT(read_only.shared, ElementsAre("/"));
}

std::vector<Json> RulesOf(const Json& profile, std::string_view call) {
  std::vector<Json> rules;
  for (const Json& rule : profile["syscalls"])
    if (std::ranges::any_of(rule["names"], [&](const Json& name) { return name.get<std::string>() == call; }))
      rules.push_back(rule);
  return rules;
}

TEST(OciProfile, RefusesAndNotifiesAsTheFilterDoes) {
  const auto made = MakeOciProfile({ProfileForm::kConfig, "/run/a.sock", "policy=p"}, std::nullopt);
  ASSERT_TRUE(made);
  const Json profile = Json::parse(made->text);
  EXPECT_EQ(profile["listenerPath"], "/run/a.sock");
  EXPECT_EQ(profile["listenerMetadata"], "policy=p");
  EXPECT_EQ(profile["architectures"].size(), 1u);
  for (const auto& refusal : rules::kRefusals) {
    const auto found = RulesOf(profile, refusal.name);
    ASSERT_EQ(found.size(), 1u) << refusal.name;
    EXPECT_EQ(found[0]["action"], "SCMP_ACT_ERRNO");
    EXPECT_EQ(found[0]["errnoRet"], refusal.error);
  }
  for (const char* call : {"connect", "execve", "execveat"}) {
    const auto found = RulesOf(profile, call);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0]["action"], "SCMP_ACT_NOTIFY");
    EXPECT_FALSE(found[0].contains("args"));
  }
  const auto error_of = [&](uint32_t family) {
    for (const Json& rule : RulesOf(profile, "socket"))
      if (rule["args"].size() == 1 && rule["args"][0].value("valueTwo", Json()) == family) return rule["errnoRet"].get<int>();
    return 0;
  };
  EXPECT_EQ(error_of(rules::kFamilyPacket), EPERM);
  EXPECT_EQ(error_of(rules::kFamilyVsock), EPERM);
  EXPECT_EQ(error_of(rules::kFamilyPacket + 1), EAFNOSUPPORT);
  EXPECT_EQ(error_of(rules::kFamilyUnix), 0);
  EXPECT_FALSE(profile.contains("flags"));
  const auto killable = MakeOciProfile({ProfileForm::kConfig, "/run/a.sock", "", ListenerWake::kKillable}, std::nullopt);
  ASSERT_TRUE(killable);
  EXPECT_EQ(Json::parse(killable->text)["flags"], Json::array({"SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"}));
  // A rule may look at an argument once: runtimes would make two rules of it otherwise.
  for (const Json& rule : profile["syscalls"]) {
    std::set<int> seen;
    for (const Json& arg : rule.value("args", Json::array())) EXPECT_TRUE(seen.insert(arg["index"].get<int>()).second) << rule;
  }
}

TEST(OciProfile, TakesFromABaseAndAddsNothingToWhatItAllows) {
  const std::string base = R"({"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":38,"syscalls":[
    {"names":["read","connect","socket","setns","clone"],"action":"SCMP_ACT_ALLOW","comment":"c"},
    {"names":["mount"],"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_ADMIN"]}},
    {"names":["personality"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":0,"op":"SCMP_CMP_EQ"}]}]})";
  const auto made = MakeOciProfile({ProfileForm::kConfig, "/run/a.sock", ""}, base);
  ASSERT_TRUE(made) << made.error().message;
  const Json profile = Json::parse(made->text);
  EXPECT_EQ(profile["defaultErrnoRet"], 38);
  EXPECT_EQ(RulesOf(profile, "read").size(), 1u);
  EXPECT_EQ(RulesOf(profile, "connect").at(0)["action"], "SCMP_ACT_NOTIFY");
  EXPECT_EQ(RulesOf(profile, "setns").at(0)["action"], "SCMP_ACT_ERRNO");
  EXPECT_EQ(RulesOf(profile, "personality").size(), 1u);
  for (const Json& rule : RulesOf(profile, "socket")) EXPECT_TRUE(rule.contains("args"));
  EXPECT_TRUE(RulesOf(profile, "execveat").empty());
  EXPECT_TRUE(RulesOf(profile, "sendmmsg").at(0)["action"] == "SCMP_ACT_ERRNO");  // the base does not list it
  EXPECT_TRUE(RulesOf(profile, "unshare").empty());
  const auto docker = MakeOciProfile({ProfileForm::kDocker, "/run/a.sock", ""}, base);
  ASSERT_TRUE(docker);
  EXPECT_TRUE(Json::parse(docker->text).contains("archMap"));
}

TEST(OciProfile, RefusesABaseThatCannotBeOne) {
  for (const char* base : {"[]", "{}", R"({"defaultAction":"SCMP_ACT_ALLOW","syscalls":[]})",
                           R"({"defaultAction":"SCMP_ACT_ERRNO","syscalls":[],"listenerPath":"/x"})",
                           R"({"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["read"],"action":"SCMP_ACT_NOTIFY"}]})",
                           R"({"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"action":"SCMP_ACT_ALLOW"}]})"})
    EXPECT_FALSE(MakeOciProfile({ProfileForm::kConfig, "/run/a.sock", ""}, base)) << base;
}

}  // namespace
}  // namespace sluice::supervisor
