#include "dns/io/server.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>

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
  if (q.questions[0].type == Type::kA) return {Encode(AnswerTo(q, {A(owner, "192.0.2.1", 600)}))};
  if (q.questions[0].type == Type::kAaaa) return {Encode(AnswerTo(q, {A(owner, "2001:db8::1", 600)}))};
  return {Encode(AnswerTo(q, {}))};
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

TEST_F(ServerTest, TcpBoundsHold) {
  ResolverHarness resolver(With({"GET api.test/**"}));
  std::vector<UniqueFd> connections;
  for (int i = 0; i < 100; ++i) connections.push_back(resolver.ConnectTcp());
  SendFrame(connections[99].get(), Encode(AskMessage("api.test", Type::kA)));
  ASSERT_TRUE(ReceiveFrame(connections[99].get()));
  const UniqueFd beyond = resolver.ConnectTcp();
  EXPECT_FALSE(ReceiveFrame(beyond.get())) << "the hundred-and-first is closed";
  for (int i = 0; i < 200; ++i) SendFrame(connections[0].get(), Encode(AskMessage("api.test", Type::kA)));
  for (int i = 0; i < 200; ++i)
    ASSERT_TRUE(ReceiveFrame(connections[0].get())) << "more than are in flight at once wait their turn";
  SendFrame(connections[1].get(), std::vector<uint8_t>(3));
  EXPECT_FALSE(ReceiveFrame(connections[1].get())) << "what is no message ends the connection";
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
