// Clients that speak to the proxy itself: what becomes of their tunnels and of their requests in absolute form.

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {
namespace {

using std::string_literals::operator""s;

EngineOptions Explicit(ExplicitOptions options = {}) {
  EngineOptions engine;
  engine.deadlines.head = std::chrono::milliseconds(500);
  engine.explicit_proxy = std::make_shared<const ExplicitOptions>(std::move(options));
  return engine;
}

// The client's end of a connection to the proxy.
UniqueFd Arrive(Testbed& bed, std::optional<Endpoint> source = Endpoint{kLoopback, 4000}) {
  static std::atomic<uint64_t> ids{1'000'000};
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  EXPECT_EQ(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
  Client client;
  client.id = ++ids;
  client.socket = UniqueFd(ends[1]);
  client.source = source;
  client.process = bed.process();
  bed.engine().AcceptClient(std::move(client));
  return UniqueFd(ends[0]);
}

Peer Plain(Testbed& bed) { return bed.Speaking(Arrive(bed), Speak::kPlain, ""); }

std::string ConnectHead(const std::string& authority) {
  return fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", authority);
}

std::string Absolute(const std::string& host, uint16_t port, const std::string& path) {
  return fmt::format("GET http://{0}:{1}{2} HTTP/1.1\r\nHost: {0}:{1}\r\n\r\n", host, port, path);
}

std::string Answered(UniqueFd& fd, size_t n) {
  std::string got(n, '\0');
  EXPECT_EQ(recv(fd.get(), got.data(), n, MSG_WAITALL), static_cast<ssize_t>(n));
  return got;
}

TEST(Explicit, TunnelsTlsToWhereARuleInspects) {
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), Echo);
  Testbed bed(LoopbackRule(fmt::format("GET a.test:{}/open/**", origin.port())), Explicit());
  UniqueFd fd = Arrive(bed);
  const std::string head = ConnectHead(fmt::format("a.test:{}", origin.port()));
  ASSERT_EQ(send(fd.get(), head.data(), head.size(), 0), static_cast<ssize_t>(head.size()));
  EXPECT_EQ(Answered(fd, 39), "HTTP/1.1 200 Connection established\r\n\r\n");
  Peer inside = bed.Speaking(std::move(fd), Speak::kTls, "a.test");
  ASSERT_TRUE(inside.ok());
  inside.Write(Get("/open/x", origin.port()));
  EXPECT_EQ(inside.ReadMessage().body, "GET /open/x HTTP/1.1|");
  inside.Write(Get("/closed", origin.port()));
  EXPECT_TRUE(inside.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 Egress denied: needs "));
}

TEST(Explicit, RefusesAConnectThatNoRuleMentionsWithReasonAndBody) {
  Testbed bed("  - allow: GET a.test\n", Explicit());
  Peer client = Plain(bed);
  client.Write(ConnectHead("b.test:443"));
  const auto answer = client.ReadMessage();
  EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 403 Egress denied: ")) << answer.head;
  EXPECT_EQ(nlohmann::json::parse(answer.body)["host"], "b.test");
  EXPECT_EQ(bed.resolver().questions(), 0);
  EXPECT_EQ(client.ReadToEnd(), "");
}

TEST(Explicit, SocksReachesWhatATcpRuleNamesAndTellsWhatItDoesNot) {
  Origin origin(nullptr, [](Peer peer) { peer.Write("<" + peer.ReadExactly(4) + ">"); });
  Testbed bed(LoopbackRule(fmt::format("tcp a.test:{}", origin.port())), Explicit());
  const std::string port{static_cast<char>(origin.port() >> 8), static_cast<char>(origin.port() & 0xff)};
  Peer client = Plain(bed);
  client.Write("\x05\x01\x00"s + "\x05\x01\x00\x03\x06"s + "a.test" + port + "ping");
  EXPECT_EQ(client.ReadExactly(12), "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"s);
  EXPECT_EQ(client.ReadExactly(6), "<ping>");
  Peer other = Plain(bed);
  other.Write("\x05\x01\x00\x05\x01\x00\x03\x06"s + "b.test" + port);
  EXPECT_EQ(other.ReadExactly(12).substr(2, 2), "\x05\x02"s);
}

TEST(Explicit, KeepsTheHostsOfOneConnectionApart) {
  Origin a(nullptr, Echo);
  Origin b(nullptr, Echo);
  Testbed bed(
      LoopbackRule(fmt::format("GET http://a.test:{}", a.port())) + LoopbackRule(fmt::format("GET http://b.test:{}", b.port())),
      Explicit());
  Peer client = Plain(bed);
  for (int round = 0; round < 3; ++round) {
    client.Write(Absolute("a.test", a.port(), "/a"));
    EXPECT_EQ(client.ReadMessage().body, "GET /a HTTP/1.1|");
    client.Write(Absolute("b.test", b.port(), "/b"));
    EXPECT_EQ(client.ReadMessage().body, "GET /b HTTP/1.1|");
    client.Write(Absolute("c.test", b.port(), "/c"));
    EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 "));
  }
  EXPECT_EQ(a.accepted(), 1);
  EXPECT_EQ(b.accepted(), 1);
  for (const auto& decision : bed.sink().decisions())
    EXPECT_EQ(decision.target.path, "/" + decision.target.host.substr(0, 1)) << decision.target.host;
}

TEST(Explicit, PipelinedRequestsToTwoHostsAreAnsweredInOrder) {
  Origin a(nullptr, Echo);
  Origin b(nullptr, Echo);
  Testbed bed(
      LoopbackRule(fmt::format("GET http://a.test:{}", a.port())) + LoopbackRule(fmt::format("GET http://b.test:{}", b.port())),
      Explicit());
  Peer client = Plain(bed);
  client.Write(Absolute("a.test", a.port(), "/1") + Absolute("b.test", b.port(), "/2") + Absolute("a.test", a.port(), "/3"));
  for (const char* path : {"/1", "/2", "/3"}) EXPECT_EQ(client.ReadMessage().body, fmt::format("GET {} HTTP/1.1|", path));
}

TEST(Explicit, DoesNotDialItselfWhateverThePolicySays) {
  ExplicitOptions options;
  options.own = {{kLoopback, 3128}};
  Testbed bed(LoopbackRule("tcp **:3128") + LoopbackRule("http http://**:3128"), Explicit(std::move(options)));
  Peer client = Plain(bed);
  client.Write(ConnectHead("a.test:3128"));
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 "));
  Peer plain = Plain(bed);
  plain.Write(Absolute("127.0.0.1", 3128, "/"));
  EXPECT_TRUE(plain.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 "));
}

TEST(Explicit, AsksForATokenAndTakesItOnTheSameConnection) {
  Origin origin(nullptr, Echo);
  ExplicitOptions options;
  auto table = TokenTable::Parse("ci sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae\n", "tokens");
  ASSERT_TRUE(table);
  options.tokens = std::make_shared<const CurrentTokens>(*std::move(table));
  Testbed bed(LoopbackRule(fmt::format("tcp a.test:{}", origin.port())), Explicit(std::move(options)));
  Peer client = Plain(bed);
  const std::string authority = fmt::format("a.test:{}", origin.port());
  client.Write(ConnectHead(authority));
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 407 "));
  client.Write(fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\nProxy-Authorization: Bearer foo\r\n\r\n", authority));
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 200 Connection established\r\n\r\n");
  client.Write(Get("/x", origin.port()));
  EXPECT_EQ(client.ReadMessage().body, "GET /x HTTP/1.1|");
  const auto decisions = bed.sink().decisions();
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_EQ(decisions[0].process->client, "ci");
}

TEST(Explicit, CutsOffWhoseTokenWasWithdrawn) {
  Origin opaque(nullptr, Echo);
  Origin inspected(nullptr, Echo);
  const std::string stays = "ci sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae\n";
  const std::string goes = "old sha256:fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9\n";
  const auto tokens = std::make_shared<CurrentTokens>(*TokenTable::Parse(stays + goes, "tokens"));
  ExplicitOptions options;
  options.tokens = tokens;
  Testbed bed(LoopbackRule(fmt::format("tcp a.test:{}", opaque.port())) +
                  LoopbackRule(fmt::format("GET http://b.test:{}", inspected.port())),
              Explicit(std::move(options)));
  const auto tunnel = [&](const std::string& token) {
    Peer peer = Plain(bed);
    peer.Write(
        fmt::format("CONNECT a.test:{} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer {}\r\n\r\n", opaque.port(), token));
    EXPECT_EQ(peer.ReadUntil("\r\n\r\n"), "HTTP/1.1 200 Connection established\r\n\r\n");
    return peer;
  };
  const auto forward = [&](Peer* peer, const std::string& token) {
    peer->Write(fmt::format("GET http://b.test:{}/x HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer {}\r\n\r\n",
                            inspected.port(), token));
    return peer->ReadMessage().body;
  };
  Peer kept = tunnel("foo");
  Peer cut = tunnel("bar");
  Peer forwarded_kept = Plain(bed);
  Peer forwarded_cut = Plain(bed);
  EXPECT_EQ(forward(&forwarded_kept, "foo"), "GET /x HTTP/1.1|");
  EXPECT_EQ(forward(&forwarded_cut, "bar"), "GET /x HTTP/1.1|");
  tokens->Set(*TokenTable::Parse(stays, "tokens"));
  bed.engine().PolicyChanged();
  EXPECT_EQ(cut.ReadToEnd(), "");
  EXPECT_EQ(forwarded_cut.ReadToEnd(), "");
  kept.Write(Get("/y", opaque.port()));
  EXPECT_EQ(kept.ReadMessage().body, "GET /y HTTP/1.1|");
  EXPECT_EQ(forward(&forwarded_kept, "foo"), "GET /x HTTP/1.1|");
}

TEST(Explicit, BelievesAListedPeersHeader) {
  ExplicitOptions options;
  options.proxy_protocol = ProxyProtocol::kRequired;
  options.proxy_protocol_from = {*Cidr::Parse("127.0.0.0/8")};
  Testbed bed("  - allow: GET a.test\n", Explicit(std::move(options)));
  Peer client = Plain(bed);
  client.Write("PROXY TCP4 203.0.113.7 203.0.113.8 5000 3128\r\n" + ConnectHead("b.test:443"));
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 "));
  EXPECT_EQ(bed.sink().decisions().back().process->client, "203.0.113.7");
  Peer bare = Plain(bed);
  bare.Write(ConnectHead("b.test:443"));
  EXPECT_EQ(bare.ReadToEnd(), "");
  Peer stranger = bed.Speaking(Arrive(bed, Endpoint{IpAddress::FromV4(0x0a000001), 1}), Speak::kPlain, "");
  EXPECT_EQ(stranger.ReadToEnd(), "");
}

TEST(Explicit, EndsAHeadThatDoesNotArrive) {
  Testbed bed("  - allow: GET a.test\n", Explicit());
  Peer client = Plain(bed);
  client.Write("CONNECT a.te");
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 408 "));
}

TEST(Explicit, AChangeOfPolicyCutsTunnelsAndIdleSessionsLive) {
  Origin origin(nullptr, Echo);
  const std::string tcp = LoopbackRule(fmt::format("tcp a.test:{}", origin.port()));
  const std::string get = LoopbackRule(fmt::format("GET http://b.test:{}", origin.port()));
  Testbed bed(tcp + get, Explicit());
  Peer tunnel = Plain(bed);
  tunnel.Write(ConnectHead(fmt::format("a.test:{}", origin.port())));
  tunnel.ReadUntil("\r\n\r\n");
  tunnel.Write(Get("/x", origin.port()));
  EXPECT_EQ(tunnel.ReadMessage().body, "GET /x HTTP/1.1|");
  Peer forward = Plain(bed);
  forward.Write(Absolute("b.test", origin.port(), "/b"));
  EXPECT_EQ(forward.ReadMessage().body, "GET /b HTTP/1.1|");
  Peer silent = Plain(bed);
  bed.SetPolicy(get);
  EXPECT_EQ(tunnel.ReadToEnd(), "");
  forward.Write(Absolute("b.test", origin.port(), "/c"));
  EXPECT_EQ(forward.ReadMessage().body, "GET /c HTTP/1.1|");
  silent.Write(ConnectHead(fmt::format("a.test:{}", origin.port())));
  EXPECT_TRUE(silent.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 "));
}

TEST(Explicit, DrainsWhatHasNothingUnderWay) {
  Origin origin(nullptr, Echo);
  Testbed bed(LoopbackRule(fmt::format("GET http://a.test:{}", origin.port())), Explicit());
  Peer silent = Plain(bed);
  Peer idle = Plain(bed);
  idle.Write(Absolute("a.test", origin.port(), "/a"));
  EXPECT_EQ(idle.ReadMessage().body, "GET /a HTTP/1.1|");
  // The session is between requests a moment after its answer was read.
  for (int i = 0; i < 500 && bed.engine().Open() != 0; ++i) {
    bed.engine().Drain();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(bed.engine().Open(), 0u);
  EXPECT_EQ(silent.ReadToEnd(), "");
  EXPECT_EQ(idle.ReadToEnd(), "");
}

}  // namespace
}  // namespace sluice::proxy::testing
