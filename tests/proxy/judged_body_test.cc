// Bodies that are read before they are forwarded, through the engine: real sockets, real TLS on both sides.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "proxy/body/body_reader.h"
#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {
namespace {

using ::testing::HasSubstr;

const std::string kCall = R"({"jsonrpc":"2.0","id":1,"method":"good"})";
const std::string kBad = R"({"jsonrpc":"2.0","id":1,"method":"evil"})";

// An origin and an engine that lets JSON-RPC calls of "good" pass.
struct Rpc {
  explicit Rpc(EngineOptions options = {})
      : origin(SharedAuthority().ServerContext("DNS:a.test"), Echo), bed(Rule("jsonrpc good"), std::move(options)) {}
  [[nodiscard]] std::string Rule(const std::string& verb) const {
    return LoopbackRule(fmt::format("{} a.test:{}/rpc", verb, origin.port()));
  }
  Peer Connect() { return bed.Connect("a.test", origin.port()); }
  [[nodiscard]] std::string Head(const std::string& fields) const {
    return fmt::format("POST /rpc HTTP/1.1\r\nHost: a.test:{}\r\nContent-Type: application/json\r\n{}\r\n", origin.port(),
                       fields);
  }
  [[nodiscard]] std::string Post(const std::string& body) const {
    return Head(fmt::format("Content-Length: {}\r\n", body.size())) + body;
  }
  Origin origin;
  Testbed bed;
};

std::string Chunks(std::string_view body, size_t piece) {
  std::string out;
  for (; !body.empty(); body.remove_prefix(std::min(piece, body.size()))) {
    const std::string_view part = body.substr(0, piece);
    out += fmt::format("{:x}\r\n{}\r\n", part.size(), part);
  }
  return out + "0\r\n\r\n";
}

TEST(JudgedBody, IsForwardedAsItWasJudgedAndTheConnectionLivesOn) {
  Rpc b;
  Peer client = b.Connect();
  const std::string chunked = b.Head("Transfer-Encoding: chunked\r\n");
  client.Write(b.Post(kCall) + b.Post(kBad) + chunked + Chunks(kCall, 7) + chunked + Chunks(kBad, 3) + b.Post(kCall));
  EXPECT_EQ(client.ReadMessage().body, "POST /rpc HTTP/1.1|" + kCall);
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 "));
  EXPECT_EQ(client.ReadMessage().body, "POST /rpc HTTP/1.1|" + kCall);
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 "));
  EXPECT_EQ(client.ReadMessage().body, "POST /rpc HTTP/1.1|" + kCall);
  EXPECT_EQ(b.origin.accepted(), 1);
  const auto decisions = b.bed.sink().decisions();
  ASSERT_EQ(decisions.size(), 5u);
  EXPECT_THAT(decisions[1].target.asked, ::testing::ElementsAre("jsonrpc evil"));
  const auto exchanges = b.bed.sink().exchanges(3);
  EXPECT_THAT(exchanges[0].target.asked, ::testing::ElementsAre("jsonrpc good"));
  EXPECT_EQ(exchanges[0].bytes_up, kCall.size());
}

TEST(JudgedBody, ArrivesByteByByte) {
  Rpc b;
  Peer client = b.Connect();
  for (const char c : b.Post(kCall)) ASSERT_TRUE(client.Write({&c, 1}));
  EXPECT_EQ(client.ReadMessage().body, "POST /rpc HTTP/1.1|" + kCall);
}

TEST(JudgedBody, IsAskedForWhereTheClientWaits) {
  Rpc b;
  Peer client = b.Connect();
  client.Write(b.Head(fmt::format("Content-Length: {}\r\nExpect: 100-continue\r\n", kCall.size())));
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Write(kCall);
  EXPECT_EQ(client.ReadMessage().body, "POST /rpc HTTP/1.1|" + kCall);
  // What no body can make right is refused without it.
  client.Write(b.Head(fmt::format("Content-Length: {}\r\nExpect: 100-continue\r\n", kMaxJudgedBody + 1)));
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 413 "));
}

TEST(JudgedBody, OfManyMegabytesIsStreamedOn) {
  Rpc b;
  for (const bool chunked : {false, true}) {
    Peer client = b.Connect();
    const std::string body = R"({"jsonrpc":"2.0","id":1,"method":"good","params":[")" + std::string(5'000'000, 'x') + "\"]}";
    client.Write(chunked ? b.Head("Transfer-Encoding: chunked\r\n") + Chunks(body, 100'000) : b.Post(body));
    EXPECT_EQ(client.ReadMessage().body, "POST /rpc HTTP/1.1|" + body);
  }
}

TEST(JudgedBody, ThatIsTooLargeIsRefusedAndTheClientSeesIt) {
  Rpc b;
  Peer client = b.Connect();
  std::thread sending(
      [&] { client.Write(b.Head("Transfer-Encoding: chunked\r\n") + Chunks(std::string(12'000'000, ' '), 1 << 20)); });
  const auto answer = client.ReadMessage();
  EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 413 ")) << answer.head;
  EXPECT_THAT(answer.body, HasSubstr("too large"));
  sending.join();
  EXPECT_EQ(b.origin.accepted(), 0);
}

TEST(JudgedBody, ThatStopsIsGivenUp) {
  EngineOptions options;
  options.deadlines.request_body_idle = std::chrono::milliseconds(200);
  Rpc b(std::move(options));
  Peer client = b.Connect();
  client.Write(b.Head("Content-Length: 100\r\n") + "{");
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 408 "));
  Peer gone = b.Connect();
  gone.Write(b.Head("Content-Length: 100\r\n") + "{");
  gone.Close();
  Peer broken = b.Connect();
  broken.Write(b.Head("Transfer-Encoding: chunked\r\n") + "zz\r\n");
  EXPECT_TRUE(broken.ReadMessage().FirstLine().starts_with("HTTP/1.1 400 "));
  EXPECT_EQ(b.origin.accepted(), 0);
}

TEST(JudgedBody, IsJudgedByThePolicyInForceAtItsEnd) {
  Rpc b;
  const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); };
  const auto begin = [&](Peer* client, const std::string& body) {
    client->Write(b.Head(fmt::format("Content-Length: {}\r\n", body.size())) + body.substr(0, 10));
    wait();
  };
  Peer client = b.Connect();
  begin(&client, kBad);
  b.bed.SetPolicy(b.Rule("jsonrpc evil"));
  wait();
  client.Write(kBad.substr(10));
  EXPECT_EQ(client.ReadMessage().body, "POST /rpc HTTP/1.1|" + kBad);
  // Another reading of the same bytes.
  const std::string query = R"({"query":"{ a }"})";
  begin(&client, query);
  b.bed.SetPolicy(b.Rule("graphql query"));
  wait();
  client.Write(query.substr(10));
  EXPECT_EQ(client.ReadMessage().body, "POST /rpc HTTP/1.1|" + query);
  // None at all.
  begin(&client, kBad);
  b.bed.SetPolicy(b.Rule("POST"));
  wait();
  client.Write(kBad.substr(10));
  EXPECT_EQ(client.ReadMessage().body, "POST /rpc HTTP/1.1|" + kBad);
  // Revoked meanwhile: closed, and nothing was sent on.
  begin(&client, kBad);
  b.bed.SetPolicy(b.Rule("GET"));
  EXPECT_EQ(client.ReadToEnd(), "");
}

TEST(JudgedBody, OfAPushIsReadToItsFlushAndTheRestStreamed) {
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), Echo);
  Testbed bed(LoopbackRule(fmt::format("git receive-pack a.test:{}/r", origin.port())) + "    refs: [refs/heads/a]\n");
  const auto command = [](const std::string& ref) {
    const std::string line =
        std::string(40, '0') + " " + std::string(40, 'a') + " refs/heads/" + ref + std::string(1, '\0') + " report-status";
    return fmt::format("{:04x}{}0000", line.size() + 4, line);
  };
  const auto head = [&](size_t length) {
    return fmt::format(
        "POST /r.git/git-receive-pack HTTP/1.1\r\nHost: a.test:{}\r\nContent-Type: application/x-git-receive-pack-request\r\n"
        "Content-Length: {}\r\n\r\n",
        origin.port(), length);
  };
  const std::string pack(20'000'000, 'P');
  Peer client = bed.Connect("a.test", origin.port());
  const std::string good = command("a") + pack;
  client.Write(head(good.size()) + good);
  EXPECT_EQ(client.ReadMessage().body, "POST /r.git/git-receive-pack HTTP/1.1|" + good);
  // Refused in git's own words, once all of it was taken; the connection lives on.
  const std::string bad = command("b") + pack;
  client.Write(head(bad.size()) + bad);
  const auto refused = client.ReadMessage();
  EXPECT_TRUE(refused.FirstLine().starts_with("HTTP/1.1 200 ")) << refused.head;
  EXPECT_EQ(refused.Field("content-type"), "application/x-git-receive-pack-result");
  EXPECT_THAT(refused.Field("x-sluice-denied"), HasSubstr("d-"));
  EXPECT_THAT(refused.body, HasSubstr("ng refs/heads/b denied by policy (d-"));
  client.Write(head(4) + "0000");
  EXPECT_EQ(client.ReadMessage().body, "POST /r.git/git-receive-pack HTTP/1.1|0000");
}

TEST(JudgedBody, IsBoundedOverAllConnections) {
  EngineOptions options;
  options.workers = 1;
  Rpc b(std::move(options));
  const std::string part = b.Head(fmt::format("Content-Length: {}\r\n", kMaxJudgedBody)) + std::string(kMaxJudgedBody - 1, ' ');
  std::vector<Peer> clients;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(b.Connect());
    clients.back().Write(part);
  }
  int full = 0;
  for (Peer& client : clients) {
    client.Write("1");
    full += client.ReadMessage().FirstLine().starts_with("HTTP/1.1 503 ") ? 1 : 0;
  }
  EXPECT_GE(full, 1);
  EXPECT_LT(full, 12);
  // What was held has been given back.
  Peer after = b.Connect();
  after.Write(b.Post(kCall));
  EXPECT_EQ(after.ReadMessage().body, "POST /rpc HTTP/1.1|" + kCall);
}

}  // namespace
}  // namespace sluice::proxy::testing
