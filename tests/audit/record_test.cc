#include "audit/record.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/audit/make.h"

namespace sluice::audit {
namespace {

using nlohmann::json;

template <class Event>
json Line(const Event& event) {
  const RecordFormat format("box \"1\"", {{"team", "a\nb"}, {"job", "7"}});
  std::string out;
  format.Append(&out, event);
  EXPECT_EQ(out.find('\n'), out.size() - 1);
  return json::parse(out);
}

TEST(RecordTest, ADenialHasEveryField) {
  policy::DecisionEvent event = Denial();
  event.snapshot = TestPolicy();
  event.advice.nearest = policy::RuleRef{0};
  event.detail = "a detail";
  const json record = Line(event);
  const json expected = {
      {"time", FormatRfc3339(event.time)},
      {"type", "decision"},
      {"sandbox", "box \"1\""},
      {"labels", {{"team", "a\nb"}, {"job", "7"}}},
      {"connection", 3},
      {"request", 2},
      {"layer", "request"},
      {"verdict", "deny"},
      {"reason", "no_rule"},
      {"process",
       {{"pid", 4711},
        {"start", 99},
        {"uid", 1000},
        {"exe", "/usr/bin/node"},
        {"comm", "node"},
        {"ancestors", {"/usr/bin/npm", "/usr/bin/make"}}}},
      {"target", {{"host", "telemetry.example"}, {"port", 443}, {"scheme", "https"}, {"method", "POST"}, {"path", "/v1/event"}}},
      {"nearest_rule", record.at("nearest_rule")},
      {"suggest", "POST telemetry.example/v1/event"},
      {"explanation", "nothing mentions telemetry.example"},
      {"detail", "a detail"},
      {"denial", "d-7"},
      {"policy", event.snapshot->digest()},
  };
  EXPECT_EQ(record, expected);
  EXPECT_EQ(record.at("nearest_rule").at("text"), event.snapshot->rules()[0].text);
  EXPECT_EQ(record.at("nearest_rule").at("line"), event.snapshot->rules()[0].span.line);
}

TEST(RecordTest, AClientOfTheExplicitProxyHasFieldsOfItsOwn) {
  policy::DecisionEvent event = Denial();
  auto process = std::make_shared<policy::Process>(*event.process);
  process->client = "ci";
  process->client_labels = "team=build env=prod";
  event.process = process;
  const json record = Line(event);
  EXPECT_EQ(record.at("process").at("comm"), "node");
  EXPECT_EQ(record.at("process").at("client"), "ci");
  EXPECT_EQ(record.at("process").at("client_labels"), "team=build env=prod");
}

TEST(RecordTest, AFloodHasItsCountAndBothEnds) {
  Repeated repeated{.event = Denial(), .count = 41, .first = Denial().time - std::chrono::seconds(1), .last_id = "d-47"};
  json record = Line(repeated);
  EXPECT_EQ(record.at("count"), 41);
  EXPECT_EQ(record.at("first"), FormatRfc3339(repeated.first));
  EXPECT_EQ(record.at("last_denial"), "d-47");
  for (const char* extra : {"count", "first", "last_denial"}) record.erase(extra);
  EXPECT_EQ(record, Line(Denial())) << "else as any other";
}

TEST(RecordTest, AnAllowNamesItsRule) {
  policy::DecisionEvent event = Denial();
  event.snapshot = TestPolicy();
  event.decision = {true, policy::Reason::kAllowed, policy::RuleRef{0}, false};
  event.advice = {};
  event.denial_id.clear();
  const json record = Line(event);
  EXPECT_EQ(record.at("verdict"), "allow");
  EXPECT_EQ(record.at("rule").at("id"), event.snapshot->rules()[0].id);
  EXPECT_FALSE(record.contains("denial"));
  EXPECT_FALSE(record.contains("suggest"));
}

TEST(RecordTest, AuditModeSaysWhatWouldBeDenied) {
  policy::DecisionEvent event = Denial();
  event.decision.allowed = event.decision.audit_only = true;
  EXPECT_EQ(Line(event).at("verdict"), "would_deny");
  EXPECT_EQ(Line(event).at("reason"), "no_rule");
}

TEST(RecordTest, AnExchangeHasStatusBytesAndTime) {
  policy::ExchangeEvent event;
  event.connection = 3;
  event.request = 1;
  event.target.host = "api.test";
  event.process = TestProcess();
  event.snapshot = TestPolicy();
  event.rule = policy::RuleRef{0};
  event.status = 200;
  event.bytes_up = 10;
  event.bytes_down = 1ull << 40;
  event.duration = std::chrono::microseconds(1500);
  event.error = "cut: policy changed";
  const json record = Line(event);
  EXPECT_EQ(record.at("type"), "exchange");
  EXPECT_EQ(record.at("status"), 200);
  EXPECT_EQ(record.at("bytes_up"), 10);
  EXPECT_EQ(record.at("bytes_down"), 1ull << 40);
  EXPECT_EQ(record.at("duration_us"), 1500);
  EXPECT_EQ(record.at("error"), "cut: policy changed");
  EXPECT_EQ(record.at("rule").at("file"), "--allow");
}

TEST(RecordTest, HostileBytesStayInTheirField) {
  policy::DecisionEvent event = Denial();
  auto process = std::make_shared<policy::Process>(*TestProcess());
  process->comm = "a\"},\"verdict\":\"allow\n\xff";
  process->exe = {"/tmp/\x1b[2J\n", false, {}};
  event.process = process;
  event.target.host = "x\",\"a\":\"";
  const json record = Line(event);
  EXPECT_EQ(record.at("verdict"), "deny");
  EXPECT_EQ(record.at("process").at("exe"), "/tmp/\x1b[2J\n");
  EXPECT_EQ(record.at("process").at("exe_trusted"), false);
  EXPECT_EQ(record.at("target").at("host"), "x\",\"a\":\"");
}

TEST(RecordTest, SecretsAreRedactedEverywhere) {
  const std::string token = "ghp_0123456789abcdefABCDEF0123456789abcd";
  policy::DecisionEvent event = Denial();
  event.target.path = "/x/" + token;
  event.target.query = "key=" + token + "&page=2";
  event.target.host = "0123456789abcdef0123456789abcdef.example";
  event.advice.suggest = "POST telemetry.example/x/" + token;
  event.advice.explanation = "no rule for /x/" + token;
  event.detail = token;
  event.target.asked = {"mcp tools/call " + token, "update refs/heads/main"};
  const RecordFormat format("", {});
  std::string out;
  format.Append(&out, event);
  EXPECT_EQ(out.find("ghp_"), std::string::npos) << out;
  EXPECT_EQ(out.find("0123456789abcdef"), std::string::npos) << out;
  EXPECT_EQ(json::parse(out).at("target").at("query"), "key=&page=");
  EXPECT_EQ(json::parse(out).at("suggest"), "POST telemetry.example/x/*");
  EXPECT_EQ(json::parse(out).at("target").at("asked").at(1), "update refs/heads/main");
}

TEST(RecordTest, AnUnknownProcessIsNull) {
  policy::DecisionEvent event = Denial();
  event.process = nullptr;
  EXPECT_TRUE(Line(event).at("process").is_null());
}

}  // namespace
}  // namespace sluice::audit
