#include "proxy/decision_memo.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "policy/io/load.h"
#include "policy/target.h"

namespace sluice::proxy {
namespace {

policy::SnapshotPtr Policy() {
  constexpr std::string_view kText = R"(version: 1
rules:
  - allow: GET,POST a.test/v1/**
    by: [/usr/bin/curl]
  - allow: GET b.test/**
    query: { k: [v] }
  - allow: GET http://a.test/**
  - allow: GET c.test:8443/**
    headers: { x-kind: [good] }
  - allow: ws a.test/socket
  - allow: tcp d.test:5432
    ip: [10.0.0.0/8]
  - allow: mcp tools/call a.test/mcp
    tool: [search]
)";
  auto loaded = policy::LoadText(std::string(kText), "memo.yaml");
  EXPECT_TRUE(loaded);
  return *loaded;
}

policy::Process ProcessOf(std::string_view path, bool trusted = true) {
  policy::Process process;
  process.exe.path = path;
  process.exe.trusted = trusted;
  return process;
}

/// A question, and what its views point into.
struct Question {
  policy::Process process = ProcessOf("/usr/bin/curl");
  policy::CanonicalTarget target = *policy::CanonicalizeTarget("/v1/x");
  std::vector<policy::HeaderView> headers;
  policy::RequestBody body;
  policy::RequestQuery query;
  Question() {
    query.connection.host = "a.test";
    query.connection.port = 443;
    query.connection.address = IpAddress::FromV4(0x01010101);
    query.method = "GET";
  }
  policy::RequestQuery& Ask() {
    query.target = &target;
    query.headers = headers;
    if (query.connection.process == nullptr) query.connection.process = &process;
    return query;
  }
};

using Change = std::function<void(Question*)>;

std::vector<Change> Changes() {
  static const policy::Process kOther = ProcessOf("/usr/bin/wget");
  static const std::vector<IpAddress> kOwn = {IpAddress::FromV4(0x01010101)};
  return {
      [](Question*) {},
      [](Question* q) { q->query.connection.host = "b.test"; },
      [](Question* q) { q->query.connection.port = 8443; },
      [](Question* q) { q->query.connection.address.reset(); },
      [](Question* q) { q->query.connection.address = IpAddress::FromV4(0x0a000001); },
      [](Question* q) {
        q->query.connection.address.reset();
        q->query.connection.remote = true;
      },
      [](Question* q) { q->query.connection.host_addresses = kOwn; },
      [](Question* q) { q->query.connection.process = &kOther; },
      [](Question* q) { q->process.exe.trusted = false; },
      [](Question* q) { q->process.exe.sha256.emplace(); },
      [](Question* q) { q->process.ancestors.push_back({"/usr/bin/make", true, {}}); },
      [](Question* q) { q->query.scheme = policy::Scheme::kHttp; },
      [](Question* q) { q->query.method = "DELETE"; },
      [](Question* q) { q->target = *policy::CanonicalizeTarget("/v2/x"); },
      [](Question* q) { q->target = *policy::CanonicalizeTarget("/v1/x?"); },
      [](Question* q) { q->target = *policy::CanonicalizeTarget("/v1/x?k=v"); },
      [](Question* q) { q->target = *policy::CanonicalizeTarget("/v1/x;p"); },
      [](Question* q) { q->headers = {{"x-kind", "good"}}; },
      [](Question* q) { q->headers = {{"x-kin", "dgood"}}; },
      [](Question* q) { q->headers = {{"x-kind", ""}, {"good", ""}}; },
      [](Question* q) { q->query.upgrade = policy::Upgrade::kWebSocket; },
  };
}

TEST(DecisionMemo, GivesThePolicysOwnAnswersAndAsksEachQuestionOnce) {
  const policy::SnapshotPtr snapshot = Policy();
  const WallTime now{};
  DecisionMemo memo(snapshot, now);
  const auto changes = Changes();
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < changes.size(); ++i) {
      Question question;
      changes[i](&question);
      const policy::RequestQuery query = question.Ask();
      const policy::Decision expected = snapshot->DecideRequest(query);
      const policy::Decision got = memo.Decide(query);
      EXPECT_EQ(got.allowed, expected.allowed) << i;
      EXPECT_EQ(got.reason, expected.reason) << i;
      EXPECT_EQ(got.rule, expected.rule) << i;
    }
    EXPECT_EQ(memo.asked(), changes.size()) << "two of them were taken for the same, or one for two";
  }
}

TEST(DecisionMemo, TellsConnectionsApartToo) {
  const policy::SnapshotPtr snapshot = Policy();
  DecisionMemo memo(snapshot, WallTime{});
  const policy::Process curl = ProcessOf("/usr/bin/curl");
  size_t distinct = 0;
  for (const policy::Process* process : {&curl, static_cast<const policy::Process*>(nullptr)})
    for (const std::string_view host : {"a.test", "d.test", ""})
      for (const uint16_t port : {uint16_t{443}, uint16_t{5432}})
        for (const uint32_t address : {0x01010101u, 0x0a000001u}) {
          policy::ConnectQuery query;
          query.process = process;
          query.host = host;
          query.port = port;
          query.address = IpAddress::FromV4(address);
          const auto expected = snapshot->DecideConnect(query);
          for (int twice = 0; twice < 2; ++twice) {
            const auto got = memo.Decide(query);
            EXPECT_EQ(got.verdict, expected.verdict);
            EXPECT_EQ(got.decision.rule, expected.decision.rule);
          }
          EXPECT_EQ(memo.asked(), ++distinct);
        }
}

TEST(DecisionMemo, AsksAgainWhereABodyWasRead) {
  DecisionMemo memo(Policy(), WallTime{});
  Question question;
  question.target = *policy::CanonicalizeTarget("/mcp");
  question.headers = {{"content-type", "application/json"}};
  question.query.method = "POST";
  EXPECT_NE(memo.Decide(question.Ask()).body_needed, 0);
  for (const std::string_view tool : {"search", "delete"}) {
    question.body = {};
    question.body.rpc.emplace().items.push_back({"tools/call", std::string(tool), {}});
    question.query.body = &question.body;
    EXPECT_EQ(memo.Decide(question.Ask()).allowed, tool == "search");
  }
  EXPECT_EQ(memo.asked(), 3u);
}

TEST(DecisionMemo, KeepsABoundedNumberOfAnswers) {
  DecisionMemo memo(Policy(), WallTime{});
  for (int round = 0; round < 2; ++round)
    for (size_t i = 0; i < kMaxMemoAnswers + 10; ++i) {
      Question question;
      question.target = *policy::CanonicalizeTarget(fmt::format("/v1/{}", i));
      EXPECT_TRUE(memo.Decide(question.Ask()).allowed);
    }
  EXPECT_EQ(memo.asked(), kMaxMemoAnswers + 20);
}

}  // namespace
}  // namespace sluice::proxy
