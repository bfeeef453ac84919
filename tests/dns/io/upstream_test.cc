#include "dns/io/upstream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <set>

#include "dns/chain.h"
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
    client_ = *UpstreamClient::Create(context_, {.servers = std::move(servers), .timeout = timeout});
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

}  // namespace
}  // namespace sluice::dns
