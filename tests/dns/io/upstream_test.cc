#include "dns/io/upstream.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <set>
#include <thread>

#include "dns/chain.h"
#include "dns/io/sent_query.h"
#include "dns/io/upstream_core.h"
#include "tests/dns/io/stub_upstream.h"
#include "tests/dns/make.h"

namespace sluice::dns {
namespace {

namespace asio = boost::asio;
using Datagrams = std::vector<std::vector<uint8_t>>;
using std::chrono::milliseconds;

// The plain answer: one address of the asked family.
Message Plain(const Message& query) {
  const std::string owner = query.questions[0].name.ToText();
  Message answer = AnswerTo(query, {A(owner, query.questions[0].type == Type::kA ? "192.0.2.1" : "2001:db8::1")});
  answer.edns.reset();
  return answer;
}

// Runs one lookup to its end.
LookupPtr Look(UpstreamClient* client, asio::io_context* context, const std::string& name) {
  LookupPtr result;
  asio::co_spawn(
      *context,
      [](UpstreamClient* c, std::string n, LookupPtr* out) -> asio::awaitable<void> { *out = co_await c->Look(std::move(n)); }(
                                                               client, name, &result),
      asio::detached);
  context->restart();
  while (result == nullptr && context->run_one_for(milliseconds(6000)) != 0) {
  }
  return result;
}

class UpstreamTest : public testing::Test {
 protected:
  UpstreamClient& Client(std::vector<Endpoint> servers, milliseconds timeout = milliseconds(3000)) {
    UpstreamOptions options{.timeout = timeout};
    for (const Endpoint& server : servers) options.servers.push_back({.endpoint = server});
    client_ = *UpstreamClient::Create(context_, std::move(options));
    return *client_;
  }
  LookupPtr Lookup(const std::string& name) { return Look(client_.get(), &context_, name); }

  asio::io_context context_;
  std::unique_ptr<UpstreamClient> client_;
};

TEST_F(UpstreamTest, BothFamiliesAreFoundIpv4First) {
  StubUpstream stub([](const Message& q, Via) { return Datagrams{Encode(Plain(q))}; });
  Client({stub.endpoint()});
  const auto lookup = Lookup("a.test");
  ASSERT_EQ(lookup->status, Lookup::Status::kFound);
  ASSERT_EQ(lookup->found.addresses.size(), 2u);
  EXPECT_EQ(lookup->found.addresses[0].ToString(), "192.0.2.1");
  EXPECT_EQ(lookup->found.addresses[1].ToString(), "2001:db8::1");
  EXPECT_EQ(lookup->found.ttl.count(), 60);
}

TEST_F(UpstreamTest, AnswersAreKeptForTheirTtl) {
  StubUpstream stub([](const Message& q, Via) { return Datagrams{Encode(Plain(q))}; });
  UpstreamClient& client = Client({stub.endpoint()});
  EXPECT_EQ(client.Peek("a.test"), nullptr);
  ASSERT_NE(Lookup("a.test"), nullptr);
  ASSERT_NE(client.Peek("a.test"), nullptr);
  EXPECT_EQ(Lookup("a.test")->status, Lookup::Status::kFound);
  EXPECT_EQ(stub.seen().size(), 2u) << "one A, one AAAA";
}

TEST_F(UpstreamTest, WhatIsCachedIsToldInPagesInTheOrderOfNames) {
  StubUpstream stub([](const Message& q, Via) {
    Message answer = Plain(q);
    if (q.questions[0].name.Canonical() == "gone.test") {
      answer = AnswerTo(q, {});
      answer.header.rcode = Rcode::kNxDomain;
      answer.authority.push_back(SoaRecord(*Name::FromText("test"), Name(), Name(), 30));
    }
    return Datagrams{Encode(answer)};
  });
  UpstreamClient& client = Client({stub.endpoint()});
  int answered = 0;
  for (const Type type : {Type::kAaaa, Type::kA}) client.LookFamily("b.test", type, [&](const LookupPtr&) { ++answered; });
  client.LookFamily("gone.test", Type::kA, [&](const LookupPtr&) { ++answered; });
  while (answered < 3 && context_.run_one_for(milliseconds(6000)) != 0) {
  }
  ASSERT_EQ(Lookup("a.test")->status, Lookup::Status::kFound);
  const std::vector<std::string> keys = {"a.test/A+AAAA", "b.test/A", "b.test/AAAA", "gone.test/A"};
  const CachePage all = client.Cached("", 10);
  ASSERT_EQ(all.entries.size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(all.entries[i].Key(), keys[i]);
  EXPECT_FALSE(all.more);
  EXPECT_EQ(all.entries[0].addresses.size(), 2u);
  EXPECT_EQ(all.entries[2].addresses.at(0).ToString(), "2001:db8::1");
  EXPECT_EQ(all.entries[1].status, "found");
  EXPECT_EQ(all.entries[3].status, "no_such_name");
  EXPECT_LE(all.entries[3].left, std::chrono::seconds(30));
  std::string after;
  for (const std::string& key : keys) {
    const CachePage page = client.Cached(after, 1);
    ASSERT_EQ(page.entries.size(), 1u);
    EXPECT_EQ(page.count, keys.size());
    EXPECT_EQ(page.more, key != keys.back()) << key;
    after = page.entries[0].Key();
    EXPECT_EQ(after, key);
  }
  EXPECT_TRUE(client.Cached(after, 1).entries.empty());
  EXPECT_TRUE(client.Cached("", 0).more);
}

TEST_F(UpstreamTest, QuestionsDifferInPortIdAndCase) {
  StubUpstream stub([](const Message& q, Via) { return Datagrams{Encode(Plain(q))}; });
  Client({stub.endpoint()});
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(Lookup("abcdefghijklmnop" + std::to_string(i) + ".test")->status, Lookup::Status::kFound);
  std::set<uint16_t> ports;
  std::set<uint16_t> ids;
  std::set<std::string> spellings;
  for (const SeenQuery& query : stub.seen()) {
    ports.insert(query.client_port);
    ids.insert(query.id);
    spellings.insert(query.name.substr(0, 16));
    EXPECT_TRUE(query.edns);
  }
  EXPECT_GT(ports.size(), 180u);
  EXPECT_GT(ids.size(), 190u);
  EXPECT_GT(spellings.size(), 180u);
}

TEST_F(UpstreamTest, ForgedAnswersAreIgnoredAndTheTrueOneIsUsed) {
  StubUpstream stub([](const Message& q, Via) {
    Message evil = AnswerTo(q, {A(q.questions[0].name.ToText(), "203.0.113.66")});
    Datagrams out;
    Message forged = evil;
    forged.header.id ^= 1;
    out.push_back(Encode(forged));
    forged = evil;
    forged.questions[0].name = *Name::FromText("b.test");
    out.push_back(Encode(forged));
    forged = evil;
    forged.questions[0].type = Type::kTxt;
    out.push_back(Encode(forged));
    forged = evil;
    forged.header.response = false;
    out.push_back(Encode(forged));
    out.push_back({1, 2, 3});
    out.push_back(Encode(Plain(q)));
    return out;
  });
  Client({stub.endpoint()});
  const auto lookup = Lookup("a.test");
  ASSERT_EQ(lookup->status, Lookup::Status::kFound);
  EXPECT_EQ(lookup->found.addresses[0].ToString(), "192.0.2.1");
}

TEST_F(UpstreamTest, AnAnswerInAnotherCaseIsAskedForAgainByTcp) {
  StubUpstream stub([](const Message& q, Via via) {
    Message answer = Plain(q);
    if (via == Via::kUdp) {
      answer.questions[0].name = *Name::FromText(answer.questions[0].name.Canonical());
      answer.answers = {A("a-name-with-many-letters.test", "203.0.113.66")};
    }
    return Datagrams{Encode(answer)};
  });
  Client({stub.endpoint()});
  const auto lookup = Lookup("a-name-with-many-letters.test");
  ASSERT_EQ(lookup->status, Lookup::Status::kFound);
  EXPECT_EQ(lookup->found.addresses[0].ToString(), "192.0.2.1");
}

TEST_F(UpstreamTest, TruncatedAnswersAreFetchedByTcp) {
  StubUpstream stub([](const Message& q, Via via) {
    Message answer = AnswerTo(q, {});
    if (via == Via::kUdp) {
      answer.header.truncated = true;
    } else {
      for (int i = 0; i < 60; ++i) answer.answers.push_back(A(q.questions[0].name.ToText(), "192.0.2." + std::to_string(i)));
    }
    return Datagrams{Encode(answer)};
  });
  Client({stub.endpoint()});
  EXPECT_EQ(Lookup("a.test")->found.addresses.size(), 60u);
}

TEST_F(UpstreamTest, SilentAndFailingServersArePassedOver) {
  StubUpstream silent([](const Message&, Via) { return Datagrams{}; });
  StubUpstream failing([](const Message& q, Via) {
    Message answer = AnswerTo(q, {});
    answer.header.rcode = Rcode::kServFail;
    return Datagrams{Encode(answer)};
  });
  StubUpstream good([](const Message& q, Via) { return Datagrams{Encode(Plain(q))}; });
  Client({silent.endpoint(), failing.endpoint(), good.endpoint()}, milliseconds(900));
  EXPECT_EQ(Lookup("a.test")->status, Lookup::Status::kFound);
}

TEST_F(UpstreamTest, ADeadlineEndsEveryLookup) {
  StubUpstream silent([](const Message&, Via) { return Datagrams{}; });
  Client({silent.endpoint()}, milliseconds(300));
  const auto start = std::chrono::steady_clock::now();
  const auto lookup = Lookup("a.test");
  ASSERT_EQ(lookup->status, Lookup::Status::kFailed);
  EXPECT_EQ(lookup->error.code, Code::kTimeout);
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(1500));
  EXPECT_EQ(silent.seen().size(), 6u) << "three tries of each family";
}

TEST_F(UpstreamTest, AServerWithoutEdnsIsAskedPlainly) {
  StubUpstream old([](const Message& q, Via) {
    if (!q.edns) return Datagrams{Encode(Plain(q))};
    Message answer;
    answer.header.id = q.header.id;
    answer.header.response = true;
    answer.header.rcode = Rcode::kFormErr;
    return Datagrams{Encode(answer)};
  });
  Client({old.endpoint()});
  EXPECT_EQ(Lookup("a.test")->status, Lookup::Status::kFound);
}

TEST_F(UpstreamTest, AbsenceIsToldApartAndKeptByItsSoa) {
  StubUpstream stub([](const Message& q, Via) {
    Message answer = AnswerTo(q, {});
    if (q.questions[0].name.Canonical() == "gone.test") answer.header.rcode = Rcode::kNxDomain;
    answer.authority.push_back(SoaRecord(*Name::FromText("test"), Name(), Name(), 60));
    return Datagrams{Encode(answer)};
  });
  Client({stub.endpoint()});
  EXPECT_EQ(Lookup("gone.test")->status, Lookup::Status::kNoSuchName);
  EXPECT_EQ(Lookup("empty.test")->status, Lookup::Status::kNoAddress);
  const size_t asked = stub.seen().size();
  EXPECT_EQ(Lookup("gone.test")->status, Lookup::Status::kNoSuchName);
  EXPECT_EQ(stub.seen().size(), asked);
}

TEST_F(UpstreamTest, ALoopOfAliasesIsAFailure) {
  StubUpstream stub([](const Message& q, Via) {
    return Datagrams{Encode(
        AnswerTo(q, {Cname(q.questions[0].name.ToText(), "b.test"), Cname("b.test", "a.test"), A("c.test", "192.0.2.9")}))};
  });
  Client({stub.endpoint()});
  EXPECT_EQ(Lookup("a.test")->status, Lookup::Status::kFailed);
}

TEST_F(UpstreamTest, AServerThatNeverAnswersAaaaCostsLittle) {
  StubUpstream stub(
      [](const Message& q, Via) { return q.questions[0].type == Type::kA ? Datagrams{Encode(Plain(q))} : Datagrams{}; });
  Client({stub.endpoint()});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(Lookup("a.test")->found.addresses.size(), 1u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(900));
}

TEST_F(UpstreamTest, ALateFamilyIsNotWaitedForAndKnownOnceItHasCome) {
  for (const Type late : {Type::kA, Type::kAaaa}) {
    // Silent at first, so that its answer is to the question asked again a second later.
    std::atomic<int> asked{0};
    StubUpstream stub([&](const Message& q, Via) {
      const bool silent = q.questions[0].type == late && asked++ == 0;
      return silent ? Datagrams{} : Datagrams{Encode(Plain(q))};
    });
    UpstreamClient& client = Client({stub.endpoint()});
    const auto first = Lookup("a.test");
    ASSERT_EQ(first->status, Lookup::Status::kFound);
    ASSERT_EQ(first->found.addresses.size(), 1u);
    EXPECT_EQ(first->found.addresses[0].is_v4(), late == Type::kAaaa);
    EXPECT_EQ(asked, 1) << "it was waited for";
    const auto both = [&] {
      const LookupPtr known = client.Peek("a.test");
      return known != nullptr && known->found.addresses.size() == 2;
    };
    context_.restart();
    while (!both() && context_.run_one_for(milliseconds(6000)) != 0) {
    }
    EXPECT_TRUE(both());
  }
}

TEST_F(UpstreamTest, EqualLookupsAreOneQuestion) {
  StubUpstream stub([](const Message& q, Via) { return Datagrams{Encode(Plain(q))}; });
  UpstreamClient& client = Client({stub.endpoint()});
  int done = 0;
  for (int i = 0; i < 50; ++i)
    asio::co_spawn(
        context_,
        [](UpstreamClient* c, int* count) -> asio::awaitable<void> {
          const auto found = co_await c->Resolve("a.test");
          if (found) ++*count;
        }(&client, &done),
        asio::detached);
  while (done < 50 && context_.run_one_for(milliseconds(3000)) != 0) {
  }
  EXPECT_EQ(done, 50);
  EXPECT_EQ(stub.seen().size(), 2u);
}

TEST_F(UpstreamTest, DestroyingTheClientEndsWhatWaits) {
  StubUpstream silent([](const Message&, Via) { return Datagrams{}; });
  UpstreamClient& client = Client({silent.endpoint()});
  bool failed = false;
  asio::co_spawn(
      context_,
      [](UpstreamClient* c, bool* out) -> asio::awaitable<void> {
        const auto found = co_await c->Resolve("a.test");
        *out = !found;
      }(&client, &failed),
      asio::detached);
  context_.run_for(milliseconds(50));
  client_.reset();
  context_.restart();
  context_.run_for(milliseconds(50));
  EXPECT_TRUE(failed);
}

TEST(SentQueryTest, ItIsWhatEncodeWrites) {
  RandomOctets random;
  SentQuery sent;
  for (const Extension extension : {Extension::kEdns, Extension::kPlain}) {
    for (const char* name : {".", "a.test", "a-longer-name-than-most.of.them.example"}) {
      MakeQuery({*Name::FromText(name), Type::kAaaa, kClassIn}, extension, &random, &sent);
      Message message;
      message.header.id = sent.id;
      message.header.recursion_desired = true;
      message.questions.push_back(sent.question);
      if (extension == Extension::kEdns) message.edns.emplace();
      EXPECT_EQ(sent.wire, Encode(message)) << name;
      EXPECT_TRUE(sent.question.name.EqualsIgnoringCase(*Name::FromText(name)));
    }
  }
}

// What is outstanding at one time, which is what a forger has to hit (RFC 5452 section 9).
TEST_F(UpstreamTest, ConcurrentQuestionsHaveAPortAndAnIdEach) {
  StubUpstream silent([](const Message&, Via) { return Datagrams{}; });
  UpstreamClient& client = Client({silent.endpoint()}, milliseconds(3000));
  constexpr size_t kAtOnce = 500;
  size_t done = 0;
  for (size_t i = 0; i < kAtOnce; ++i)
    client.LookFamily("n" + std::to_string(i) + ".test", Type::kA, [&](const LookupPtr&) { ++done; });
  context_.run_for(milliseconds(600));
  const auto seen = silent.seen();
  ASSERT_EQ(seen.size(), kAtOnce);
  std::set<uint16_t> ports;
  std::set<uint16_t> ids;
  std::set<int> high;
  std::set<int> low;
  for (const SeenQuery& query : seen) {
    ports.insert(query.client_port);
    ids.insert(query.id);
    high.insert(query.id >> 12);
    low.insert(query.id & 15);
  }
  EXPECT_EQ(ports.size(), kAtOnce) << "one port each";
  EXPECT_GE(ids.size(), kAtOnce - 12) << "random ids repeat themselves now and then";
  EXPECT_EQ(high.size(), 16u);
  EXPECT_EQ(low.size(), 16u);
  client_.reset();
  context_.restart();
  context_.run_for(milliseconds(50));
  EXPECT_EQ(done, kAtOnce) << "each is told";
}

TEST_F(UpstreamTest, OneQuestionTooManyIsToldSoAndAnEqualOneWaitsWithTheFirst) {
  StubUpstream silent([](const Message&, Via) { return Datagrams{}; });
  UpstreamClient& client = Client({silent.endpoint()}, milliseconds(3000));
  size_t done = 0;
  const auto ask = [&](size_t i, UpstreamClient::OnLookup tell) {
    client.LookFamily("n" + std::to_string(i) + ".test", Type::kA, std::move(tell));
  };
  for (size_t i = 0; i < kMaxOutstanding; ++i) ask(i, [&](const LookupPtr&) { ++done; });
  LookupPtr refused;
  ask(kMaxOutstanding, [&](const LookupPtr& lookup) { refused = lookup; });
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->status, Lookup::Status::kFailed);
  EXPECT_EQ(refused->error.code, Code::kExhausted);
  EXPECT_EQ(refused->error.message, "too many lookups are outstanding");
  ask(0, [&](const LookupPtr&) { ++done; });
  EXPECT_EQ(done, 0u);
  context_.run_for(milliseconds(300));
  EXPECT_EQ(silent.seen().size(), kMaxOutstanding);
  client_.reset();
  context_.restart();
  context_.run_for(milliseconds(50));
  EXPECT_EQ(done, kMaxOutstanding + 1);
}

TEST_F(UpstreamTest, ASocketThatWasAnsweredHasAnotherPortForItsNextQuestion) {
  StubUpstream stub([](const Message& q, Via) { return Datagrams{Encode(Plain(q))}; });
  UpstreamClient& client = Client({stub.endpoint()});
  for (int i = 0; i < 200; ++i) {
    bool done = false;
    client.LookFamily("n" + std::to_string(i) + ".test", Type::kA, [&](const LookupPtr&) { done = true; });
    context_.restart();
    while (!done && context_.run_one_for(milliseconds(3000)) != 0) {
    }
  }
  const auto seen = stub.seen();
  ASSERT_EQ(seen.size(), 200u);
  std::set<uint16_t> ports;
  for (size_t i = 0; i < seen.size(); ++i) {
    ports.insert(seen[i].client_port);
    if (i > 0) EXPECT_NE(seen[i].client_port, seen[i - 1].client_port) << i;
  }
  EXPECT_GT(ports.size(), 190u);
}

TEST_F(UpstreamTest, WhatWasLeftBehindAnAnswerIsNoGuessAtTheNextQuestion) {
  // More than one question puts up with before it goes by TCP.
  StubUpstream stub([](const Message& q, Via) {
    Datagrams all = {Encode(Plain(q))};
    Message forged = Plain(q);
    for (uint16_t i = 0; i < 80 && q.questions[0].name.Canonical() == "one.test"; ++i) {
      forged.header.id = i;
      all.push_back(Encode(forged));
    }
    return all;
  });
  UpstreamClient& client = Client({stub.endpoint()});
  int answered = 0;
  client.LookFamily("one.test", Type::kA, [&](const LookupPtr&) { ++answered; });
  context_.poll();
  // It was asked; all of the answer has come before any of it is read.
  std::this_thread::sleep_for(milliseconds(200));
  while (answered < 1 && context_.run_one_for(milliseconds(6000)) != 0) {
  }
  client.LookFamily("two.test", Type::kA, [&](const LookupPtr&) { ++answered; });
  while (answered < 2 && context_.run_one_for(milliseconds(6000)) != 0) {
  }
  const auto seen = stub.seen();
  ASSERT_EQ(seen.size(), 2u) << "one question more went by TCP";
  EXPECT_EQ(seen[1].via, Via::kUdp);
  EXPECT_NE(seen[0].client_port, seen[1].client_port);
}

TEST_F(UpstreamTest, AnAnswerFromAnotherPortIsIgnored) {
  const UniqueFd other(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  std::atomic<uint16_t> client_port{0};
  StubUpstream* self = nullptr;
  StubUpstream stub([&](const Message& q, Via) {
    const uint16_t port = self->seen().back().client_port;
    sockaddr_storage to{};
    const auto length = static_cast<socklen_t>(Endpoint{IpAddress::FromV4(0x7f000001), port}.ToSockaddr(&to));
    const auto forged = Encode(AnswerTo(q, {A(q.questions[0].name.ToText(), "203.0.113.66")}));
    sendto(other.get(), forged.data(), forged.size(), 0, reinterpret_cast<sockaddr*>(&to), length);
    client_port = port;
    return Datagrams{Encode(Plain(q))};
  });
  self = &stub;
  Client({stub.endpoint()});
  EXPECT_EQ(Lookup("a.test")->found.addresses.at(0).ToString(), "192.0.2.1");
  EXPECT_NE(client_port, 0);
}

TEST_F(UpstreamTest, AServerThatRefusesConnectionsIsPassedOverAtOnce) {
  StubUpstream good([](const Message& q, Via) { return Datagrams{Encode(Plain(q))}; });
  Client({{IpAddress::FromV4(0x7f000001), 1}, good.endpoint()});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(Lookup("a.test")->status, Lookup::Status::kFound);
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(400));
}

// Of this process's sockets those that are connected to the endpoint.
std::vector<int> SocketsTo(const Endpoint& endpoint) {
  std::vector<int> fds;
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    if (Endpoint::FromSockaddr(reinterpret_cast<sockaddr*>(&peer), length) == endpoint) fds.push_back(fd);
  }
  return fds;
}

TEST_F(UpstreamTest, EverySocketCarriesTheSeal) {
  const UniqueFd probe(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const SocketSeal seal = DrawSeal();
  if (!ApplySeal(probe.get(), seal)) GTEST_SKIP() << "needs CAP_NET_ADMIN";
  StubUpstream stub([](const Message& q, Via via) {
    Message answer = Plain(q);
    answer.header.truncated = via == Via::kUdp && q.questions[0].name.Canonical() == "long.test";
    if (via == Via::kTcp || !answer.header.truncated) std::this_thread::sleep_for(milliseconds(300));
    return Datagrams{Encode(answer)};
  });
  UpstreamOptions options{.servers = {{.endpoint = stub.endpoint()}}, .timeout = milliseconds(3000)};
  options.seal = seal;
  client_ = *UpstreamClient::Create(context_, std::move(options));
  for (const char* name : {"short.test", "long.test"}) {
    bool done = false;
    client_->LookFamily(name, Type::kA, [&](const LookupPtr&) { done = true; });
    context_.restart();
    context_.run_for(milliseconds(150));
    const auto sockets = SocketsTo(stub.endpoint());
    EXPECT_FALSE(sockets.empty()) << name;
    for (const int fd : sockets) {
      uint32_t mark = 0;
      uint32_t priority = 0;
      socklen_t length = sizeof mark;
      EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_MARK, &mark, &length), 0);
      length = sizeof priority;
      EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, &length), 0);
      EXPECT_EQ((SocketSeal{mark, priority}), seal) << name;
    }
    context_.restart();
    while (!done && context_.run_one_for(milliseconds(3000)) != 0) {
    }
    EXPECT_TRUE(done);
  }
}

TEST_F(UpstreamTest, BadOptionsAreRefused) {
  const auto create = [&](UpstreamOptions options) { return UpstreamClient::Create(context_, std::move(options)).has_value(); };
  const UpstreamServer server{.endpoint = {IpAddress::FromV4(0x7f000001), 53}};
  EXPECT_TRUE(create({.servers = {server}}));
  EXPECT_FALSE(create({.servers = {server}, .timeout = milliseconds(0)}));
  EXPECT_FALSE(create({.servers = {server}, .stubs = {{"a.test", {}}}}));
  EXPECT_FALSE(create({.servers = {server}, .stubs = {{"a.test", {server}}, {"a.test", {server}}}}));
  EXPECT_FALSE(create(
      {.servers = {{.endpoint = server.endpoint, .kind = UpstreamServer::Kind::kTls}}, .tls_roots = {"/nonexistent/roots.pem"}}));
}

}  // namespace
}  // namespace sluice::dns
