#include "supervisor/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::supervisor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(Environment, PassesWhatProgramsNeedAndNothingElse) {
  const auto chosen = ChooseEnvironment(
      {{"PATH", "/bin"}, {"HOME", "/root"}, {"LC_ALL", "C"}, {"FOO", "bar"}, {"LD_PRELOAD", "/x.so"}, {"BASH_FUNC_x%%", "()"}},
      {});
  ASSERT_TRUE(chosen.has_value());
  EXPECT_THAT(chosen->variables, ElementsAre(Pair("HOME", "/root"), Pair("LC_ALL", "C"), Pair("PATH", "/bin")));
  EXPECT_THAT(chosen->credentials, IsEmpty());
}

TEST(Environment, NamesTheCredentialsItDrops) {
  const auto chosen = ChooseEnvironment({{"GITHUB_TOKEN", "x"},
                                         {"AWS_PROFILE", "p"},
                                         {"SSH_AUTH_SOCK", "/run/a"},
                                         {"API_KEY", "k"},
                                         {"MONKEY", "m"},
                                         {"my_password", "p"},
                                         {"LC_SECRET", "s"}},
                                        {});
  ASSERT_TRUE(chosen.has_value());
  EXPECT_THAT(chosen->variables, IsEmpty());
  EXPECT_THAT(chosen->credentials,
              ElementsAre("API_KEY", "AWS_PROFILE", "GITHUB_TOKEN", "LC_SECRET", "SSH_AUTH_SOCK", "my_password"));
}

TEST(Environment, FindsPasswordsInUrls) {
  EXPECT_TRUE(LooksLikeCredential("DATABASE_URL", "postgres://me:hunter2@db/x"));
  EXPECT_TRUE(LooksLikeCredential("EDITOR", "x://a:b@c"));
  EXPECT_FALSE(LooksLikeCredential("DATABASE_URL", "postgres://db/x?at=a:b@c"));
  EXPECT_FALSE(LooksLikeCredential("ORIGIN", "ssh://git@github.com/x"));
  EXPECT_FALSE(LooksLikeCredential("PWD", "/work"));
  EXPECT_TRUE(LooksLikeCredential("ORIGIN", "https://ghp_abcdefghij0123456789@github.com/octo/x"));
  EXPECT_FALSE(LooksLikeCredential("ORIGIN", "https://some-quite-long-user-name@example.com/x"));
}

TEST(Environment, KnowsTheNamesOfOtherPrograms) {
  for (const char* name :
       {"SSHPASS", "PGPASSFILE", "BORG_PASSCOMMAND", "GIT_ASKPASS", "S3_ACCESSKEY", "GITHUB_OAUTH", "SLACK_WEBHOOK_URL"})
    EXPECT_TRUE(LooksLikeCredential(name, "x")) << name;
  for (const char* name : {"COMPASS", "BYPASS_CACHE", "KEYBOARD", "PASSES", "AUTHOR", "PATTERN"})
    EXPECT_FALSE(LooksLikeCredential(name, "x")) << name;
}

TEST(Environment, DropsProxiesInAnySpelling) {
  const auto chosen = ChooseEnvironment(
      {{"http_proxy", "http://u:p@x"}, {"HTTPS_PROXY", "x"}, {"no_proxy", "x"}, {"npm_config_https_proxy", "x"}}, {});
  ASSERT_TRUE(chosen.has_value());
  EXPECT_THAT(chosen->variables, IsEmpty());
  EXPECT_THAT(chosen->proxies, ElementsAre("HTTPS_PROXY", "http_proxy", "no_proxy", "npm_config_https_proxy"));
}

TEST(Environment, AnAdditionWinsOverEverything) {
  const auto chosen = ChooseEnvironment({{"GITHUB_TOKEN", "t"}, {"PATH", "/bin"}},
                                        {.additions = {"PATH=/x", "EMPTY=", "ABSENT", "URL=a=b"}, .unsafe = {"GITHUB_TOKEN"}});
  ASSERT_TRUE(chosen.has_value());
  EXPECT_THAT(chosen->variables,
              ElementsAre(Pair("EMPTY", ""), Pair("GITHUB_TOKEN", "t"), Pair("PATH", "/x"), Pair("URL", "a=b")));
  EXPECT_THAT(chosen->credentials, IsEmpty());
}

TEST(Environment, RefusesWhatIsNoVariable) {
  for (const char* addition : {"", "=x", "1A=x", "A B", "A-B=c"}) {
    EXPECT_FALSE(ChooseEnvironment({}, {.additions = {addition}}).has_value()) << addition;
    EXPECT_FALSE(ChooseEnvironment({}, {.unsafe = {addition}}).has_value()) << addition;
  }
  const auto misspelt = ChooseEnvironment({}, {.unsafe = {"API-KEY=hunter2"}});
  ASSERT_FALSE(misspelt.has_value());
  EXPECT_EQ(misspelt.error().message, "--unsafe-env API-KEY: not NAME or NAME=VALUE");
}

TEST(Environment, AnAdditionThatLooksLikeACredentialIsRefusedByItsName) {
  for (const char* addition : {"GITHUB_TOKEN", "API_KEY=k", "SSH_AUTH_SOCK=/run/a", "DB=postgres://me:hunter2@db/x"}) {
    const auto chosen = ChooseEnvironment({{"GITHUB_TOKEN", "ghp_1"}}, {.additions = {addition}});
    ASSERT_FALSE(chosen.has_value()) << addition;
    const std::string name = std::string(addition).substr(0, std::string(addition).find('='));
    EXPECT_NE(chosen.error().message.find("--unsafe-env " + name), std::string::npos) << chosen.error().message;
    EXPECT_EQ(chosen.error().message.find("hunter2"), std::string::npos);
    EXPECT_TRUE(ChooseEnvironment({{"GITHUB_TOKEN", "ghp_1"}}, {.unsafe = {addition}}).has_value()) << addition;
  }
  EXPECT_TRUE(ChooseEnvironment({}, {.additions = {"GITHUB_TOKEN"}}).has_value()) << "it is not set, and so not passed on";
}

TEST(Environment, InheritsNothingWhereThatIsAskedFor) {
  const auto chosen =
      ChooseEnvironment({{"PATH", "/bin"}, {"HOME", "/root"}}, {.additions = {"HOME"}, .inherit = Inherit::kNone});
  ASSERT_TRUE(chosen.has_value());
  EXPECT_THAT(chosen->variables, ElementsAre(Pair("HOME", "/root")));
}

TEST(Environment, TheFirstOfTwoCounts) {
  const auto chosen = ChooseEnvironment({{"TERM", "first"}, {"TERM", "second"}}, {});
  ASSERT_TRUE(chosen.has_value());
  EXPECT_THAT(chosen->variables, ElementsAre(Pair("TERM", "first")));
}

}  // namespace
}  // namespace sluice::supervisor
