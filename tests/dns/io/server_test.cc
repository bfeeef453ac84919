#include "dns/io/server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "dns/io/server_udp.h"
#include "dns/rdata.h"
#include "dns/svcb.h"
#include "tests/dns/io/server_harness.h"
#include "tests/dns/io/stub_upstream.h"
#include "tests/dns/make.h"

namespace sluice::dns {
namespace {

using Datagrams = std::vector<std::vector<uint8_t>>;

Datagrams AnswerPlainly(const Message& q, Via) {
  const std::string owner = q.questions[0].name.ToText();
  if (q.questions[0].type == Type::kA) return {Encode(AnswerTo(q, {A(owner, "93.184.216.34", 600)}))};
  if (q.questions[0].type == Type::kAaaa) return {Encode(AnswerTo(q, {A(owner, "2606:2800::1", 600)}))};
  return {Encode(AnswerTo(q, {}))};
}

// `count` TXT records of 650 octets, by TCP only.
Datagrams LongText(const Message& q, Via via, int count) {
  Message answer = AnswerTo(q, {});
  answer.header.truncated = via == Via::kUdp;
  std::string text;
  for (int i = 0; i < 5; ++i) text += '\x81' + std::string(129, 'x');
  if (via == Via::kTcp) answer.answers.assign(static_cast<size_t>(count), {q.questions[0].name, Type::kTxt, kClassIn, 0, text});
  return {Encode(answer)};
}

Message WithOpt(Message message) {
  message.edns.emplace();
  return message;
}

class ServerTest : public testing::Test {
 protected:
  StubUpstream stub_{AnswerPlainly};

  HarnessOptions With(std::vector<std::string> allows) { return {.allows = std::move(allows), .upstream = {stub_.endpoint()}}; }
};

// The option that fills the query up is read and dropped (RFC 7830).
std::vector<uint8_t> PaddedQuery(const std::string& name, size_t octets) {
  std::vector<uint8_t> query = Encode(WithOpt(AskMessage(name, Type::kA)));
  const size_t padding = octets - query.size() - 4;
  query[query.size() - 2] = static_cast<uint8_t>((padding + 4) >> 8);
  query[query.size() - 1] = static_cast<uint8_t>(padding + 4);
  for (const size_t byte : {size_t{0}, size_t{12}, padding >> 8, padding & 0xff}) query.push_back(static_cast<uint8_t>(byte));
  query.resize(octets);
  return query;
}

TEST_F(ServerTest, AQueryOverTheBoundIsMalformed) {
  ResolverHarness resolver(With({"GET api.test/**"}));
  const auto rcode = [&](size_t octets) {
    const auto answer = DecodeHeader(resolver.AskRaw(PaddedQuery("api.test", octets)));
    return answer ? answer->rcode : Rcode::kRefused;
  };
  EXPECT_EQ(rcode(kMaxQueryOctets), Rcode::kNoError);
  EXPECT_EQ(rcode(kMaxQueryOctets + 1), Rcode::kFormErr);
}

TEST_F(ServerTest, AQueryTooManyThatWouldWaitIsToldSo) {
  StubUpstream silent([](const Message&, Via) { return Datagrams{}; });
  HarnessOptions options = With({"GET api.test/**"});
  options.upstream = {silent.endpoint()};
  options.limits = {.client_per_second = 1e9, .client_burst = 1e9, .upstream_per_second = 1e9, .upstream_burst = 1e9};
  options.flood = {.source_per_second = 1e9,
                   .source_burst = 1e9,
                   .process_per_second = 1e9,
                   .process_burst = 1e9,
                   .unknown_per_second = 1e9,
                   .unknown_burst = 1e9,
                   .total_per_second = 1e9,
                   .total_burst = 1e9};
  ResolverHarness resolver(std::move(options));
  const UniqueFd crowd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage server{};
  const auto length = static_cast<socklen_t>(Endpoint{IpAddress::FromV4(INADDR_LOOPBACK), resolver.port()}.ToSockaddr(&server));
  ASSERT_EQ(connect(crowd.get(), reinterpret_cast<sockaddr*>(&server), length), 0);
  // All ask the same, which is asked upstream once.
  const std::vector<uint8_t> query = Encode(WithOpt(AskMessage("api.test", Type::kA)));
  for (size_t i = 0; i < kMaxWaiting; ++i) ASSERT_GT(send(crowd.get(), query.data(), query.size(), 0), 0);
  const auto answer = resolver.Ask(WithOpt(AskMessage("api.test", Type::kA)));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.rcode, Rcode::kServFail);
  ASSERT_TRUE(answer->edns && answer->edns->error);
  EXPECT_EQ(answer->edns->error->text, "too many lookups are waiting");
  uint8_t octet = 0;
  EXPECT_LT(recv(crowd.get(), &octet, 1, MSG_DONTWAIT), 0) << "those before it wait";
}

TEST_F(ServerTest, AnAllowedNameGetsSyntheticAddressesOfBothFamilies) {
  ResolverHarness resolver(With({"GET api.test/**"}));
  for (const Type type : {Type::kA, Type::kAaaa}) {
    const auto answer = resolver.Ask(AskMessage("Api.Test", type));
    ASSERT_TRUE(answer);
    ASSERT_EQ(answer->answers.size(), 1u);
    const IpAddress address = *AddressOf(answer->answers[0]);
    EXPECT_EQ(resolver.pool().NameOf(address), "api.test");
    EXPECT_EQ(address.is_v4(), type == Type::kA);
    EXPECT_EQ(answer->answers[0].ttl, 300u) << "clamped";
    EXPECT_EQ(answer->questions[0].name.ToText(), "Api.Test") << "the client's spelling";
    EXPECT_TRUE(answer->header.recursion_available);
  }
  const auto events = resolver.events().decisions();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_TRUE(events[0].decision.allowed);
  EXPECT_EQ(events[0].layer, policy::EventLayer::kDns);
  EXPECT_EQ(events[0].target.host, "api.test");
  EXPECT_EQ(events[0].target.method, "A");
  EXPECT_EQ(events[0].process->pid, 4711);
  EXPECT_NE(events[0].decision.rule, policy::RuleRef::kNone);
}

TEST_F(ServerTest, ADeniedNameNeverLeavesAndSaysWhatIsMissing) {
  ResolverHarness resolver(With({"GET api.test/**"}));
  const auto answer = resolver.Ask(WithOpt(AskMessage("telemetry.example", Type::kA)));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.rcode, Rcode::kNxDomain);
  ASSERT_TRUE(answer->edns && answer->edns->error);
  EXPECT_EQ(answer->edns->error->code, Ede::kBlocked);
  EXPECT_NE(answer->edns->error->text.find("telemetry.example"), std::string::npos) << answer->edns->error->text;
  EXPECT_NE(answer->edns->error->text.find("(d-1)"), std::string::npos) << answer->edns->error->text;
  EXPECT_EQ(answer->authority.size(), 1u);
  EXPECT_TRUE(stub_.seen().empty());
  const auto events = resolver.events().decisions();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_FALSE(events[0].decision.allowed);
  EXPECT_EQ(events[0].denial_id, "d-1");
  EXPECT_NE(events[0].advice.suggest, "");
}

TEST_F(ServerTest, TheParentOfAnAllowedNameIsNodata) {
  ResolverHarness resolver(With({"GET api.example.test/**"}));
  const auto answer = resolver.Ask(AskMessage("example.test", Type::kA));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.rcode, Rcode::kNoError);
  EXPECT_TRUE(answer->answers.empty());
  EXPECT_TRUE(stub_.seen().empty());
}

TEST_F(ServerTest, OtherTypesFollowTheTypesOfTheRule) {
  ResolverHarness resolver(With({"GET api.test/**"}));
  for (const Type type : {Type::kTxt, Type::kMx, Type{99}, Type::kHttps, Type::kSvcb}) {
    const auto answer = resolver.Ask(AskMessage("api.test", type));
    ASSERT_TRUE(answer) << TypeText(type);
    EXPECT_EQ(answer->header.rcode, Rcode::kNoError) << TypeText(type);
    EXPECT_TRUE(answer->answers.empty()) << TypeText(type);
  }
  EXPECT_EQ(resolver.Ask(AskMessage("evil.test", Type::kHttps))->header.rcode, Rcode::kNxDomain);
  EXPECT_TRUE(stub_.seen().empty());
  int denied_https = 0;
  for (const auto& event : resolver.events().decisions())
    if (event.target.method == "HTTPS" && event.target.host == "api.test" && !event.decision.allowed) ++denied_https;
  EXPECT_EQ(denied_https, 0) << "a browser's HTTPS question for an allowed name is no denial";
}

TEST_F(ServerTest, AnyIsMinimalAndTransfersAreRefused) {
  ResolverHarness resolver(With({"GET api.test/**"}));
  const auto any = resolver.Ask(AskMessage("api.test", Type::kAny));
  ASSERT_TRUE(any);
  ASSERT_EQ(any->answers.size(), 1u);
  EXPECT_EQ(any->answers[0].type, Type::kHinfo);
  EXPECT_EQ(resolver.Ask(AskMessage("evil.test", Type::kAny))->header.rcode, Rcode::kNxDomain);
  EXPECT_EQ(resolver.Ask(AskMessage("api.test", Type::kAxfr))->header.rcode, Rcode::kRefused);
  EXPECT_TRUE(stub_.seen().empty());
}

TEST_F(ServerTest, MalformedQueriesAreAnsweredOrMetWithSilence) {
  ResolverHarness resolver(With({"GET api.test/**"}));
  EXPECT_TRUE(resolver.AskRaw(std::vector<uint8_t>(5), 100).empty());
  Message response = AskMessage("api.test", Type::kA);
  response.header.response = true;
  EXPECT_TRUE(resolver.AskRaw(Encode(response), 100).empty());
  const std::vector<uint8_t> self_pointing = {0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1};
  EXPECT_EQ(Decode(resolver.AskRaw(self_pointing))->header.rcode, Rcode::kFormErr);
  std::vector<uint8_t> trailing = Encode(AskMessage("api.test", Type::kA));
  trailing.push_back(7);
  EXPECT_EQ(Decode(resolver.AskRaw(trailing))->header.rcode, Rcode::kFormErr);
  EXPECT_TRUE(stub_.seen().empty());
}

TEST_F(ServerTest, LocalhostIsAnsweredWithoutARule) {
  ResolverHarness resolver(With({"GET api.test/**"}));
  EXPECT_EQ(AddressOf(resolver.Ask(AskMessage("localhost", Type::kA))->answers.at(0))->ToString(), "127.0.0.1");
  EXPECT_EQ(AddressOf(resolver.Ask(AskMessage("x.localhost", Type::kAaaa))->answers.at(0))->ToString(), "::1");
  EXPECT_TRUE(stub_.seen().empty());
}

TEST_F(ServerTest, SyntheticAddressesHaveReverseNames) {
  ResolverHarness resolver(With({"GET api.test/**"}));
  ASSERT_TRUE(resolver.Ask(AskMessage("api.test", Type::kA)));
  const auto known = resolver.Ask(AskMessage("1.0.18.198.in-addr.arpa", Type::kPtr));
  ASSERT_TRUE(known);
  EXPECT_EQ(TargetOf(known->answers.at(0))->ToText(), "api.test");
  EXPECT_EQ(resolver.Ask(AskMessage("9.0.18.198.in-addr.arpa", Type::kPtr))->header.rcode, Rcode::kNxDomain);
}

TEST_F(ServerTest, NoPrivateAddressReachesTheClient) {
  StubUpstream rebinding([](const Message& q, Via) {
    const std::string owner = q.questions[0].name.ToText();
    Message answer = AnswerTo(q, {});
    if (q.questions[0].type == Type::kA)
      answer.answers = {A(owner, "127.0.0.1"), A(owner, "169.254.169.254"), A(owner, "10.0.0.1")};
    if (q.questions[0].type == Type::kAaaa) answer.answers = {A(owner, "::1"), A(owner, "fd00:ec2::254")};
    answer.additional = {A(owner, "10.0.0.2")};
    return Datagrams{Encode(answer)};
  });
  ResolverHarness resolver({.allows = {"GET api.test/**"}, .yaml = {}, .upstream = {rebinding.endpoint()}});
  for (const Type type : {Type::kA, Type::kAaaa, Type::kAny, Type::kTxt, Type::kHttps}) {
    const auto answer = resolver.Ask(AskMessage("api.test", type));
    ASSERT_TRUE(answer);
    EXPECT_TRUE(answer->additional.empty());
    for (const Record& record : answer->answers)
      if (const auto address = AddressOf(record)) EXPECT_TRUE(resolver.pool().InRange(*address)) << address->ToString();
  }
}

struct Leading {
  const char* a;
  const char* aaaa;
  const char* rules;
  bool answered;
};

TEST_F(ServerTest, ANameThatLeadsOnlyWhereNoRuleMayGoIsFiltered) {
  static const char* const kPlain = "  - allow: GET api.test\n";
  static const char* const kTen = "  - allow: GET api.test\n    ip: [10.0.0.0/8]\n";
  const Leading cases[] = {
      {"10.0.0.5", nullptr, kPlain, false},
      {nullptr, "fd00:ec2::254", kPlain, false},
      {nullptr, "::ffff:10.0.0.5", kPlain, false},
      {"127.0.0.1", "::1", kPlain, false},
      {"169.254.169.254", nullptr, "  - allow: GET api.test\n    ip: [169.254.0.0/16]\n", false},
      {"169.254.169.254", nullptr, "  - allow: GET api.test\n    ip: [169.254.169.254]\n", true},
      {"8.8.4.4", nullptr, kPlain, false},  // the supervisor's own host
      {"8.8.4.4", nullptr, "  - allow: GET api.test\n    ip: [8.8.4.4]\n", true},
      {"10.0.0.5", nullptr, kTen, true},
      {"192.168.0.5", nullptr, kTen, false},
      {"93.184.216.34", nullptr, kTen, false},
      {"10.0.0.5", nullptr, "  - allow: dns api.test\n", false},
      {"10.0.0.5", nullptr, "  - allow: dns api.test\n  - allow: tcp 10.0.0.0/24:5432\n", true},
      {"10.0.0.5", nullptr, "  - allow: GET api.test\n  - allow: GET http://10.0.0.5\n", false},
      {"10.0.0.5", nullptr, "  - allow: GET api.test\n  - allow: tcp api.test:1\n    ip: [10.0.0.5]\n    until: 2020-01-01\n",
       false},
      {"10.0.0.5", nullptr, "  - allow: GET api.test\n  - allow: tcp api.test:1\n    ip: [10.0.0.5]\n    by: [/bin/other]\n",
       false},
      {"10.0.0.5", "2606:2800::1", kPlain, true},  // mixed: the public one is what is dialled
      {"93.184.216.34", "::1", kPlain, true},
  };
  for (const Leading& c : cases) {
    StubUpstream upstream([&c](const Message& q, Via) {
      const char* address = q.questions[0].type == Type::kA ? c.a : c.aaaa;
      Message answer = AnswerTo(q, {});
      if (address != nullptr) {
        answer.answers = {A(q.questions[0].name.ToText(), address)};
        answer.answers[0].type = q.questions[0].type;
        if (std::string_view(address).starts_with("::ffff:"))
          answer.answers[0].rdata = std::string(10, '\0') + "\xff\xff\x0a" + std::string(2, '\0') + "\x05";
      }
      return Datagrams{Encode(answer)};
    });
    ResolverHarness resolver({.allows = {},
                              .yaml = std::string("version: 1\nrules:\n") + c.rules,
                              .upstream = {upstream.endpoint()},
                              .host_addresses = {*IpAddress::Parse("8.8.4.4")}});
    const std::string told = fmt::format("{} {} under\n{}", c.a ? c.a : "-", c.aaaa ? c.aaaa : "-", c.rules);
    for (const Type type : {Type::kA, Type::kAaaa}) {
      const auto answer = resolver.Ask(WithOpt(AskMessage("api.test", type)));
      ASSERT_TRUE(answer) << told;
      EXPECT_EQ(answer->header.rcode, Rcode::kNoError) << told;
      EXPECT_EQ(answer->answers.size(), c.answered ? 1u : 0u) << told;
      ASSERT_TRUE(answer->edns) << told;
      EXPECT_EQ(answer->edns->error.has_value(), !c.answered) << told;
      if (answer->edns->error) EXPECT_EQ(answer->edns->error->code, Ede::kFiltered) << told;
    }
    EXPECT_EQ(resolver.pool().size() != 0, c.answered) << told;
  }
}

TEST_F(ServerTest, AFilteredAnswerIsOneDenialThatNamesTheAddressAndTheKey) {
  StubUpstream upstream([](const Message& q, Via) {
    if (q.questions[0].type != Type::kA) return Datagrams{Encode(AnswerTo(q, {}))};
    return Datagrams{Encode(AnswerTo(q, {A(q.questions[0].name.ToText(), "10.0.0.5")}))};
  });
  for (const char* const mode : {"", "mode: audit\n"}) {
    ResolverHarness resolver({.allows = {},
                              .yaml = fmt::format("version: 1\n{}rules:\n  - allow: GET api.test\n", mode),
                              .upstream = {upstream.endpoint()}});
    const auto answer = resolver.Ask(WithOpt(AskMessage("api.test", Type::kA)));
    ASSERT_TRUE(answer && answer->edns && answer->edns->error) << mode;
    std::vector<policy::DecisionEvent> denied;
    for (const auto& event : resolver.events().decisions())
      if (!event.decision.allowed) denied.push_back(event);
    ASSERT_EQ(denied.size(), 1u) << mode;
    EXPECT_EQ(denied[0].decision.reason, policy::Reason::kPrivateAddress);
    EXPECT_EQ(denied[0].target.address, IpAddress::Parse("10.0.0.5"));
    EXPECT_EQ(denied[0].target.host, "api.test");
    EXPECT_TRUE(denied[0].advice.explanation.starts_with(
        "api.test leads to 10.0.0.5, which is special (private); a rule would need ip: [10.0.0.5]; nearest: GET api.test ("))
        << denied[0].advice.explanation;
    EXPECT_EQ(answer->edns->error->text.substr(0, 60), denied[0].advice.explanation.substr(0, 60));
  }
}

TEST_F(ServerTest, AFilteredAnswerThatCannotBeRecordedIsAFailure) {
  StubUpstream upstream([](const Message& q, Via) {
    return Datagrams{
        Encode(AnswerTo(q, {A(q.questions[0].name.ToText(), q.questions[0].type == Type::kA ? "10.0.0.5" : "::1")}))};
  });
  ResolverHarness resolver({.allows = {"GET api.test"}, .yaml = {}, .upstream = {upstream.endpoint()}});
  resolver.events().RefuseDenials();
  EXPECT_EQ(resolver.Ask(AskMessage("api.test", Type::kA))->header.rcode, Rcode::kServFail);
}

TEST_F(ServerTest, WhatTheUpstreamLacksIsToldApart) {
  StubUpstream upstream([](const Message& q, Via) {
    Message answer = AnswerTo(q, {});
    const std::string name = q.questions[0].name.Canonical();
    if (name == "gone.test") answer.header.rcode = Rcode::kNxDomain;
    if (name == "broken.test") answer.header.rcode = Rcode::kServFail;
    return Datagrams{Encode(answer)};
  });
  ResolverHarness resolver({.allows = {"GET *.test/**"}, .yaml = {}, .upstream = {upstream.endpoint()}});
  EXPECT_EQ(resolver.Ask(AskMessage("gone.test", Type::kA))->header.rcode, Rcode::kNxDomain);
  EXPECT_EQ(resolver.Ask(AskMessage("empty.test", Type::kA))->header.rcode, Rcode::kNoError);
  EXPECT_EQ(resolver.Ask(AskMessage("broken.test", Type::kA))->header.rcode, Rcode::kServFail);
  EXPECT_EQ(resolver.pool().size(), 0u) << "no address before the lookup succeeded";
}

TEST_F(ServerTest, WhatCannotBeRecordedIsRefused) {
  ResolverHarness resolver(With({"GET api.test/**"}));
  resolver.events().RefuseAll();
  EXPECT_EQ(resolver.Ask(AskMessage("api.test", Type::kA))->header.rcode, Rcode::kServFail);
  EXPECT_EQ(resolver.Ask(AskMessage("evil.test", Type::kA))->header.rcode, Rcode::kServFail);
  EXPECT_TRUE(stub_.seen().empty());
}

TEST_F(ServerTest, AFullPoolIsServfail) {
  auto options = With({"GET *.test/**"});
  options.pool = 1;
  ResolverHarness resolver(std::move(options));
  EXPECT_EQ(resolver.Ask(AskMessage("a.test", Type::kA))->answers.size(), 1u);
  EXPECT_EQ(resolver.Ask(AskMessage("b.test", Type::kA))->header.rcode, Rcode::kServFail);
}

TEST_F(ServerTest, NamesThatCarryBytesUnderAWildcardAreRefused) {
  ResolverHarness resolver(With({"GET *.a.test/**"}));
  EXPECT_EQ(resolver.Ask(AskMessage(std::string(41, 'a') + ".a.test", Type::kA))->header.rcode, Rcode::kNxDomain);
  EXPECT_EQ(resolver.events().decisions().at(0).decision.reason, policy::Reason::kLimit);
  EXPECT_TRUE(stub_.seen().empty());
  const auto ask = [&](int i) { return resolver.Ask(AskMessage("n" + std::to_string(i) + ".a.test", Type::kA))->header.rcode; };
  for (int i = 0; i < 60; ++i) ASSERT_EQ(ask(i), Rcode::kNoError) << i;
  int refused = 0;
  for (int i = 60; i < 80; ++i) refused += ask(i) == Rcode::kServFail ? 1 : 0;
  EXPECT_GE(refused, 15) << "one new name a second comes back";
  EXPECT_EQ(ask(0), Rcode::kNoError) << "names that passed keep passing";
}

TEST_F(ServerTest, LookupsThatNoCacheAnswersAreRationed) {
  auto options = With({"GET *.a.test/**"});
  options.limits = {.new_names_per_minute = 1e6, .upstream_per_second = 1, .upstream_burst = 3};
  ResolverHarness resolver(std::move(options));
  const auto ask = [&](int i) { return resolver.Ask(AskMessage("n" + std::to_string(i) + ".a.test", Type::kA))->header.rcode; };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask(i), Rcode::kNoError) << i;
  EXPECT_EQ(ask(3), Rcode::kServFail);
  EXPECT_EQ(resolver.events().decisions().back().decision.reason, policy::Reason::kLimit);
  EXPECT_EQ(ask(0), Rcode::kNoError) << "the cache is free";
}

TEST_F(ServerTest, ANameDeniedDuringTheLookupIsNotAnswered) {
  std::atomic<bool> asked = false;
  std::atomic<bool> go = false;
  StubUpstream slow([&](const Message& q, Via via) {
    asked = true;
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return AnswerPlainly(q, via);
  });
  ResolverHarness resolver({.allows = {"GET api.test/**"}, .yaml = {}, .upstream = {slow.endpoint()}});
  std::thread other([&] {
    while (!asked) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    resolver.SetPolicy({"GET other.test/**"});
    go = true;
  });
  const auto answer = resolver.Ask(AskMessage("api.test", Type::kA));
  other.join();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.rcode, Rcode::kNxDomain);
  EXPECT_EQ(resolver.pool().size(), 0u);
  EXPECT_FALSE(resolver.events().decisions().back().decision.allowed);
}

TEST_F(ServerTest, GrantedTypesAreRelayedAndHttpsIsStripped) {
  StubUpstream upstream([](const Message& q, Via) {
    const Name owner = q.questions[0].name;
    Message answer = AnswerTo(q, {});
    if (q.questions[0].type == Type::kTxt) answer.answers = {{owner, Type::kTxt, kClassIn, 60, "\x02hi"}};
    if (q.questions[0].type == Type::kHttps)
      answer.answers = {
          {owner, Type::kHttps, kClassIn, 60, EncodeSvcb({1, Name(), {{1, "\x02h2"}, {4, "\x0a\x01\x01\x01"}, {5, "ech"}}})}};
    return Datagrams{Encode(answer)};
  });
  ResolverHarness resolver({.allows = {},
                            .yaml = "version: 1\nrules:\n  - allow: dns api.test\n    types: [A, TXT, HTTPS]\n",
                            .upstream = {upstream.endpoint()}});
  const auto txt = resolver.Ask(AskMessage("api.test", Type::kTxt));
  ASSERT_TRUE(txt);
  EXPECT_EQ(txt->answers.size(), 1u);
  const auto https = resolver.Ask(AskMessage("api.test", Type::kHttps));
  ASSERT_TRUE(https);
  EXPECT_EQ(https->answers.size(), 1u);
  for (const Record& record : https->answers) {
    const auto svcb = ParseSvcb(Octets(record.rdata));
    ASSERT_EQ(svcb->params.size(), 1u);
    EXPECT_EQ(svcb->params[0].key, 1);
  }
}

TEST_F(ServerTest, ADeniedNameIsDeniedAsTheEndOfAnAliasForEveryType) {
  StubUpstream upstream([](const Message& q, Via) {
    const Name end = *Name::FromText("x.evil.test");
    Message answer = AnswerTo(q, {});
    answer.answers = {NameRecord(q.questions[0].name, Type::kCname, end, 60),
                      {end, Type::kTxt, kClassIn, 60, "\x02hi"},
                      AddressRecord(end, *IpAddress::Parse("93.184.216.34"), 60)};
    return Datagrams{Encode(answer)};
  });
  ResolverHarness resolver(
      {.allows = {},
       .yaml = "version: 1\nrules:\n  - allow: dns api.test\n    types: [A, TXT, CNAME]\n  - deny: dns **.evil.test\n",
       .upstream = {upstream.endpoint()}});
  for (const Type type : {Type::kA, Type::kTxt, Type::kCname}) {
    const auto answer = resolver.Ask(AskMessage("api.test", type));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->header.rcode, Rcode::kNxDomain) << TypeText(type);
    EXPECT_TRUE(answer->answers.empty()) << TypeText(type);
  }
}

TEST_F(ServerTest, TcpQueriesArePipelinedAndAnsweredAsTheyAreReady) {
  StubUpstream upstream([](const Message& q, Via via) {
    if (q.questions[0].name.Canonical() == "slow.test") std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return AnswerPlainly(q, via);
  });
  ResolverHarness resolver({.allows = {"GET slow.test", "GET b.test"}, .yaml = {}, .upstream = {upstream.endpoint()}});
  const UniqueFd fd = resolver.ConnectTcp();
  Message first = AskMessage("slow.test", Type::kA);
  first.header.id = 1;
  Message second = AskMessage("denied.test", Type::kA);
  second.header.id = 2;
  SendFrame(fd.get(), Encode(first));
  SendFrame(fd.get(), Encode(second));
  std::vector<uint16_t> order;
  for (int i = 0; i < 2; ++i) {
    const auto frame = ReceiveFrame(fd.get());
    ASSERT_TRUE(frame);
    order.push_back(Decode(*frame)->header.id);
  }
  EXPECT_EQ(order, (std::vector<uint16_t>{2, 1}));
}

TEST_F(ServerTest, AHalfClosedTcpConnectionStillGetsItsAnswers) {
  ResolverHarness resolver(With({"GET api.test/**"}));
  const UniqueFd fd = resolver.ConnectTcp();
  for (int i = 0; i < 3; ++i) SendFrame(fd.get(), Encode(AskMessage("api.test", i == 1 ? Type::kAaaa : Type::kA)));
  shutdown(fd.get(), SHUT_WR);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ReceiveFrame(fd.get())) << i;
  EXPECT_FALSE(ReceiveFrame(fd.get())) << "then it is closed";
}

TEST_F(ServerTest, AuditModeAnswersAndSaysWhatItWouldDeny) {
  ResolverHarness resolver(
      {.allows = {}, .yaml = "version: 1\nmode: audit\nrules:\n  - allow: GET api.test\n", .upstream = {stub_.endpoint()}});
  const auto answer = resolver.Ask(AskMessage("other.test", Type::kA));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->answers.size(), 1u);
  const auto events = resolver.events().decisions();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].decision.audit_only);
  EXPECT_NE(events[0].advice.suggest, "");
}

TEST_F(ServerTest, IdleTcpConnectionsGiveWayAndAskingOnesDoNot) {
  StubUpstream silent([](const Message&, Via) { return Datagrams{}; });
  ResolverHarness resolver({.allows = {"GET api.test"}, .yaml = {}, .upstream = {silent.endpoint()}});
  const auto ask = [](const UniqueFd& fd, const char* name) { SendFrame(fd.get(), Encode(AskMessage(name, Type::kA))); };
  std::vector<UniqueFd> connections;
  for (int i = 0; i < 100; ++i) connections.push_back(resolver.ConnectTcp());
  // Its answer says that the resolver has read what came before it.
  ask(connections[99], "localhost");
  ASSERT_TRUE(ReceiveFrame(connections[99].get()));
  const std::vector<uint8_t> half = {0, 40, 0x12};
  ASSERT_EQ(send(connections[0].get(), half.data(), half.size(), 0), 3);
  const UniqueFd beyond = resolver.ConnectTcp();
  ask(beyond, "localhost");
  EXPECT_TRUE(ReceiveFrame(beyond.get())) << "the hundred-and-first is served";
  EXPECT_FALSE(ReceiveFrame(connections[0].get())) << "in the place of the one that asked nothing whole for longest";
  for (int i = 1; i < 100; ++i) ask(connections[static_cast<size_t>(i)], "api.test");
  ask(beyond, "api.test");
  ask(beyond, "localhost");
  ASSERT_TRUE(ReceiveFrame(beyond.get()));
  ask(connections[99], "localhost");
  ASSERT_TRUE(ReceiveFrame(connections[99].get()));
  const UniqueFd refused = resolver.ConnectTcp();
  EXPECT_FALSE(ReceiveFrame(refused.get())) << "all others have a query in flight";
  EXPECT_TRUE(resolver.Ask(AskMessage("localhost", Type::kA))) << "and UDP is served all the while";
  EXPECT_EQ(Decode(*ReceiveFrame(connections[1].get()))->header.rcode, Rcode::kServFail);
}

TEST_F(ServerTest, TcpQueriesBeyondThoseInFlightWaitTheirTurn) {
  ResolverHarness resolver(With({"GET api.test/**"}));
  const UniqueFd fd = resolver.ConnectTcp();
  for (int i = 0; i < 200; ++i) SendFrame(fd.get(), Encode(AskMessage("api.test", Type::kA)));
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(ReceiveFrame(fd.get())) << i;
  SendFrame(fd.get(), std::vector<uint8_t>(3));
  EXPECT_FALSE(ReceiveFrame(fd.get())) << "what is no message ends the connection";
}

TEST_F(ServerTest, ATcpClientThatDripsAQueryOrTakesNoAnswerIsClosed) {
  StubUpstream large([](const Message& q, Via via) { return LongText(q, via, 64); });
  ResolverHarness resolver({.allows = {},
                            .yaml = "version: 1\nrules:\n  - allow: dns large.test\n    types: [TXT]\n",
                            .upstream = {large.endpoint()},
                            .tcp_idle = std::chrono::milliseconds(300)});
  const UniqueFd dripping = resolver.ConnectTcp();
  const auto query = Encode(AskMessage("large.test", Type::kTxt));
  std::vector<uint8_t> frame = {0, static_cast<uint8_t>(query.size())};
  frame.insert(frame.end(), query.begin(), query.end());
  bool closed = false;
  for (size_t i = 0; i + 1 < frame.size() && !closed; ++i) {
    uint8_t byte = 0;
    closed = send(dripping.get(), &frame[i], 1, MSG_NOSIGNAL) < 0 || recv(dripping.get(), &byte, 1, MSG_DONTWAIT) == 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(closed) << "a byte now and then is no query";
  UniqueFd deaf = resolver.ConnectTcp();
  const int small = 2048;
  setsockopt(deaf.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  // More than the kernel buffers of a connection hold.
  for (int i = 0; i < 190; ++i) {
    if (send(deaf.get(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) break;
  }
  pollfd hung{deaf.get(), 0, 0};
  EXPECT_EQ(poll(&hung, 1, 20'000), 1) << "answers that nobody takes are not kept";
  EXPECT_NE(hung.revents & (POLLHUP | POLLERR), 0);
}

TEST_F(ServerTest, AnAnswerOf64KiBIsWholeByTcpAndTruncatedByUdp) {
  StubUpstream large([](const Message& q, Via via) { return LongText(q, via, 98); });
  ResolverHarness resolver({.allows = {},
                            .yaml = "version: 1\nrules:\n  - allow: dns large.test\n    types: [TXT]\n",
                            .upstream = {large.endpoint()}});
  const auto udp = resolver.Ask(WithOpt(AskMessage("large.test", Type::kTxt)));
  ASSERT_TRUE(udp);
  EXPECT_TRUE(udp->header.truncated);
  EXPECT_TRUE(udp->answers.empty());
  EXPECT_TRUE(udp->edns);
  const UniqueFd fd = resolver.ConnectTcp();
  for (int i = 0; i < 3; ++i) SendFrame(fd.get(), Encode(AskMessage("large.test", Type::kTxt)));
  for (int i = 0; i < 3; ++i) {
    const auto frame = ReceiveFrame(fd.get());
    ASSERT_TRUE(frame) << i;
    EXPECT_GT(frame->size(), 64'000u);
    EXPECT_EQ(Decode(*frame)->answers.size(), 98u);
  }
}

TEST_F(ServerTest, AnswersKeepToTheSizeTheClientCanTake) {
  struct Size {
    std::optional<uint16_t> advertised;
    int strings;  ///< of 100 octets
    bool fits;
  };
  for (const Size& c : {Size{{}, 3, true}, Size{{}, 5, false}, Size{100, 3, true}, Size{100, 5, false}, Size{900, 5, true},
                        Size{900, 9, false}, Size{1232, 9, true}, Size{4096, 9, true}, Size{4096, 13, false}}) {
    StubUpstream upstream([&c](const Message& q, Via) {
      std::string text;
      for (int i = 0; i < c.strings; ++i) text += '\x63' + std::string(99, 'x');
      return Datagrams{Encode(AnswerTo(q, {{q.questions[0].name, Type::kTxt, kClassIn, 60, text}}))};
    });
    ResolverHarness resolver({.allows = {},
                              .yaml = "version: 1\nrules:\n  - allow: dns text.test\n    types: [TXT]\n",
                              .upstream = {upstream.endpoint()}});
    Message query = AskMessage("text.test", Type::kTxt);
    if (c.advertised) query.edns = Edns{.udp_octets = *c.advertised};
    const auto bytes = resolver.AskRaw(Encode(query));
    EXPECT_EQ(!Decode(bytes)->header.truncated, c.fits) << c.advertised.value_or(0) << " " << c.strings;
    EXPECT_LE(bytes.size(), std::clamp<size_t>(c.advertised.value_or(512), 512, 1232));
  }
}

TEST_F(ServerTest, DualStackAnswersLeaveFromTheAddressAsked) {
  auto options = With({"GET api.test/**"});
  options.bind = Bind::kDualStack;
  ResolverHarness resolver(std::move(options));
  for (const char* text : {"127.0.0.1", "127.0.0.77", "::1"}) {
    const Endpoint asked{*IpAddress::Parse(text), resolver.port()};
    sockaddr_storage server{};
    const auto length = static_cast<socklen_t>(asked.ToSockaddr(&server));
    const UniqueFd fd(socket(server.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const timeval limit{2, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const auto query = Encode(AskMessage("api.test", Type::kA));
    ASSERT_GT(sendto(fd.get(), query.data(), query.size(), 0, reinterpret_cast<sockaddr*>(&server), length), 0) << text;
    std::vector<uint8_t> answer(1500);
    sockaddr_storage from{};
    socklen_t from_length = sizeof from;
    const ssize_t size = recvfrom(fd.get(), answer.data(), answer.size(), 0, reinterpret_cast<sockaddr*>(&from), &from_length);
    ASSERT_GT(size, 0) << text;
    EXPECT_EQ(Endpoint::FromSockaddr(reinterpret_cast<sockaddr*>(&from), from_length), asked);
    answer.resize(static_cast<size_t>(size));
    EXPECT_EQ(Decode(answer)->answers.size(), 1u);
  }
}

TEST_F(ServerTest, DestroyingTheServerDuringLookupsIsSafe) {
  StubUpstream silent([](const Message&, Via) { return Datagrams{}; });
  ResolverHarness resolver({.allows = {"GET *.test/**"}, .yaml = {}, .upstream = {silent.endpoint()}});
  for (int i = 0; i < 20; ++i)
    EXPECT_TRUE(resolver.AskRaw(Encode(AskMessage("n" + std::to_string(i) + ".test", Type::kA)), 1).empty());
}

}  // namespace
}  // namespace sluice::dns
