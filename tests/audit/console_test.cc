#include "audit/console.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/audit/make.h"

namespace sluice::audit {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
const SteadyTime kStart{seconds(1000)};

bool Has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(ConsoleTest, ADenialIsTwoLines) {
  EXPECT_EQ(DenialText(Denial(), Style::kPlain),
            "sluice: denied  POST https://telemetry.example/v1/event   node[4711] < npm < make   no rule\n"
            "        allow it: --allow 'POST telemetry.example/v1/event'          (d-7)\n");
}

TEST(ConsoleTest, EachLayerSaysWhatItWas) {
  using policy::EventLayer;
  policy::DecisionEvent event = Denial();
  event.target = {.host = "db.internal", .port = 5432, .scheme = "", .method = "mount", .path = "/run/x.sock", .query = ""};
  const std::pair<EventLayer, const char*> cases[] = {
      {EventLayer::kDns, "lookup of db.internal"},   {EventLayer::kConnect, "connect db.internal:5432"},
      {EventLayer::kTls, "TLS to db.internal:5432"}, {EventLayer::kUnix, "unix /run/x.sock"},
      {EventLayer::kUdp, "UDP to db.internal:5432"}, {EventLayer::kSyscall, "system call mount"}};
  for (const auto& [layer, text] : cases) {
    event.layer = layer;
    EXPECT_EQ(SubjectText(event), text);
  }
  event.target.host.clear();
  event.target.address = IpAddress::Parse("2001:db8::1");
  event.layer = EventLayer::kConnect;
  EXPECT_EQ(SubjectText(event), "connect [2001:db8::1]:5432");
}

TEST(ConsoleTest, ARequestThatNamesNoPlaceIsGivenNone) {
  policy::DecisionEvent event = Denial();
  event.target = {.host = "", .scheme = "http", .method = "GET", .path = "/x", .query = "a="};
  EXPECT_EQ(SubjectText(event), "GET /x?a=");
  event.target = {.host = "", .scheme = "http", .method = "GET", .path = "", .query = ""};
  EXPECT_EQ(SubjectText(event), "GET (no place named)");
  event.target.method.clear();
  EXPECT_EQ(SubjectText(event), "request (no place named)");
  event.layer = policy::EventLayer::kConnect;
  EXPECT_EQ(SubjectText(event), "connect (no place named)");
}

TEST(ConsoleTest, AnUnusualPortIsShown) {
  policy::DecisionEvent event = Denial();
  event.target.port = 8443;
  EXPECT_EQ(SubjectText(event), "POST https://telemetry.example:8443/v1/event");
}

TEST(ConsoleTest, AFetchOrPushIsNamedByItsRepository) {
  policy::DecisionEvent event = Denial();
  event.target = {
      .host = "git.test", .port = 443, .scheme = "https", .method = "GET", .path = "/octo/hello/info/refs", .query = "service="};
  event.advice.suggest = "git receive-pack git.test/octo/hello";
  EXPECT_EQ(SubjectText(event), "git receive-pack https://git.test/octo/hello");
  event.advice.suggest.clear();
  EXPECT_EQ(SubjectText(event), "git https://git.test/octo/hello");
  event.target.query = "service=&x=";
  EXPECT_EQ(SubjectText(event), "GET https://git.test/octo/hello/info/refs?service=&x=");
}

TEST(ConsoleTest, ALookupSaysThatAnyRuleForTheHostWillDo) {
  policy::DecisionEvent event = Denial();
  event.layer = policy::EventLayer::kDns;
  event.advice.suggest = "GET telemetry.example";
  EXPECT_TRUE(Has(DenialText(event, Style::kPlain),
                  "allow it: --allow 'GET telemetry.example', or another rule for what it will do there"));
}

TEST(ConsoleTest, WithoutASuggestionTheExplanationIsShown) {
  policy::DecisionEvent event = Denial();
  event.advice.suggest.clear();
  EXPECT_TRUE(Has(DenialText(event, Style::kPlain), "\n        nothing mentions telemetry.example"));
  event.advice.explanation.clear();
  EXPECT_TRUE(DenialText(event, Style::kPlain).ends_with("no rule   (d-7)\n"));
}

TEST(ConsoleTest, AnAncestorOfAnotherUserHasNoName) {
  policy::DecisionEvent event = Denial();
  auto process = std::make_shared<policy::Process>(*TestProcess());
  process->ancestors = {{"/usr/bin/bash", true, {}}, {"", true, {}}};
  event.process = process;
  EXPECT_TRUE(Has(DenialText(event, Style::kPlain), " < bash < ?   ")) << DenialText(event, Style::kPlain);
}

TEST(ConsoleTest, NothingTheWorkloadChoosesCanForgeALineOrAColour) {
  policy::DecisionEvent event = Denial();
  auto process = std::make_shared<policy::Process>(*TestProcess());
  process->exe = {"/tmp/x\nsluice: exit 0", true, {}};
  process->ancestors = {{"/tmp/\x1b[31mred", true, {}}};
  event.process = process;
  event.target.path = "/a\r\n\x1b]0;title\x07";
  event.target.method = "GE\nT";
  event.target.host = "h\nsluice: denied";
  event.advice.suggest = "POST a.test/x'; touch /tmp/owned; '\n";
  event.denial_id = "d-\n7";
  const std::string text = DenialText(event, Style::kPlain);
  EXPECT_EQ(std::ranges::count(text, '\n'), 2) << text;
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << text;
  EXPECT_TRUE(Has(text, R"(--allow 'POST a.test/x'\''; touch /tmp/owned; '\''%0A')")) << text;
}

TEST(ConsoleTest, ColourIsOnlyForTheVerdict) {
  const std::string text = DenialText(Denial(), Style::kColor);
  EXPECT_TRUE(Has(text, "sluice: \x1b[31mdenied\x1b[0m  POST")) << text;
  EXPECT_EQ(std::ranges::count(text, '\x1b'), 2);
}

TEST(ConsoleTest, SecretsAreNotShown) {
  policy::DecisionEvent event = Denial();
  event.target.path = "/x/ghp_0123456789abcdefABCDEF0123456789abcd";
  event.advice.suggest = "POST telemetry.example" + event.target.path;
  const std::string text = DenialText(event, Style::kPlain);
  EXPECT_FALSE(Has(text, "ghp_")) << text;
  EXPECT_TRUE(Has(text, "--allow 'POST telemetry.example/x/*'")) << text;
}

TEST(RepeatsTest, EqualDenialsAreToldOnceAndCounted) {
  Repeats repeats(Style::kPlain);
  EXPECT_TRUE(Has(repeats.Offer(Denial(), kStart), "denied"));
  for (int i = 0; i < 41; ++i) EXPECT_EQ(repeats.Offer(Denial(), kStart + milliseconds(i)), "");
  EXPECT_TRUE(repeats.pending());
  EXPECT_EQ(repeats.Collect(kStart + seconds(4), Repeats::Due::kOnly), "");
  EXPECT_EQ(repeats.Collect(kStart + seconds(5), Repeats::Due::kOnly),
            "sluice: … 41 more  POST https://telemetry.example/v1/event   no rule\n");
  EXPECT_FALSE(repeats.pending());
  EXPECT_TRUE(Has(repeats.Offer(Denial(), kStart + seconds(6)), "denied")) << "later it is news again";
}

TEST(RepeatsTest, ADenialThatStandsForManyCountsAsMany) {
  Repeats repeats(Style::kPlain);
  EXPECT_TRUE(Has(repeats.Offer(Denial(), kStart, 10), "denied"));
  EXPECT_EQ(repeats.Offer(Denial(), kStart, 100), "");
  EXPECT_TRUE(Has(repeats.Collect(kStart + seconds(5), Repeats::Due::kOnly), "… 109 more"));
  EXPECT_FALSE(repeats.pending());
}

TEST(RepeatsTest, AnotherTargetProcessOrReasonIsAnotherLine) {
  Repeats repeats(Style::kPlain);
  policy::DecisionEvent event = Denial();
  EXPECT_NE(repeats.Offer(event, kStart), "");
  event.target.path = "/other";
  EXPECT_NE(repeats.Offer(event, kStart), "");
  event.decision.reason = policy::Reason::kPath;
  EXPECT_NE(repeats.Offer(event, kStart), "");
  event.process = nullptr;
  EXPECT_NE(repeats.Offer(event, kStart), "");
}

TEST(RepeatsTest, TheOtherFamilyOfALookupIsNoRepeat) {
  Repeats repeats(Style::kPlain);
  policy::DecisionEvent event = Denial();
  event.layer = policy::EventLayer::kDns;
  EXPECT_NE(repeats.Offer(event, kStart), "");
  EXPECT_EQ(repeats.Offer(event, kStart), "");
  EXPECT_EQ(repeats.Collect(kStart + seconds(9), Repeats::Due::kAll), "");
  for (int i = 0; i < 3; ++i) (void)repeats.Offer(event, kStart + seconds(10));
  EXPECT_TRUE(Has(repeats.Collect(kStart + seconds(19), Repeats::Due::kAll), "2 more"));
}

TEST(RepeatsTest, AFloodOfDifferentDenialsIsCut) {
  Repeats repeats(Style::kPlain);
  int shown = 0;
  for (int i = 0; i < 5000; ++i) {
    policy::DecisionEvent event = Denial();
    event.target.path = "/" + std::to_string(i);
    shown += repeats.Offer(event, kStart + milliseconds(i / 10)).empty() ? 0 : 1;
  }
  EXPECT_GE(shown, 40);
  EXPECT_LE(shown, 52);
  EXPECT_EQ(repeats.Collect(kStart + seconds(2), Repeats::Due::kOnly), "") << "nor is it a flood of counts";
  EXPECT_EQ(repeats.Collect(kStart + seconds(6), Repeats::Due::kOnly),
            "sluice: … " + std::to_string(5000 - shown) + " more denials not shown\n");
  EXPECT_FALSE(repeats.pending());
}

}  // namespace
}  // namespace sluice::audit
