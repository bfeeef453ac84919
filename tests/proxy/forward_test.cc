// What leaves: heads written anew, and denials.

#include "proxy/forward.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "proxy/denial.h"

namespace sluice::proxy {
namespace {

RequestHead Parse(std::string& bytes) {
  RequestHead head;
  EXPECT_FALSE(ParseRequestHead({bytes.data(), bytes.size()}, &head));
  return head;
}

TEST(Forward, RebuildsTheRequestHead) {
  std::string bytes =
      "POST /a/../b HTTP/1.1\r\nhOST: A.test.\r\nConnection: close, x-secret\r\nX-Secret: 1\r\nAccept: */*\r\ncontent-length: "
      "3\r\n\r\n";
  const RequestHead head = Parse(bytes);
  Buffer out;
  AppendRequestHead(&out, head, {"/b", "a.test", *RequestFraming(head)});
  EXPECT_EQ(out.view(), "POST /b HTTP/1.1\r\nhost: a.test\r\naccept: */*\r\ncontent-length: 3\r\n\r\n");
}

TEST(Forward, EditsTheHeadBetweenTheJudgementAndTheWire) {
  std::string bytes = "GET /x HTTP/1.1\r\nHost: a\r\nAuthorization: mine\r\nAccept: */*\r\nAUTHORIZATION: again\r\n\r\n";
  const RequestHead head = Parse(bytes);
  HeadEdits edits;
  edits.removed = {"authorization"};
  edits.added = {{"authorization", "Bearer s"}};
  Buffer out;
  AppendRequestHead(&out, head, {"/x", "a", *RequestFraming(head), &edits});
  EXPECT_EQ(out.view(), "GET /x HTTP/1.1\r\nhost: a\r\naccept: */*\r\nauthorization: Bearer s\r\n\r\n");
}

TEST(Forward, KeepsAnExplicitZeroLength) {
  std::string bytes = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
  const RequestHead head = Parse(bytes);
  Buffer out;
  AppendRequestHead(&out, head, {"/", "a", *RequestFraming(head)});
  EXPECT_EQ(out.view(), "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
}

TEST(Forward, StripsForgedFieldsFromResponses) {
  std::string bytes =
      "HTTP/1.1 200 Fine\r\nX-Sluice-Denied: d-1\r\nProxy-Status: sluice; error=x\r\nServer: y\r\nKeep-Alive: "
      "5\r\nContent-Length: 0\r\n\r\n";
  ResponseHead head;
  ASSERT_FALSE(ParseResponseHead({bytes.data(), bytes.size()}, &head));
  Buffer out;
  AppendResponseHead(&out, head, {{BodyKind::kLength, 0}, Version::k11, Keep::kKeepAlive});
  EXPECT_EQ(out.view(), "HTTP/1.1 200 Fine\r\nServer: y\r\ncontent-length: 0\r\n\r\n");
}

TEST(Forward, WritesHostByPortAndFamily) {
  EXPECT_EQ(HostField("a.test", {}, 443, 443), "a.test");
  EXPECT_EQ(HostField("a.test", {}, 8443, 443), "a.test:8443");
  EXPECT_EQ(HostField("", *IpAddress::Parse("1.2.3.4"), 80, 80), "1.2.3.4");
  EXPECT_EQ(HostField("", *IpAddress::Parse("::1"), 8080, 80), "[::1]:8080");
}

Denial Sample() {
  Denial denial;
  denial.decision = {false, policy::Reason::kMethod, policy::RuleRef::kNone, false};
  denial.advice.suggest = "POST sentry.io/api/*";
  denial.advice.explanation = "no rule allows POST here";
  denial.target.host = "sentry.io";
  denial.target.port = 443;
  denial.target.scheme = "https";
  denial.target.method = "POST";
  denial.target.path = "/api/1";
  denial.id = "d-7";
  return denial;
}

TEST(Denial, PutsTheFixIntoTheReasonPhrase) {
  EXPECT_EQ(ReasonPhrase(Sample()), "Egress denied: needs \"POST sentry.io/api/*\" (d-7)");
}

TEST(Denial, KeepsTheReasonPhraseToOneVisibleLine) {
  Denial denial = Sample();
  denial.advice.suggest = "POST x/\r\nSet-Cookie: a\x1b[2J\xc3\xa9" + std::string(500, 'x');
  const std::string phrase = ReasonPhrase(denial);
  EXPECT_LE(phrase.size(), kMaxReasonPhrase);
  EXPECT_TRUE(phrase.ends_with("... (d-7)")) << phrase;
  for (const char c : phrase) EXPECT_TRUE(c >= 0x20 && c < 0x7f);
}

TEST(Denial, IsTextToGitAndJsonToOthers) {
  std::string git = "GET /r.git/info/refs?service=git-receive-pack HTTP/1.1\r\nHost: a\r\n\r\n";
  std::string agent = "GET /x HTTP/1.1\r\nHost: a\r\nUser-Agent: git/2.39.5\r\n\r\n";
  std::string curl = "GET /x HTTP/1.1\r\nHost: a\r\nUser-Agent: curl/8\r\n\r\n";
  EXPECT_EQ(FormFor(Parse(git)), DenialForm::kText);
  EXPECT_EQ(FormFor(Parse(agent)), DenialForm::kText);
  EXPECT_EQ(FormFor(Parse(curl)), DenialForm::kJson);
  EXPECT_EQ(DenialBody(Sample(), DenialForm::kText),
            "sluice: denied POST sentry.io/api/1 (d-7)\nno rule allows POST here\nallow it: POST sentry.io/api/*\n");
  const auto json = nlohmann::json::parse(DenialBody(Sample(), DenialForm::kJson));
  EXPECT_EQ(json["suggest"], "POST sentry.io/api/*");
  EXPECT_EQ(json["fixable_by"], "you");
}

TEST(Denial, OfHeadHasNoBody) {
  Buffer out;
  AppendDenial(&out, Sample(), DenialForm::kJson, Keep::kKeepAlive, "HEAD");
  EXPECT_TRUE(out.view().ends_with("\r\n\r\n"));
}

}  // namespace
}  // namespace sluice::proxy
