// Bodies judged on HTTP/2 streams, through the engine: real sockets, real TLS on both sides, to upstreams of either protocol.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/hex.h"
#include "proxy/body/body_reader.h"
#include "tests/proxy/h2_peer.h"

namespace sluice::proxy::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kCall = R"({"jsonrpc":"2.0","id":1,"method":"good"})";
const std::string kBad = R"({"jsonrpc":"2.0","id":1,"method":"evil"})";

/// An origin of one protocol that keeps the bodies it was sent, an engine that lets JSON-RPC calls of "good" pass, and clients
/// that speak HTTP/2.
class H2Rpc {
 public:
  explicit H2Rpc(const std::string& alpn, EngineOptions options = {}, const std::string& verb = "jsonrpc good",
                 const std::string& more = "")
      : origin(SharedAuthority().ServerContext("DNS:a.test", alpn), [this](Peer peer) { Serve(std::move(peer)); }),
        bed(Rule(verb) + more, std::move(options)) {
    bed.OfferAlpn({"h2"});
  }
  [[nodiscard]] std::string Rule(const std::string& verb) const {
    return LoopbackRule(fmt::format("{} a.test:{}/rpc", verb, origin.port()));
  }
  H2Client Client() { return H2Client(bed.Connect("a.test", origin.port())); }
  [[nodiscard]] FieldList Post(const FieldList& more = {}, const std::string& path = "/rpc") const {
    FieldList fields = {{":method", "POST"},
                        {":scheme", "https"},
                        {":authority", fmt::format("a.test:{}", origin.port())},
                        {":path", path},
                        {"content-type", "application/json"}};
    fields.insert(fields.end(), more.begin(), more.end());
    return fields;
  }
  std::vector<std::string> bodies() {
    const std::lock_guard lock(mutex_);
    return bodies_;
  }
  /// Something of a request has come.
  std::atomic<bool> touched{false};
  /// What is asked is taken and never answered.
  std::atomic<bool> silent{false};

 private:
  void Keep(const std::string& body) {
    const std::lock_guard lock(mutex_);
    bodies_.push_back(body);
  }
  void Serve(Peer peer) {
    if (peer.alpn() == "h2") {
      H2Talker talker(std::move(peer), H2Role::kServer);
      while (talker.Turn()) {
        touched = touched || !talker.messages.empty();
        for (auto& [id, message] : talker.messages) {
          if (!message.ended || silent) continue;
          message.ended = false;
          Keep(message.body);
          H2Output head;
          head.Reset(0);
          head.Add(":status", "200");
          talker.session.Respond(id, head, H2End::kOpen);
          talker.Say(id, "POST|" + message.body, true);
        }
        talker.Send();
      }
      return;
    }
    for (;;) {
      const auto request = peer.ReadMessage();
      touched = touched || !request.head.empty();
      if (request.head.empty()) return;
      if (silent) continue;
      Keep(request.body);
      peer.Write(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\nPOST|{}", request.body.size() + 5, request.body));
    }
  }
  std::mutex mutex_;
  std::vector<std::string> bodies_;

 public:
  Origin origin;
  Testbed bed;
};

std::string Bytes(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(HexValue(hex[i]) * 16 + HexValue(hex[i + 1]));
  return bytes;
}

const H2Message& Answer(H2Client& client, int32_t id) {
  client.Until([&] { return client.messages[id].ended || client.messages[id].closed; });
  return client.messages[id];
}

template <class Condition>
bool Within(milliseconds limit, Condition condition) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

TEST(H2Body, IsForwardedAsItWasJudged) {
  for (const std::string alpn : {"", "h2"}) {
    SCOPED_TRACE(alpn);
    H2Rpc b(alpn);
    H2Client client = b.Client();
    ASSERT_EQ(client.peer().alpn(), "h2");
    EXPECT_EQ(client.Do(b.Post(), kCall).body, "POST|" + kCall);
    const H2Message denied = client.Do(b.Post(), kBad);
    EXPECT_EQ(denied.status(), "403");
    EXPECT_THAT(denied.body, HasSubstr("jsonrpc evil"));
    EXPECT_EQ(client.Do(b.Post({{"content-length", std::to_string(kCall.size())}}), kCall).body, "POST|" + kCall);
    // In pieces, white space longer than any window in front of the last one, and the end of the stream apart.
    const std::string space(200000, ' ');
    const int32_t id = client.Start(b.Post(), H2Client::Body::kOpen);
    client.Say(id, kCall.substr(0, 10));
    client.Say(id, space);
    client.Say(id, kCall.substr(10));
    client.Say(id, "", true);
    EXPECT_EQ(Answer(client, id).body, "POST|" + kCall.substr(0, 10) + space + kCall.substr(10));
    EXPECT_THAT(b.bodies(), ElementsAre(kCall, kCall, kCall.substr(0, 10) + space + kCall.substr(10)));
    const auto exchanges = b.bed.sink().exchanges(3);
    ASSERT_EQ(exchanges.size(), 3u);
    EXPECT_EQ(exchanges[2].bytes_up, 200000 + kCall.size());
    EXPECT_THAT(exchanges[2].target.asked, ElementsAre("jsonrpc good"));
  }
}

TEST(H2Body, IsDeniedOnOneStreamWhileItsNeighboursLive) {
  for (const std::string alpn : {"", "h2"}) {
    SCOPED_TRACE(alpn);
    H2Rpc b(alpn);
    H2Client client = b.Client();
    const int32_t slow = client.Start(b.Post(), H2Client::Body::kOpen);
    client.Say(slow, kCall.substr(0, 12));
    EXPECT_EQ(client.Do(b.Post(), kBad).status(), "403");
    EXPECT_EQ(client.Do(b.Post(), kCall).status(), "200");
    client.Say(slow, kCall.substr(12), true);
    EXPECT_EQ(Answer(client, slow).body, "POST|" + kCall);
    EXPECT_THAT(b.bodies(), ElementsAre(kCall, kCall));
  }
}

TEST(H2Body, ReachesNobodyBeforeTheVerdict) {
  for (const std::string alpn : {"", "h2"}) {
    SCOPED_TRACE(alpn);
    H2Rpc b(alpn);
    H2Client client = b.Client();
    const int32_t id = client.Start(b.Post({{"content-length", std::to_string(kCall.size())}}), H2Client::Body::kOpen);
    client.Say(id, kCall.substr(0, kCall.size() - 1));
    std::this_thread::sleep_for(milliseconds(200));
    EXPECT_FALSE(b.touched);
    // Left in the middle: nothing was decided, nothing begun.
    client.session.Reset(id, kH2Cancel);
    client.Send();
    std::this_thread::sleep_for(milliseconds(200));
    EXPECT_FALSE(b.touched);
    EXPECT_TRUE(b.bed.sink().decisions().empty());
    EXPECT_EQ(client.Do(b.Post(), kCall).status(), "200");
  }
}

TEST(H2Body, ThatIsNotThereIsJudgedToo) {
  H2Rpc b("h2");
  H2Client client = b.Client();
  EXPECT_EQ(client.Do(b.Post()).status(), "403");
  const int32_t id = client.Start(b.Post(), H2Client::Body::kOpen);
  client.Say(id, "", true);
  EXPECT_EQ(Answer(client, id).status(), "403");
  EXPECT_EQ(client.Do(b.Post({{"content-length", "0"}})).status(), "403");
  EXPECT_FALSE(b.touched);
}

TEST(H2Body, IsInflatedToBeJudged) {
  // Of kCall and kBad, by gzip.
  const std::string good =
      Bytes("1f8b08000000000002ffab56ca2acecf2b2a4856b25232d23350d251ca4c51b232d451ca4d2dc9c8073295d2f381542d004b09f08728000000");
  const std::string bad = Bytes(
      "1f8b08000000000002ffab56ca2acecf2b2a4856b25232d23350d251ca4c51b232d451ca4d2dc9c807329552cb3273946a01d753b08c28000000");
  H2Rpc b("h2");
  H2Client client = b.Client();
  EXPECT_EQ(client.Do(b.Post({{"content-encoding", "gzip"}}), good).body, "POST|" + good);
  EXPECT_EQ(client.Do(b.Post({{"content-encoding", "gzip"}}), bad).status(), "403");
  EXPECT_EQ(client.Do(b.Post({{"content-encoding", "gzip"}}), good + "x").status(), "403");
  EXPECT_EQ(client.Do(b.Post({{"content-encoding", "br"}}), good).status(), "403");
}

TEST(H2Body, OfManyMegabytesIsStreamedOnAndOneTooLargeIsRefused) {
  for (const std::string alpn : {"", "h2"}) {
    SCOPED_TRACE(alpn);
    H2Rpc b(alpn);
    H2Client client = b.Client();
    const std::string body = R"({"jsonrpc":"2.0","id":1,"method":"good","params":[")" + std::string(5'000'000, 'x') + "\"]}";
    EXPECT_EQ(client.Do(b.Post(), body).body, "POST|" + body);
    // Told without a byte of it, or once it is over.
    const FieldList measured = b.Post({{"content-length", std::to_string(kMaxJudgedBody + 1)}});
    EXPECT_EQ(Answer(client, client.Start(measured, H2Client::Body::kOpen)).status(), "413");
    const H2Message large = client.Do(b.Post(), std::string(12'000'000, ' '));
    EXPECT_EQ(large.status(), "413");
    EXPECT_THAT(large.body, HasSubstr("too large"));
    EXPECT_EQ(b.bodies().size(), 1u);
  }
}

TEST(H2Body, OverTheBoundOfAnyBodyIsRefused) {
  EngineOptions options;
  options.max_body_bytes = 1005;  // and an answer is five bytes longer than what was sent
  for (const std::string alpn : {"", "h2"}) {
    SCOPED_TRACE(alpn);
    H2Rpc b(alpn, options, "POST");
    H2Client client = b.Client();
    EXPECT_EQ(client.Do(b.Post(), std::string(1000, 'x')).status(), "200");
    b.touched = false;
    EXPECT_EQ(client.Do(b.Post({{"content-length", "1006"}}), std::string(1006, 'x')).status(), "413");
    EXPECT_FALSE(b.touched);
    EXPECT_EQ(client.Do(b.Post(), std::string(1006, 'x')).status(), "413");
    // Too large an answer: told where its head says so, cut where it does not.
    const H2Message large = client.Do(b.Post(), std::string(1005, 'x'));
    EXPECT_TRUE(large.status() == "502" || large.closed.value_or(kH2NoError) != kH2NoError) << large.body.size();
  }
}

TEST(H2Body, ThatDisagreesWithItsLengthIsNeverForwarded) {
  struct Case {
    std::string name;
    std::string length;
    std::vector<std::string> pieces;
  };
  const Case cases[] = {{"shorter", "100", {kCall}},
                        {"longer", "10", {kCall}},
                        {"longer in a second frame", std::to_string(kCall.size()), {kCall, " "}},
                        {"none", "100", {""}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    H2Rpc b("h2");
    Peer peer = b.bed.Connect("a.test", b.origin.port());
    std::string frames =
        std::string(kH2Preface) + SettingsFrame() + HeadersFrame(1, b.Post({{"content-length", c.length}}), kEndHeaders);
    for (const std::string& piece : c.pieces) frames += Frame(kData, &piece == &c.pieces.back() ? kEndStream : 0, 1, piece);
    peer.Write(frames);
    std::string bytes;
    std::vector<SeenFrame> seen;
    while (std::ranges::find(seen, int{kRstStream}, &SeenFrame::type) == seen.end()) {
      const std::string more = peer.ReadSome();
      if (more.empty()) break;
      bytes += more;
      for (SeenFrame& frame : TakeFrames(&bytes)) seen.push_back(std::move(frame));
    }
    const auto reset = std::ranges::find(seen, int{kRstStream}, &SeenFrame::type);
    ASSERT_NE(reset, seen.end());
    EXPECT_EQ(reset->Number(), uint32_t{kH2ProtocolError});
    EXPECT_FALSE(b.touched);
  }
}

TEST(H2Body, IsAskedForWhereTheClientWaits) {
  H2Rpc b("h2");
  H2Client client = b.Client();
  const int32_t id = client.Start(b.Post({{"expect", "100-continue"}}), H2Client::Body::kOpen);
  client.Until([&] { return !client.messages[id].interims.empty(); });
  EXPECT_EQ(client.messages[id].interims[0], (FieldList{{":status", "100"}}));
  client.Say(id, kCall, true);
  EXPECT_EQ(Answer(client, id).body, "POST|" + kCall);
}

TEST(H2Body, ThatStopsIsGivenUpAndItsNeighboursLive) {
  EngineOptions options;
  options.deadlines.request_body_idle = milliseconds(200);
  H2Rpc b("h2", options);
  H2Client client = b.Client();
  const int32_t id = client.Start(b.Post(), H2Client::Body::kOpen);
  client.Say(id, "{");
  EXPECT_EQ(Answer(client, id).status(), "408");
  EXPECT_FALSE(b.touched);
  EXPECT_EQ(client.Do(b.Post(), kCall).status(), "200");
}

TEST(H2Body, IsJudgedByThePolicyInForceAtItsEnd) {
  H2Rpc b("h2");
  H2Client client = b.Client();
  const auto wait = [] { std::this_thread::sleep_for(milliseconds(200)); };
  const auto begin = [&](const std::string& body) {
    const int32_t id = client.Start(b.Post(), H2Client::Body::kOpen);
    client.Say(id, body.substr(0, 10));
    wait();
    return id;
  };
  const int32_t other = begin(kBad);
  b.bed.SetPolicy(b.Rule("jsonrpc evil"));
  wait();
  client.Say(other, kBad.substr(10), true);
  EXPECT_EQ(Answer(client, other).body, "POST|" + kBad);
  // Another reading of the same bytes.
  const std::string query = R"({"query":"{ a }"})";
  const int32_t graphql = begin(query);
  b.bed.SetPolicy(b.Rule("graphql query"));
  wait();
  client.Say(graphql, query.substr(10), true);
  EXPECT_EQ(Answer(client, graphql).body, "POST|" + query);
  // Revoked meanwhile: reset, and nothing was sent on.
  const size_t before = b.bodies().size();
  const int32_t revoked = begin(kBad);
  b.bed.SetPolicy(b.Rule("GET"));
  EXPECT_EQ(Answer(client, revoked).closed, std::optional<uint32_t>(kH2Cancel));
  EXPECT_EQ(b.bodies().size(), before);
}

TEST(H2Body, OfAPushIsReadToItsFlushAndTheRestStreamed) {
  for (const std::string alpn : {"", "h2"}) {
    SCOPED_TRACE(alpn);
    H2Rpc b(alpn, {}, "jsonrpc good");
    b.bed.SetPolicy(LoopbackRule(fmt::format("git receive-pack a.test:{}/r", b.origin.port())) + "    refs: [refs/heads/a]\n");
    const auto command = [](const std::string& ref) {
      const std::string line =
          std::string(40, '0') + " " + std::string(40, 'a') + " refs/heads/" + ref + std::string(1, '\0') + " report-status";
      return fmt::format("{:04x}{}0000", line.size() + 4, line);
    };
    FieldList push = b.Post({}, "/r.git/git-receive-pack");
    push[4].second = "application/x-git-receive-pack-request";
    H2Client client = b.Client();
    const std::string good = command("a") + std::string(5'000'000, 'P');
    EXPECT_EQ(client.Do(push, good).body, "POST|" + good);
    // Refused in git's own words, once all of it was taken, however large.
    const H2Message refused = client.Do(push, command("b") + std::string(alpn.empty() ? 70'000'000 : 1'000'000, 'P'));
    EXPECT_EQ(refused.status(), "200");
    EXPECT_EQ(refused.Field("content-type"), "application/x-git-receive-pack-result");
    EXPECT_THAT(refused.Field("x-sluice-denied"), HasSubstr("d-"));
    EXPECT_THAT(refused.body, HasSubstr("ng refs/heads/b denied by policy (d-"));
    EXPECT_EQ(client.Do(push, "0000").body, "POST|0000");
  }
}

TEST(H2Body, LeavesGrpcStreamsAlone) {
  H2Rpc b("h2", {}, "jsonrpc good", "");
  b.bed.SetPolicy(b.Rule("jsonrpc good") + LoopbackRule(fmt::format("grpc a.test:{} pkg.Svc/*", b.origin.port())));
  H2Client client = b.Client();
  FieldList call = b.Post({{"te", "trailers"}}, "/pkg.Svc/Do");
  call[4].second = "application/grpc";
  const int32_t id = client.Start(call, H2Client::Body::kOpen);
  client.Say(id, std::string("\0\0\0\0\1a", 6));
  // It is on its way although it has not ended.
  EXPECT_TRUE(Within(milliseconds(2000), [&] { return b.touched.load(); }));
  EXPECT_EQ(client.Do(b.Post(), kBad).status(), "403");
  client.Say(id, std::string("\0\0\0\0\1b", 6), true);
  EXPECT_EQ(Answer(client, id).body, "POST|" + std::string("\0\0\0\0\1a\0\0\0\0\1b", 12));
}

TEST(H2Body, IsBoundedOverAllStreams) {
  EngineOptions options;
  options.workers = 1;
  H2Rpc b("h2", options);
  H2Client client = b.Client();
  const std::string part(kMaxJudgedBody - 1, ' ');
  std::vector<int32_t> ids;
  for (int i = 0; i < 12; ++i) {
    ids.push_back(client.Start(b.Post(), H2Client::Body::kOpen));
    client.Say(ids.back(), part);
  }
  for (const int32_t id : ids) client.Say(id, "1", true);
  int full = 0;
  for (const int32_t id : ids) full += Answer(client, id).status() == "503" ? 1 : 0;
  EXPECT_GE(full, 1);
  EXPECT_LT(full, 12);
  EXPECT_FALSE(b.touched);
  // What was held has been given back.
  EXPECT_EQ(client.Do(b.Post(), kCall).status(), "200");
}

TEST(H2Body, IsBoundedByWhatWasReadInItToo) {
  EngineOptions options;
  options.workers = 1;
  H2Rpc b("h2", options);
  b.bed.SetPolicy(LoopbackRule(fmt::format("POST a.test:{}/rpc", b.origin.port())) + "    json: { /model: [small] }\n");
  b.silent = true;
  std::string body = R"({"model":"small","x":[0)";
  for (int i = 0; i < 90'000; ++i) body += ",0";
  body += "]}";
  H2Client client = b.Client();
  std::vector<int32_t> ids;
  for (int i = 0; i < 20; ++i) {
    ids.push_back(client.Start(b.Post(), H2Client::Body::kOpen));
    client.Say(ids.back(), body, true);
  }
  // The origin answers none: what was read is kept, for the policy may change, until there is no room for more.
  client.Until([&] { return std::ranges::any_of(ids, [&](int32_t id) { return client.messages[id].status() == "503"; }); });
  EXPECT_LT(std::ranges::count_if(ids, [&](int32_t id) { return client.messages[id].status() == "503"; }), 20);
  for (const int32_t id : ids) client.session.Reset(id, kH2Cancel);
  client.Send();
  b.silent = false;
  EXPECT_TRUE(Within(milliseconds(5000), [&] { return client.Do(b.Post(), body).status() == "200"; }));
}

TEST(H2Body, GivesBackWhatResetStreamsHeld) {
  EngineOptions options;
  options.workers = 1;
  H2Rpc b("h2", options);
  H2Client client = b.Client();
  const std::string part(7'000'000, ' ');
  for (int i = 0; i < 12; ++i) {
    const int32_t id = client.Start(b.Post(), H2Client::Body::kOpen);
    client.Say(id, part);
    ASSERT_TRUE(client.Until([&] { return client.Unsent(id) == 0; }));
    client.session.Reset(id, kH2Cancel);
    client.Send();
    client.messages.erase(id);
  }
  EXPECT_EQ(client.Do(b.Post(), part + kCall).status(), "200");
}

TEST(H2Body, OfHttp11GoesToAnUpstreamThatSpeaksOnlyHttp2AsItWasJudged) {
  H2Rpc b("h2");
  b.bed.OfferAlpn({"http/1.1"});
  Peer client = b.bed.Connect("a.test", b.origin.port());
  const auto post = [&](const std::string& body) {
    return fmt::format("POST /rpc HTTP/1.1\r\nHost: a.test:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                       b.origin.port(), body.size(), body);
  };
  const std::string large = R"({"jsonrpc":"2.0","id":1,"method":"good","params":[")" + std::string(5'000'000, 'x') + "\"]}";
  for (const std::string& body : {kCall, large}) {
    client.Write(post(body));
    EXPECT_EQ(client.ReadMessage().body, "POST|" + body);
    client.Write(post(kBad));
    EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 "));
  }
  EXPECT_THAT(b.bodies(), ElementsAre(kCall, large));
}

}  // namespace
}  // namespace sluice::proxy::testing
