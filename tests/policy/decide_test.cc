#include "tests/policy/support.h"

namespace sluice::policy {
namespace {

const std::string kExample = R"(version: 1
name: docs-bot
rules:
  - allow: GET api.github.com/repos/**
  - allow: git fetch-pack github.com/octo/*
  - allow: GET,POST api.example.com/v1/**
    by: [/usr/bin/node]
    query: { tag: [v1*, v2*] }
    until: 2027-01-31
    note: release notes job
  - allow: tcp db.internal:5432
    ip: [10.1.0.0/16]
  - deny: GET api.github.com/repos/*/*/actions/secrets/**
)";

Decision Ask(const SnapshotPtr& s, Request r) { return s->DecideRequest(r.Get()); }

TEST(Decide, FollowsTheExampleOfTheLanguage) {
  const auto s = Loaded(kExample);
  ASSERT_NE(s, nullptr);
  EXPECT_EQ(s->name(), "docs-bot");
  ASSERT_EQ(s->rules().size(), 5u);
  EXPECT_EQ(s->rules()[0].id, "p.yaml:4");
  EXPECT_EQ(s->rules()[0].text, "GET api.github.com/repos/**");
  EXPECT_EQ(s->DecideConnect(To("api.github.com", 443)).verdict, ConnectVerdict::kInspect);
  EXPECT_EQ(s->DecideConnect(To("api.github.com", 80)).decision.reason, Reason::kPort);
  EXPECT_EQ(s->DecideConnect(To("evil.test", 443)).decision.reason, Reason::kNoRule);
  EXPECT_TRUE(Ask(s, {"GET", To("api.github.com", 443), "/repos/a/b"}).allowed);
  EXPECT_TRUE(Ask(s, {"HEAD", To("api.github.com", 443), "/repos/a/b"}).allowed);
  EXPECT_EQ(Ask(s, {"POST", To("api.github.com", 443), "/repos/a/b"}).reason, Reason::kMethod);
  EXPECT_EQ(Ask(s, {"GET", To("api.github.com", 443), "/repos"}).reason, Reason::kPath);
  EXPECT_EQ(Ask(s, {"GET", To("api.github.com", 443), "/repos/a/b/actions/secrets/x"}).reason, Reason::kDenyRule);
  EXPECT_EQ(s->DecideConnect(To("db.internal", 5432, "10.1.2.3")).verdict, ConnectVerdict::kOpaqueTcp);
  EXPECT_EQ(s->DecideConnect(To("db.internal", 5432)).verdict, ConnectVerdict::kOpaqueTcp);
  EXPECT_EQ(s->DecideConnect(To("db.internal", 5432, "10.2.2.3")).decision.reason, Reason::kPrivateAddress);
}

TEST(Decide, GrantsExactlyTheRequestsOfAFetch) {
  const auto s = Loaded(kExample);
  const auto to = To("github.com", 443);
  EXPECT_TRUE(Ask(s, {"GET", to, "/octo/hello/info/refs?service=git-upload-pack"}).allowed);
  EXPECT_TRUE(Ask(s, {"GET", to, "/Octo/hello.git/info/refs?service=git-upload-pack"}).allowed);
  EXPECT_TRUE(Ask(s, Request("POST", to, "/octo/hello.git/git-upload-pack").With("content-type", "application/x-git-upload-pack-request")).allowed);
  EXPECT_FALSE(Ask(s, {"POST", to, "/octo/hello.git/git-upload-pack"}).allowed);
  EXPECT_FALSE(Ask(s, {"GET", to, "/octo/hello/info/refs?service=git-receive-pack"}).allowed);
  EXPECT_FALSE(Ask(s, {"GET", to, "/octo/hello/info/refs"}).allowed);
  EXPECT_FALSE(Ask(s, {"GET", to, "/octo/a/b/info/refs?service=git-upload-pack"}).allowed);
  Request push("GET", to, "/octo/hello.git/info/refs?service=git-receive-pack");
  EXPECT_EQ(s->AdviseRequest(push.Get(), Ask(s, push)).suggest, "git receive-pack github.com/octo/hello");
}

TEST(Decide, NamesAreKnownByTheRulesThatNeedThem) {
  const auto s = Loaded(kExample);
  const auto verdict = [&](std::string_view name, uint16_t type) { return s->DecideName({nullptr, name, type, kNow}).verdict; };
  EXPECT_EQ(verdict("api.github.com", 1), NameVerdict::kAllow);
  EXPECT_EQ(verdict("api.github.com", 28), NameVerdict::kAllow);
  EXPECT_EQ(verdict("api.github.com", 16), NameVerdict::kAncestor);
  EXPECT_EQ(verdict("com", 1), NameVerdict::kAncestor);
  EXPECT_EQ(verdict("internal", 1), NameVerdict::kAncestor);
  EXPECT_EQ(verdict("b.github.com", 1), NameVerdict::kDeny);
  EXPECT_EQ(verdict("api.example.com", 1), NameVerdict::kDeny);  // its rule is for node alone
}

}  // namespace
}  // namespace sluice::policy
