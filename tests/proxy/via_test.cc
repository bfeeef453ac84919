// Through an upstream proxy: tunnels of each kind, what the proxy is asked and shown, and what a hostile one comes to.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <future>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/proxy/h2_peer.h"
#include "tests/proxy/upstream_proxy.h"

namespace sluice::proxy::testing {
namespace {

using Kind = UpstreamProxyServer::Kind;
using std::string_literals::operator""s;

constexpr const char* kLoginVariable = "SLUICE_TEST_PROXY_LOGIN";
const std::string kLogin = "me:s3cret-word";

policy::SecretSource LoginFromEnvironment() {
  setenv(kLoginVariable, kLogin.c_str(), 1);
  return {.kind = policy::SecretSource::Kind::kEnvironment, .text = kLoginVariable};
}

/// A testbed whose every connection goes through the proxy.
struct Through : Testbed {
  Through(const std::string& rules, const policy::UpstreamProxy& proxy, EngineOptions options = {})
      : Testbed(rules + Everything(proxy), WithLogin(std::move(options), proxy)) {}
};

/// An https origin for a.test whose address no rule allows, and an engine that reaches it through a proxy alone.
struct BehindProxy {
  explicit BehindProxy(const policy::UpstreamProxy& proxy, EngineOptions options = {})
      : origin(SharedAuthority().ServerContext("DNS:a.test"), Echo),
        bed(fmt::format("  - allow: http a.test:{}/**\n", origin.port()), proxy, std::move(options)) {}
  Peer::Message Fetch() {
    Peer client = bed.Connect("a.test", origin.port());
    if (!client.ok()) return {};
    client.Write(Get("/x", origin.port()));
    return client.ReadMessage();
  }
  Origin origin;
  Through bed;
};

TEST(Via, EachKindOfProxyTunnelsTlsAndIsGivenTheName) {
  for (const Kind kind : {Kind::kHttp, Kind::kHttps, Kind::kSocks5}) {
    UpstreamProxyServer proxy(kind, "");
    BehindProxy b(proxy.AsProxy());
    EXPECT_EQ(b.Fetch().body, "GET /x HTTP/1.1|");
    const auto asked = proxy.asked();
    ASSERT_EQ(asked.size(), 1u);
    if (kind == Kind::kSocks5) {
      EXPECT_EQ(asked[0], fmt::format("socks a.test:{}", b.origin.port()));
    } else {
      EXPECT_EQ(asked[0], fmt::format("CONNECT a.test:{0} HTTP/1.1\r\nHost: a.test:{0}\r\n\r\n", b.origin.port()));
    }
    // The name is the proxy's to look up.
    EXPECT_EQ(b.bed.resolver().questions(), 0);
  }
}

TEST(Via, ATunnelIsKeptAndUsedAgain) {
  UpstreamProxyServer proxy(Kind::kHttps, "");
  EngineOptions options;
  options.workers = 1;
  BehindProxy b(proxy.AsProxy(), std::move(options));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(b.Fetch().body, "GET /x HTTP/1.1|");
  EXPECT_EQ(proxy.accepted(), 1);
}

TEST(Via, BasicAndBearerAreShownToTheProxyAlone) {
  for (const Kind kind : {Kind::kHttp, Kind::kHttps, Kind::kSocks5}) {
    UpstreamProxyServer server(kind, kLogin);
    auto proxy = server.AsProxy();
    proxy.basic = LoginFromEnvironment();
    BehindProxy b(proxy);
    EXPECT_EQ(b.Fetch().body, "GET /x HTTP/1.1|");
  }
  UpstreamProxyServer server(Kind::kHttp, kLogin);
  auto proxy = server.AsProxy();
  proxy.bearer = LoginFromEnvironment();
  BehindProxy b(proxy);
  EXPECT_EQ(b.Fetch().body, "GET /x HTTP/1.1|");
  EXPECT_NE(server.asked()[0].find("Proxy-Authorization: Bearer " + kLogin), std::string::npos);
}

TEST(Via, ARefusedLoginIsA502ThatNamesTheProxyAndNoSecret) {
  for (const Kind kind : {Kind::kHttp, Kind::kHttps, Kind::kSocks5}) {
    UpstreamProxyServer server(kind, "other:one");
    auto proxy = server.AsProxy();
    proxy.basic = LoginFromEnvironment();
    BehindProxy b(proxy);
    const auto answer = b.Fetch();
    EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 502 ")) << answer.head;
    const std::string error = nlohmann::json::parse(answer.body)["error"];
    EXPECT_NE(error.find("the upstream proxy corp ("), std::string::npos) << error;
    if (kind == Kind::kSocks5) {
      EXPECT_NE(error.find("it refused the user and password"), std::string::npos) << error;
    } else {
      EXPECT_NE(error.find("407; it asks for Basic; it did not take the credential"), std::string::npos) << error;
    }
    // The proxy repeats what it was sent.
    EXPECT_EQ((answer.head + answer.body).find("s3cret"), std::string::npos);
    EXPECT_EQ((answer.head + answer.body).find("bWU6"), std::string::npos);
    EXPECT_EQ(b.origin.accepted(), 0);
  }
}

TEST(Via, ALoginThatIsMissingIsSaid) {
  UpstreamProxyServer server(Kind::kHttp, kLogin);
  BehindProxy without(server.AsProxy());
  EXPECT_NE(without.Fetch().body.find("no credential is configured for it"), std::string::npos);
  // A login that is configured and was not read is never left out.
  policy::UpstreamProxy proxy = server.AsProxy();
  proxy.basic = policy::SecretSource{.kind = policy::SecretSource::Kind::kEnvironment, .text = "SLUICE_TEST_NOT_SET"};
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), Echo);
  Testbed bed(fmt::format("  - allow: http a.test:{}/**\n", origin.port()) + Everything(proxy));
  Peer client = bed.Connect("a.test", origin.port());
  client.Write(Get("/x", origin.port()));
  EXPECT_NE(client.ReadMessage().body.find("no secret for the upstream proxy corp"), std::string::npos);
  EXPECT_EQ(server.accepted(), 1);
}

TEST(Via, AnHttpsProxyIsVerified) {
  UpstreamProxyServer server(Kind::kHttps, "");
  {
    BehindProxy b(server.AsProxy("proxy.test"));
    EXPECT_EQ(b.Fetch().body, "GET /x HTTP/1.1|");
  }
  {
    BehindProxy b(server.AsProxy("other.test"));
    const auto answer = b.Fetch();
    EXPECT_NE(answer.body.find("the certificate of the upstream proxy corp (https://other.test"), std::string::npos)
        << answer.body;
  }
  {
    // Roots of its own: neither the system's nor ours.
    const TestAuthority stranger;
    auto proxy = server.AsProxy("proxy.test");
    proxy.ca_file = stranger.file();
    BehindProxy b(proxy);
    EXPECT_NE(b.Fetch().body.find("the certificate of the upstream proxy corp"), std::string::npos);
  }
  auto proxy = server.AsProxy("proxy.test");
  proxy.ca_file = SharedAuthority().file();
  BehindProxy b(proxy);
  EXPECT_EQ(b.Fetch().body, "GET /x HTTP/1.1|");
}

TEST(Via, HostileProxiesComeToA502) {
  const std::pair<std::string, const char*> cases[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "a body announced where the tunnel begins"},
      {"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "bytes before anything was sent"},
      {"HTTP/1.1 200 OK\r\nX: " + std::string(40000, 'x') + "\r\n\r\n", "a head that is too large"},
      {"SSH-2.0-OpenSSH_9.2\r\n\r\n", "answered CONNECT with"},
      {"HTTP/1.1 200 OK\nX: y\n\n", "answered CONNECT with"},
      {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "a switch of protocols"},
      {"HTTP/1.1 503 Service Unavailable\r\n\r\n", "503 Service Unavailable"},
  };
  for (const auto& [reply, want] : cases) {
    UpstreamProxyServer server(Kind::kHttp, "", reply);
    BehindProxy b(server.AsProxy());
    const auto answer = b.Fetch();
    EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 502 ")) << want << answer.head;
    EXPECT_NE(answer.body.find(want), std::string::npos) << want << answer.body;
    EXPECT_EQ(b.origin.accepted(), 0);
  }
  UpstreamProxyServer socks(Kind::kSocks5, "", "\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00"s);
  BehindProxy b(socks.AsProxy());
  EXPECT_NE(b.Fetch().body.find("refused: not allowed by its rules"), std::string::npos);
}

TEST(Via, InterimRepliesAreReadPast) {
  std::string many;
  for (int i = 0; i < 40; ++i) many += "HTTP/1.1 103 Early Hints\r\n\r\n";
  UpstreamProxyServer server(Kind::kHttp, "", many);
  BehindProxy b(server.AsProxy());
  EXPECT_NE(b.Fetch().body.find("too many interim responses"), std::string::npos);
}

TEST(Via, AProxyThatSaysNothingEndsInTime) {
  Origin silent(nullptr, [](Peer peer) { peer.ReadToEnd(); });
  policy::UpstreamProxy proxy;
  proxy.name = "corp";
  proxy.address = kLoopback;
  proxy.port = silent.port();
  EngineOptions options;
  options.deadlines.proxy_reply = std::chrono::milliseconds(300);
  BehindProxy b(proxy, std::move(options));
  const auto answer = b.Fetch();
  EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 504 ")) << answer.head;
  EXPECT_NE(answer.body.find("did not answer in time"), std::string::npos);
}

TEST(Via, AnHttpsProxyThatAnswersInTheClearIsNoProxy) {
  Origin clear(nullptr, [](Peer peer) {
    peer.ReadSome();
    peer.Write("HTTP/1.1 400 Bad Request\r\n\r\n");
    peer.ReadToEnd();
  });
  policy::UpstreamProxy proxy;
  proxy.name = "corp";
  proxy.kind = policy::UpstreamProxy::Kind::kHttps;
  proxy.address = kLoopback;
  proxy.port = clear.port();
  BehindProxy b(proxy);
  const auto answer = b.Fetch();
  EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 502 ")) << answer.head;
  EXPECT_NE(answer.body.find("TLS failed with the upstream proxy corp"), std::string::npos) << answer.body;
}

TEST(Via, AProxyThatIsNotThereIsSaid) {
  uint16_t closed = 0;
  {
    Origin gone(nullptr, Echo);
    closed = gone.port();
  }
  policy::UpstreamProxy proxy;
  proxy.name = "corp";
  proxy.address = kLoopback;
  proxy.port = closed;
  BehindProxy b(proxy);
  const auto answer = b.Fetch();
  EXPECT_NE(answer.body.find(fmt::format("cannot connect to the upstream proxy corp (http://127.0.0.1:{0})", closed)),
            std::string::npos)
      << answer.body;
}

TEST(Via, AProxyCannotStandInForTheTarget) {
  // It answers 200 and speaks TLS itself, with a certificate that is good for another name.
  UpstreamProxyServer server(Kind::kHttp, "");
  Origin other(SharedAuthority().ServerContext("DNS:b.test"), Echo);
  Through bed(fmt::format("  - allow: http a.test:{}/**\n", other.port()), server.AsProxy());
  Peer client = bed.Connect("a.test", other.port());
  client.Write(Get("/x", other.port()));
  EXPECT_NE(client.ReadMessage().body.find(fmt::format("the certificate of a.test:{}: hostname mismatch", other.port())),
            std::string::npos);
}

TEST(Via, OpaqueConnectionsGoThroughWithTheirFirstBytes) {
  Origin origin(nullptr, [](Peer peer) {
    peer.Write("220 hello\r\n");
    const std::string all = peer.ReadToEnd();
    peer.Write(fmt::format("{} bytes", all.size()));
    peer.CloseWrite();
    peer.ReadToEnd();
  });
  for (const Kind kind : {Kind::kHttp, Kind::kHttps, Kind::kSocks5}) {
    UpstreamProxyServer server(kind, "");
    Through bed(fmt::format("  - allow: tcp db.test:{}\n", origin.port()), server.AsProxy());
    Peer client = bed.Connect("db.test", origin.port(), Speak::kPlain);
    EXPECT_EQ(client.ReadUntil("\r\n"), "220 hello\r\n");
    const std::string block(1 << 20, 'x');
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(client.Write(block));
    client.CloseWrite();
    EXPECT_EQ(client.ReadToEnd(), "4194304 bytes");
    const auto exchanges = bed.sink().exchanges(1);
    ASSERT_EQ(exchanges.size(), 1u);
    EXPECT_EQ(exchanges[0].bytes_up, 4194304u);
    EXPECT_EQ(exchanges[0].error, "");
    EXPECT_EQ(exchanges[0].target.address, std::nullopt);
  }
}

TEST(Via, APreparedConnectionGetsTheErrnoOfTheProxysAnswer) {
  const std::tuple<Kind, std::string, int> cases[] = {
      {Kind::kHttp, "HTTP/1.1 403 Forbidden\r\n\r\n", ECONNREFUSED},
      {Kind::kHttp, "HTTP/1.1 502 Bad Gateway\r\n\r\n", EHOSTUNREACH},
      {Kind::kHttp, "HTTP/1.1 504 Gateway Timeout\r\n\r\n", ETIMEDOUT},
      {Kind::kSocks5, "\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00"s, ENETUNREACH},
      {Kind::kHttp, "", 0},
  };
  Origin origin(nullptr, Echo);
  for (const auto& [kind, reply, want] : cases) {
    UpstreamProxyServer server(kind, "", reply);
    Through bed(fmt::format("  - allow: tcp db.test:{}\n", origin.port()), server.AsProxy());
    FlowTarget target;
    target.host = "db.test";
    target.destination = {IpAddress::FromV4(0xc6120001), origin.port()};
    target.process = bed.process();
    std::promise<int> done;
    bed.engine().Prepare(77, target, [&](int error) { done.set_value(error); });
    EXPECT_EQ(done.get_future().get(), want) << reply;
    if (want == 0) {
      Peer client(bed.ConnectRaw(target, 77), nullptr);
      client.Write(Get("/x", origin.port()));
      EXPECT_EQ(client.ReadMessage().body, "GET /x HTTP/1.1|");
      EXPECT_EQ(server.accepted(), 1);
    }
  }
}

TEST(Via, ALiteralIsJudgedBeforeTheProxyIsAsked) {
  UpstreamProxyServer server(Kind::kHttp, "");
  Origin origin(nullptr, Echo);
  Through bed(fmt::format("  - allow: http http://**:{}\n", origin.port()), server.AsProxy());
  Peer client = bed.ConnectLiteral(kLoopback, origin.port(), Speak::kPlain);
  client.Write(fmt::format("GET /x HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", origin.port()));
  client.ReadToEnd();
  EXPECT_EQ(server.accepted(), 0);
  EXPECT_EQ(origin.accepted(), 0);
}

TEST(Via, ARuleThatSpeaksOfAddressesIsReachedDirectly) {
  UpstreamProxyServer server(Kind::kHttp, "");
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), Echo);
  Through bed(LoopbackRule(fmt::format("http a.test:{}/**", origin.port())), server.AsProxy());
  Peer client = bed.Connect("a.test", origin.port());
  client.Write(Get("/x", origin.port()));
  EXPECT_EQ(client.ReadMessage().body, "GET /x HTTP/1.1|");
  EXPECT_EQ(server.accepted(), 0);
}

TEST(Via, ADenyThatSpeaksOfAddressesHoldsBehindAProxy) {
  UpstreamProxyServer server(Kind::kHttp, "");
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), Echo);
  Through bed(
      fmt::format("  - allow: http a.test:{0}/**\n  - deny: GET a.test:{0}/inner/**\n    ip: [10.0.0.0/8]\n", origin.port()),
      server.AsProxy());
  Peer client = bed.Connect("a.test", origin.port());
  client.Write(Get("/x", origin.port()));
  EXPECT_EQ(client.ReadMessage().body, "GET /x HTTP/1.1|");
  client.Write(Get("/inner/x", origin.port()));
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 "));
}

TEST(Via, WhatIsExceptedGoesDirectly) {
  UpstreamProxyServer server(Kind::kHttp, "");
  auto proxy = server.AsProxy();
  policy::UpstreamProxy::Except except;
  except.host.emplace().text = "a.test";
  proxy.except.push_back(except);
  // Directly, the address guard has its word.
  BehindProxy b(proxy);
  EXPECT_TRUE(b.Fetch().FirstLine().starts_with("HTTP/1.1 403 "));
  EXPECT_EQ(server.accepted(), 0);
}

TEST(Via, CleartextIsForwardedInAbsoluteForm) {
  for (const Kind kind : {Kind::kHttp, Kind::kHttps}) {
    UpstreamProxyServer server(kind, kLogin);
    auto proxy = server.AsProxy();
    proxy.basic = LoginFromEnvironment();
    Through bed("  - allow: http http://a.test/**\n", proxy);
    Peer client = bed.Connect("a.test", 80, Speak::kPlain);
    client.Write("GET /x?q=1 HTTP/1.1\r\nHost: a.test\r\nProxy-Authorization: Basic b3duOm9uZQ==\r\n\r\n");
    const auto answer = client.ReadMessage();
    EXPECT_EQ(answer.body, "GET http://a.test/x?q=1 HTTP/1.1|Basic bWU6czNjcmV0LXdvcmQ=");
    const std::string head = server.asked().at(0);
    EXPECT_NE(head.find("\r\nhost: a.test\r\n"), std::string::npos) << head;
    EXPECT_EQ(head.find("b3duOm9uZQ"), std::string::npos) << head;
  }
}

TEST(Via, WhatAProxySaysBackOfItsLoginIsTakenOut) {
  UpstreamProxyServer server(Kind::kHttp, kLogin);
  auto proxy = server.AsProxy();
  proxy.basic = LoginFromEnvironment();
  Through bed("  - allow: http http://a.test/**\n", proxy);
  Peer client = bed.Connect("a.test", 80, Speak::kPlain);
  client.Write("GET /back HTTP/1.1\r\nHost: a.test\r\n\r\n");
  const auto answer = client.ReadMessage();
  EXPECT_EQ(answer.Field("x-back"), "[redacted]");
  EXPECT_EQ(answer.Field("x-plain"), "it was [redacted]");
  EXPECT_EQ(answer.head.find("bWU6czNjcmV0LXdvcmQ"), std::string::npos) << answer.head;
  EXPECT_EQ(answer.trailers, "x-sum: [redacted]\r\n");
}

TEST(Via, AProxyThatWantsALoginForCleartextIsA502) {
  UpstreamProxyServer server(Kind::kHttp, kLogin);
  Through bed("  - allow: http http://a.test/**\n", server.AsProxy());
  Peer client = bed.Connect("a.test", 80, Speak::kPlain);
  client.Write("GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n");
  const auto answer = client.ReadMessage();
  EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 502 ")) << answer.head;
  EXPECT_NE(answer.body.find("407"), std::string::npos) << answer.body;
  EXPECT_EQ(answer.Field("proxy-authenticate"), "");
}

TEST(Via, CleartextThroughSocksIsTunnelledInOriginForm) {
  UpstreamProxyServer server(Kind::kSocks5, "");
  Origin origin(nullptr, Echo);
  Through bed(fmt::format("  - allow: http http://a.test:{}/**\n", origin.port()), server.AsProxy());
  Peer client = bed.Connect("a.test", origin.port(), Speak::kPlain);
  client.Write(Get("/x", origin.port()));
  EXPECT_EQ(client.ReadMessage().body, "GET /x HTTP/1.1|");
}

TEST(Via, APolicysRuleNamesItsProxy) {
  UpstreamProxyServer server(Kind::kHttp, "");
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), Echo);
  Testbed bed(
      fmt::format("  - allow: GET a.test:{0}/far/**\n    via: corp\n  - allow: GET a.test:{0}/near/**\n    ip: [127.0.0.1/32]\n",
                  origin.port()) +
      Defined(server.AsProxy()));
  Peer client = bed.Connect("a.test", origin.port());
  for (const char* path : {"/far/x", "/near/x", "/far/y"}) {
    client.Write(Get(path, origin.port()));
    EXPECT_EQ(client.ReadMessage().body, fmt::format("GET {} HTTP/1.1|", path));
  }
  EXPECT_EQ(server.accepted(), 1);
  EXPECT_EQ(origin.accepted(), 2);
}

TEST(Via, RecordsNameTheProxy) {
  UpstreamProxyServer server(Kind::kHttp, "");
  BehindProxy b(server.AsProxy());
  EXPECT_EQ(b.Fetch().body, "GET /x HTTP/1.1|");
  const auto exchanges = b.bed.sink().exchanges(1);
  ASSERT_EQ(exchanges.size(), 1u);
  EXPECT_EQ(exchanges[0].target.via, "corp");
  EXPECT_EQ(exchanges[0].target.address, std::nullopt);
  bool told = false;
  for (const auto& event : b.bed.sink().decisions())
    if (event.layer == policy::EventLayer::kRequest) told = event.target.via == "corp";
  EXPECT_TRUE(told);
}

TEST(Via, ConnectionsOfDifferentProxiesAreKeptApart) {
  UpstreamProxyServer one(Kind::kHttp, "");
  UpstreamProxyServer two(Kind::kHttp, "");
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), Echo);
  EngineOptions options;
  options.workers = 1;
  Testbed bed(fmt::format("  - allow: GET a.test:{0}/one/**\n    via: one\n  - allow: GET a.test:{0}/two/**\n    via: two\n"
                          "proxies:\n  one: {{ url: 'http://127.0.0.1:{1}' }}\n  two: {{ url: 'http://127.0.0.1:{2}' }}\n",
                          origin.port(), one.port(), two.port()),
              std::move(options));
  for (int round = 0; round < 3; ++round) {
    Peer client = bed.Connect("a.test", origin.port());
    for (const char* path : {"/one/x", "/two/x"}) {
      client.Write(Get(path, origin.port()));
      EXPECT_EQ(client.ReadMessage().body, fmt::format("GET {} HTTP/1.1|", path));
    }
  }
  EXPECT_EQ(one.accepted(), 1);
  EXPECT_EQ(two.accepted(), 1);
}

TEST(Via, ARefusedRequestAsksNothingOfTheProxy) {
  UpstreamProxyServer server(Kind::kHttp, "");
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), Echo);
  Through bed(fmt::format("  - allow: GET a.test:{}/ok\n", origin.port()), server.AsProxy());
  bed.OfferAlpn({"h2", "http/1.1"});
  const std::string authority = fmt::format("a.test:{}", origin.port());
  H2Client client(bed.Connect("a.test", origin.port()));
  EXPECT_EQ(client.Do(GetFields(authority, "/refused")).status(), "403");
  EXPECT_EQ(server.accepted(), 0);
  EXPECT_EQ(client.Do(GetFields(authority, "/ok")).status(), "200");
  EXPECT_EQ(server.accepted(), 1);
}

TEST(Via, Http2IsAskedForAndSpokenThroughTheProxyAlone) {
  UpstreamProxyServer server(Kind::kHttp, "");
  Origin origin(SharedAuthority().ServerContext("DNS:a.test", "h2"), [](Peer peer) { ServeH2(std::move(peer), EchoH2); });
  EngineOptions options;
  options.workers = 1;
  Through bed(fmt::format("  - allow: http a.test:{}/**\n", origin.port()), server.AsProxy(), std::move(options));
  bed.OfferAlpn({"h2", "http/1.1"});
  Peer peer = bed.Connect("a.test", origin.port());
  EXPECT_EQ(peer.alpn(), "h2");
  H2Client client(std::move(peer));
  for (int i = 0; i < 3; ++i) {
    const H2Message got = client.Do(GetFields(fmt::format("a.test:{}", origin.port()), "/x"));
    EXPECT_EQ(got.status(), "200");
    EXPECT_EQ(got.Field("x-origin"), "h2");
  }
  EXPECT_EQ(server.accepted(), 1);
  EXPECT_EQ(origin.accepted(), 1);
  EXPECT_EQ(bed.resolver().questions(), 0);
  ASSERT_EQ(server.asked().size(), 1u);
  EXPECT_TRUE(server.asked()[0].starts_with("CONNECT a.test:"));
}

// The pin that a refusal tells.
std::string PinIn(const std::string& body) {
  const size_t at = body.find("sha256//");
  return at == std::string::npos ? "" : body.substr(at, 8 + 44);
}

TEST(Pins, HoldForEveryConnectionFromTheReloadOn) {
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), Echo);
  const std::string rule = LoopbackRule(fmt::format("http a.test:{}/**", origin.port()));
  EngineOptions options;
  options.workers = 1;
  Testbed bed(rule, std::move(options));
  Peer client = bed.Connect("a.test", origin.port());
  client.Write(Get("/x", origin.port()));
  EXPECT_EQ(client.ReadMessage().body, "GET /x HTTP/1.1|");
  bed.SetPolicy(rule + "    pins: ['sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=']\n");
  // What was reached without the pin is over for this client.
  EXPECT_EQ(client.ReadToEnd(), "");
  Peer again = bed.Connect("a.test", origin.port());
  again.Write(Get("/x", origin.port()));
  const auto refused = again.ReadMessage();
  EXPECT_TRUE(refused.FirstLine().starts_with("HTTP/1.1 502 ")) << refused.head;
  EXPECT_NE(refused.body.find("no key of its chain is one that the rule pins"), std::string::npos) << refused.body;
  const std::string pin = PinIn(refused.body);
  ASSERT_EQ(pin.size(), 52u) << refused.body;
  // The server's own as a second one, as for a change of keys.
  bed.SetPolicy(rule + fmt::format("    pins: ['sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=', '{}']\n", pin));
  for (int i = 0; i < 2; ++i) {
    Peer pinned = bed.Connect("a.test", origin.port());
    pinned.Write(Get("/y", origin.port()));
    EXPECT_EQ(pinned.ReadMessage().body, "GET /y HTTP/1.1|");
  }
  // The same connections, and none of them once the pin is another.
  bed.SetPolicy(rule + "    pins: ['sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=']\n");
  Peer last = bed.Connect("a.test", origin.port());
  last.Write(Get("/z", origin.port()));
  EXPECT_TRUE(last.ReadMessage().FirstLine().starts_with("HTTP/1.1 502 "));
}

TEST(Pins, ARequestUnderWayEndsWhenItsRuleGetsAPin) {
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), [](Peer peer) {
    peer.ReadMessage();
    peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    peer.ReadToEnd();
  });
  const std::string rule = LoopbackRule(fmt::format("http a.test:{}/**", origin.port()));
  Testbed bed(rule);
  Peer client = bed.Connect("a.test", origin.port());
  client.Write(Get("/x", origin.port()));
  EXPECT_TRUE(client.ReadUntil("half").ends_with("half"));
  bed.SetPolicy(rule + "    pins: ['sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=']\n");
  EXPECT_EQ(client.ReadToEnd(), "");
  const auto exchanges = bed.sink().exchanges(1);
  ASSERT_EQ(exchanges.size(), 1u);
  EXPECT_NE(exchanges[0].error, "");
}

TEST(Pins, OnlySomeRequestsOfAConnectionMayBePinned) {
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), Echo);
  EngineOptions options;
  options.workers = 1;
  Testbed bed(LoopbackRule(fmt::format("GET a.test:{}/free/**", origin.port())) +
                  LoopbackRule(fmt::format("GET a.test:{}/pinned/**", origin.port())) +
                  "    pins: ['sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=']\n",
              std::move(options));
  Peer client = bed.Connect("a.test", origin.port());
  for (int i = 0; i < 2; ++i) {
    client.Write(Get("/free/x", origin.port()));
    EXPECT_EQ(client.ReadMessage().body, "GET /free/x HTTP/1.1|");
    client.Write(Get("/pinned/x", origin.port()));
    EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 502 "));
  }
}

TEST(Via, AnOpaqueConnectionEndsWhenThePolicyLeadsAnotherWay) {
  UpstreamProxyServer server(Kind::kHttp, "");
  UpstreamProxyServer other(Kind::kHttp, "");
  Origin origin(nullptr, [](Peer peer) {
    while (true) {
      const std::string bytes = peer.ReadSome();
      if (bytes.empty() || !peer.Write(bytes)) return;
    }
  });
  const std::string rule = fmt::format("  - allow: tcp db.test:{}\n", origin.port());
  Through bed(rule, server.AsProxy());
  Peer client = bed.Connect("db.test", origin.port(), Speak::kPlain);
  client.Write("ping");
  EXPECT_EQ(client.ReadExactly(4), "ping");
  // The same policy, made anew: nothing has changed.
  bed.SetPolicy(rule + Everything(server.AsProxy()));
  client.Write("pong");
  EXPECT_EQ(client.ReadExactly(4), "pong");
  bed.SetPolicy(rule + Everything(other.AsProxy()));
  EXPECT_EQ(client.ReadToEnd(), "");
}

}  // namespace
}  // namespace sluice::proxy::testing
