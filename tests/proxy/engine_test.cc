// Flows through the engine: which way they go, how they end, and what a change of policy does to them.

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <future>
#include <nlohmann/json.hpp>

#include "tests/proxy/hello_bytes.h"
#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {
namespace {

// What a change of policy may take: the promise is 100 ms, and a sanitizer's build is slow.
#ifdef SLUICE_SANITIZED
constexpr int kCutLimit = 1000;
#else
constexpr int kCutLimit = 100;
#endif

TEST(Engine, RefusesAnSniThatIsNotTheConnectionsName) {
  OneOrigin b(Echo);
  EXPECT_FALSE(b.bed.Connect("a.test", b.origin.port(), Speak::kTls, "b.test").ok());
  const auto decisions = b.bed.sink().decisions();
  ASSERT_EQ(decisions.size(), 1u);
  EXPECT_EQ(decisions[0].layer, policy::EventLayer::kTls);
  EXPECT_EQ(decisions[0].decision.reason, policy::Reason::kAuthorityMismatch);
  EXPECT_EQ(decisions[0].detail, "SNI is b.test, the connection is to a.test");
  EXPECT_EQ(b.origin.accepted(), 0);
  EXPECT_EQ(b.bed.resolver().questions(), 0);
}

TEST(Engine, RefusesWhatTheAddressGuardRefuses) {
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), Echo);
  Testbed bed(fmt::format("  - allow: GET a.test:{}/**\n", origin.port()));
  Peer client = bed.Connect("a.test", origin.port());
  ASSERT_TRUE(client.ok());
  client.Write(Get("/", origin.port()));
  const auto answer = client.ReadMessage();
  EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 403 ")) << answer.head;
  EXPECT_EQ(nlohmann::json::parse(answer.body)["code"], "private_ip");
  EXPECT_EQ(origin.accepted(), 0);
}

TEST(Engine, SpeaksCleartextHttpByItsOwnRules) {
  Origin origin(nullptr, Echo);
  Testbed bed(LoopbackRule(fmt::format("GET http://a.test:{}/open/**", origin.port())));
  Peer client = bed.Connect("a.test", origin.port(), Speak::kPlain);
  client.Write(Get("/open/x", origin.port()));
  EXPECT_EQ(client.ReadMessage().body, "GET /open/x HTTP/1.1|");
  client.Write(
      fmt::format("POST http://a.test:{0}/open/x HTTP/1.1\r\nHost: a.test:{0}\r\nContent-Length: 0\r\n\r\n", origin.port()));
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 "));
}

TEST(Engine, GivesALiteralDestinationACertificateWithItsAddress) {
  Origin origin(SharedAuthority().ServerContext("IP:127.0.0.1"), Echo);
  Testbed bed(LoopbackRule(fmt::format("GET 127.0.0.1:{}/**", origin.port())));
  Peer client = bed.ConnectLiteral(kLoopback, origin.port());
  ASSERT_TRUE(client.ok());
  client.Write(fmt::format("GET /x HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", origin.port()));
  EXPECT_EQ(client.ReadMessage().body, "GET /x HTTP/1.1|");
}

TEST(Engine, RelaysOpaqueTcpWithHalfCloses) {
  Origin origin(nullptr, [](Peer peer) {
    peer.Write("hello\n");  // the server speaks first
    const std::string all = peer.ReadToEnd();
    peer.Write(fmt::format("{} bytes", all.size()));
    peer.CloseWrite();
    peer.ReadToEnd();
  });
  Testbed bed(LoopbackRule(fmt::format("tcp db.test:{}", origin.port())));
  Peer client = bed.Connect("db.test", origin.port(), Speak::kPlain);
  EXPECT_EQ(client.ReadUntil("\n"), "hello\n");
  const std::string block(1 << 20, 'x');
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client.Write(block));
  client.CloseWrite();
  EXPECT_EQ(client.ReadToEnd(), "20971520 bytes");
  const auto exchanges = bed.sink().exchanges(1);
  ASSERT_EQ(exchanges.size(), 1u);
  EXPECT_EQ(exchanges[0].bytes_up, 20971520u);
  EXPECT_EQ(exchanges[0].bytes_down, 20u);
  EXPECT_EQ(exchanges[0].error, "");
  EXPECT_EQ(exchanges[0].target.address, kLoopback);
  // The connect was decided, and recorded, before the flow came here.
  EXPECT_TRUE(bed.sink().decisions().empty());
}

TEST(Engine, ResetsAnOpaqueFlowThatCannotBeConnected) {
  uint16_t closed = 0;
  {
    Origin gone(nullptr, Echo);
    closed = gone.port();
  }
  Testbed bed(LoopbackRule(fmt::format("tcp db.test:{}", closed)));
  Peer client = bed.Connect("db.test", closed, Speak::kPlain);
  EXPECT_EQ(client.ReadToEnd(), "");
  EXPECT_TRUE(client.was_reset());
}

TEST(Engine, PassesOpaqueTlsThroughOnlyUnderItsOwnName) {
  Origin origin(SharedAuthority().ServerContext("DNS:pin.test"), Echo);
  Testbed bed(LoopbackRule(fmt::format("tls pin.test:{}", origin.port())));
  EXPECT_FALSE(bed.Connect("pin.test", origin.port(), Speak::kTls, "other.test").ok());
  EXPECT_EQ(origin.accepted(), 0);
  // The origin's own certificate comes through: our client, which trusts only the sandbox's authority, refuses it.
  EXPECT_FALSE(bed.Connect("pin.test", origin.port()).ok());
  const auto exchanges = bed.sink().exchanges(1);
  ASSERT_GE(exchanges.size(), 1u);
  EXPECT_GT(exchanges.back().bytes_down, 500u);
}

TEST(Engine, RecordsEchAndRefusesEsniBehindATlsRule) {
  Origin origin(nullptr, [](Peer peer) { peer.ReadToEnd(); });
  Testbed bed(LoopbackRule(fmt::format("tls pin.test:{}", origin.port())));
  const auto say = [&](const std::string& extension) {
    Peer client = bed.Connect("pin.test", origin.port(), Speak::kPlain);
    client.Write(HelloRecord(HelloMessage(ServerName("pin.test") + extension)));
    client.CloseWrite();
    return client.ReadToEnd();
  };
  constexpr int kEsni = 0xffce;
  constexpr int kEch = 0xfe0d;
  EXPECT_EQ(say(Extension(kEsni, "x")), std::string("\x15\x03\x03\0\x02\x02\x70", 7)) << "unrecognized_name";
  EXPECT_EQ(origin.accepted(), 0);
  const auto refused = bed.sink().decisions().back();
  EXPECT_EQ(refused.decision.reason, policy::Reason::kAuthorityMismatch);
  EXPECT_EQ(refused.detail, "ESNI hides the name that is asked for");
  EXPECT_EQ(say(""), "");
  EXPECT_EQ(say(Extension(kEch, "x")), "");
  EXPECT_EQ(origin.accepted(), 2);
  const auto ends = bed.sink().exchanges(2);
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_TRUE(ends[0].target.asked.empty());
  EXPECT_EQ(ends[1].target.asked, std::vector<std::string>{"encrypted client hello"});
}

TEST(Engine, CutsWhatANewPolicyNoLongerAllows) {
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), [](Peer peer) {
    for (;;) {
      const auto request = peer.ReadMessage();
      if (request.head.empty()) return;
      peer.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n");
      if (request.head.starts_with("GET /stream")) {
        peer.ReadToEnd();
        return;
      }
      peer.Write("0\r\n\r\n");
    }
  });
  Origin raw(nullptr, [](Peer peer) { peer.ReadToEnd(); });
  const std::string both =
      LoopbackRule(fmt::format("GET a.test:{}/**", origin.port())) + LoopbackRule(fmt::format("tcp db.test:{}", raw.port()));
  Testbed bed(both);
  Peer idle = bed.Connect("a.test", origin.port());
  idle.Write(Get("/idle", origin.port()));
  EXPECT_EQ(idle.ReadMessage().body, "ok");
  Peer kept = bed.Connect("a.test", origin.port());
  kept.Write(Get("/keep", origin.port()));
  EXPECT_EQ(kept.ReadMessage().body, "ok");
  Peer stream = bed.Connect("a.test", origin.port());
  stream.Write(Get("/stream", origin.port()));
  EXPECT_NE(stream.ReadUntil("ok\r\n"), "");
  Peer relay = bed.Connect("db.test", raw.port(), Speak::kPlain);
  relay.Write("x");
  while (raw.accepted() == 0) std::this_thread::yield();

  const auto before = std::chrono::steady_clock::now();
  bed.SetPolicy(LoopbackRule(fmt::format("GET a.test:{}/keep", origin.port())));
  EXPECT_EQ(idle.ReadToEnd(), "");
  EXPECT_EQ(stream.ReadToEnd(), "");
  EXPECT_EQ(relay.ReadToEnd(), "");
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(kCutLimit));
  kept.Write(Get("/keep", origin.port()));
  EXPECT_EQ(kept.ReadMessage().body, "ok");
}

TEST(Engine, CutsAnOpaqueConnectionWhenItsRuleEnds) {
  Origin raw(nullptr, [](Peer peer) { peer.ReadToEnd(); });
  Origin other(nullptr, [](Peer peer) {
    peer.Write("first");
    peer.ReadUntil("x");
    peer.Write("second");
  });
  const auto ends = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()) + std::chrono::seconds(2);
  Testbed bed(LoopbackRule(fmt::format("tcp db.test:{}", raw.port())) +
              fmt::format("    until: {:%Y-%m-%dT%H:%M:%S}Z\n", fmt::gmtime(std::chrono::system_clock::to_time_t(ends))) +
              LoopbackRule(fmt::format("tcp other.test:{}", other.port())));
  Peer relay = bed.Connect("db.test", raw.port(), Speak::kPlain);
  Peer lasting = bed.Connect("other.test", other.port(), Speak::kPlain);
  EXPECT_EQ(lasting.ReadUntil("first"), "first");
  relay.Write("x");
  while (raw.accepted() == 0) std::this_thread::yield();
  EXPECT_EQ(relay.ReadToEnd(), "");
  EXPECT_GE(std::chrono::system_clock::now(), ends);
  lasting.Write("x");
  EXPECT_EQ(lasting.ReadUntil("second"), "second");
}

TEST(Engine, DialsAheadForABlockingConnect) {
  OneOrigin b(Echo);
  FlowTarget target;
  target.host = "a.test";
  target.destination = {IpAddress::FromV4(0xc6120001), b.origin.port()};
  target.process = b.bed.process();
  std::promise<int> first;
  b.bed.engine().Prepare(900, target, [&](int error) { first.set_value(error); });
  EXPECT_EQ(first.get_future().get(), 0);
  while (b.origin.accepted() == 0) std::this_thread::yield();
  UniqueFd fd = b.bed.ConnectRaw(target, 900);
  Peer client = b.bed.Speaking(std::move(fd), Speak::kTls, "a.test");
  client.Write(Get("/", b.origin.port()));
  EXPECT_EQ(client.ReadMessage().body, "GET / HTTP/1.1|");
  EXPECT_EQ(b.origin.accepted(), 1);
}

TEST(Engine, TellsABlockingConnectTheErrnoOfANativeOne) {
  uint16_t closed = 0;
  {
    Origin gone(nullptr, Echo);
    closed = gone.port();
  }
  Testbed bed(LoopbackRule(fmt::format("tcp db.test:{}", closed)) + fmt::format("  - allow: tcp guarded.test:{}\n", closed) +
              LoopbackRule(fmt::format("tcp missing.test:{}", closed)));
  const std::pair<std::string, int> rows[] = {
      {"db.test", ECONNREFUSED}, {"guarded.test", EACCES}, {"missing.test", EHOSTUNREACH}, {"denied.test", EACCES}};
  uint64_t id = 1000;
  for (const auto& [name, error] : rows) {
    FlowTarget target;
    target.host = name;
    target.destination = {IpAddress::FromV4(0xc6120001), closed};
    target.process = bed.process();
    std::promise<int> told;
    bed.engine().Prepare(++id, target, [&](int value) { told.set_value(value); });
    EXPECT_EQ(told.get_future().get(), error) << name;
  }
}

TEST(Engine, KeepsFlowsBelowItsLimit) {
  Origin origin(nullptr, [](Peer peer) { peer.ReadToEnd(); });
  EngineOptions options;
  options.max_flows = 2;
  Testbed bed(LoopbackRule(fmt::format("tcp db.test:{}", origin.port())), options);
  Peer a = bed.Connect("db.test", origin.port(), Speak::kPlain);
  Peer b = bed.Connect("db.test", origin.port(), Speak::kPlain);
  Peer c = bed.Connect("db.test", origin.port(), Speak::kPlain);
  EXPECT_EQ(c.ReadToEnd(), "");
  EXPECT_TRUE(c.was_reset());
  bool limited = false;
  for (const auto& event : bed.sink().decisions()) limited |= event.decision.reason == policy::Reason::kLimit;
  EXPECT_TRUE(limited);
}

TEST(Engine, WithoutDescriptorsForConnectionsItSaysSoAndDialsNothing) {
  Origin origin(nullptr, [](Peer peer) { peer.ReadToEnd(); });
  EngineOptions options;
  options.descriptors = {.limit = 4096, .ceiling = 0};
  Testbed bed(LoopbackRule(fmt::format("tcp db.test:{}", origin.port())), options);
  FlowTarget target;
  target.host = "db.test";
  target.destination = {IpAddress::FromV4(0xc6120001), origin.port()};
  target.process = bed.process();
  std::promise<int> told;
  bed.engine().Prepare(1000, target, [&](int value) { told.set_value(value); });
  EXPECT_EQ(told.get_future().get(), ENOBUFS);
  Peer refused = bed.Connect("db.test", origin.port(), Speak::kPlain);
  EXPECT_EQ(refused.ReadToEnd(), "");
  EXPECT_TRUE(refused.was_reset());
  const auto events = bed.sink().decisions();
  ASSERT_EQ(events.size(), 2u);
  for (const auto& event : events) {
    EXPECT_EQ(event.decision.reason, policy::Reason::kLimit);
    EXPECT_EQ(event.detail, "out of descriptors: 0 connections open, limit 4096");
  }
  EXPECT_EQ(origin.accepted(), 0);
}

TEST(Engine, TakesConnectionsAgainOnceDescriptorsAreFree) {
  Origin origin(nullptr, Echo);
  EngineOptions options;
  options.workers = 1;
  const int free_now = UniqueFd(dup(0)).get();
  options.descriptors = {.limit = free_now + 100, .ceiling = free_now + 60};
  Testbed bed(LoopbackRule(fmt::format("GET http://db.test:{}/**", origin.port())), options);
  const auto answers = [&](Peer& peer) {
    peer.Write(fmt::format("GET / HTTP/1.1\r\nHost: db.test:{}\r\n\r\n", origin.port()));
    return peer.ReadMessage().FirstLine() == "HTTP/1.1 200 OK";
  };
  std::vector<Peer> held;
  for (bool full = false; !full;) {
    ASSERT_LT(held.size(), 100u) << "the ceiling is never reached";
    held.push_back(bed.Connect("db.test", origin.port(), Speak::kPlain));
    full = !answers(held.back());
  }
  EXPECT_GE(held.size(), 5u);
  held.clear();
  bool again = false;
  for (int i = 0; i < 200 && !again; ++i) {
    Peer peer = bed.Connect("db.test", origin.port(), Speak::kPlain);
    again = answers(peer);
    if (!again) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(again);
}

TEST(Engine, ARequestHeadThatDripsEndsAtItsDeadline) {
  Origin origin(nullptr, Echo);
  EngineOptions options;
  options.deadlines.head = std::chrono::milliseconds(200);
  Testbed bed(LoopbackRule(fmt::format("POST http://a.test:{}/**", origin.port())), options);
  Peer client = bed.Connect("a.test", origin.port(), Speak::kPlain);
  client.Write("GET / HTTP/1.1\r\nX: ");
  std::atomic<bool> stop{false};
  std::thread drip([&] {
    for (; !stop; std::this_thread::sleep_for(std::chrono::milliseconds(10))) client.Write("x");
  });
  EXPECT_EQ(client.ReadMessage().FirstLine().substr(0, 12), "HTTP/1.1 408");
  stop = true;
  drip.join();
}

TEST(Engine, ARequestBodyThatDripsEndsWithItsExchange) {
  Origin origin(nullptr, Echo);
  EngineOptions options;
  options.deadlines.exchange = std::chrono::milliseconds(300);
  Testbed bed(LoopbackRule(fmt::format("POST http://a.test:{}/**", origin.port())), options);
  Peer client = bed.Connect("a.test", origin.port(), Speak::kPlain);
  client.Write(fmt::format("POST / HTTP/1.1\r\nHost: a.test:{}\r\nContent-Length: 1000000\r\n\r\n", origin.port()));
  std::atomic<bool> stop{false};
  std::thread drip([&] {
    for (; !stop; std::this_thread::sleep_for(std::chrono::milliseconds(10))) client.Write("x");
  });
  EXPECT_EQ(client.ReadMessage().FirstLine().substr(0, 12), "HTTP/1.1 504");
  stop = true;
  drip.join();
  EXPECT_EQ(bed.sink().exchanges(1)[0].error,
            "a.test:" + std::to_string(origin.port()) + " answered with an exchange that took longer than any may");
}

TEST(Engine, RefusesTheHostsOwnPublicAddressUnlessARuleNamesIt) {
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), Echo);
  EngineOptions options;
  options.host_addresses = {IpAddress::FromV4(0x08080404), kLoopback};
  Testbed bed(fmt::format("  - allow: GET own.test:{}/**\n", origin.port()) +
                  LoopbackRule(fmt::format("GET a.test:{}/**", origin.port())),
              options);
  bed.resolver().Answer("own.test", 0x08080404);
  Peer refused = bed.Connect("own.test", origin.port());
  refused.Write(fmt::format("GET / HTTP/1.1\r\nHost: own.test:{}\r\n\r\n", origin.port()));
  EXPECT_EQ(nlohmann::json::parse(refused.ReadMessage().body)["code"], "private_ip");
  Peer named = bed.Connect("a.test", origin.port());
  named.Write(Get("/", origin.port()));
  EXPECT_EQ(named.ReadMessage().FirstLine(), "HTTP/1.1 200 OK");
}

TEST(Engine, ARangeThatHoldsTheHostsOwnPrivateAddressDoesNotOpenIt) {
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), Echo);
  EngineOptions options;
  options.host_addresses = {IpAddress::FromV4(0x0a010203), kLoopback};
  const auto rule = [&](std::string_view name, std::string_view ip) {
    return fmt::format("  - allow: GET {}:{}/**\n    ip: [{}]\n", name, origin.port(), ip);
  };
  Testbed bed(rule("ten.test", "10.0.0.0/8") + rule("loop.test", "127.0.0.0/8") +
                  fmt::format("  - allow: tcp raw.test:{}\n    ip: [127.0.0.0/8]\n", origin.port()),
              options);
  bed.resolver().Answer("ten.test", 0x0a010203);
  bed.resolver().Answer("loop.test", 0x7f000001);
  bed.resolver().Answer("raw.test", 0x7f000001);
  for (const std::string name : {"ten.test", "loop.test"}) {
    Peer refused = bed.Connect(name, origin.port());
    refused.Write(fmt::format("GET / HTTP/1.1\r\nHost: {}:{}\r\n\r\n", name, origin.port()));
    EXPECT_EQ(nlohmann::json::parse(refused.ReadMessage().body)["code"], "private_ip") << name;
  }
  Peer opaque = bed.Connect("raw.test", origin.port(), Speak::kPlain);
  EXPECT_EQ(opaque.ReadToEnd(), "");
  EXPECT_TRUE(opaque.was_reset());
}

TEST(Engine, ReadsAClientHelloThatArrivesInPieces) {
  OneOrigin b(Echo);
  FlowTarget target;
  target.host = "a.test";
  target.destination = {IpAddress::FromV4(0xc6120001), b.origin.port()};
  // A pair of sockets between the client and the flow lets the hello through a few bytes at a time.
  UniqueFd outer = b.bed.ConnectRaw(target);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  std::thread pump([&, inner = UniqueFd(ends[0])]() mutable {
    pollfd wait[2] = {{inner.get(), POLLIN, 0}, {outer.get(), POLLIN, 0}};
    char bytes[16384];
    size_t trickled = 0;
    while (poll(wait, 2, 10000) > 0) {
      for (int i = 0; i < 2; ++i) {
        if (wait[i].revents == 0) continue;
        const ssize_t n = recv(wait[i].fd, bytes, i == 0 && trickled < 200 ? 7 : sizeof bytes, 0);
        if (n <= 0) return;
        trickled += static_cast<size_t>(n);
        if (send(wait[1 - i].fd, bytes, static_cast<size_t>(n), MSG_NOSIGNAL) != n) return;
      }
    }
  });
  {
    Peer client = b.bed.Speaking(UniqueFd(ends[1]), Speak::kTls, "a.test");
    EXPECT_TRUE(client.ok());
    client.Write(Get("/", b.origin.port()));
    EXPECT_EQ(client.ReadMessage().body, "GET / HTTP/1.1|");
  }
  pump.join();
}

TEST(Engine, JudgesCleartextOnATlsRulesPortAsHttp) {
  Origin origin(nullptr, Echo);
  Testbed bed(LoopbackRule(fmt::format("tls a.test:{}", origin.port())));
  Peer client = bed.Connect("a.test", origin.port(), Speak::kPlain);
  client.Write(Get("/", origin.port()));
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 "));
  EXPECT_EQ(origin.accepted(), 0);
}

TEST(Engine, CarriesAThousandFlowsAtOnce) {
  OneOrigin b(Echo);
  constexpr size_t kFlows = 1000;
  std::vector<Peer> clients;
  for (size_t i = 0; i < kFlows; ++i) {
    clients.push_back(b.Connect());
    ASSERT_TRUE(clients.back().ok()) << i;
    // Asked at once: a client that says nothing for long is dropped, and a slow machine takes long to get to the last.
    clients.back().Write(Get("/first", b.origin.port()));
    EXPECT_EQ(clients.back().ReadMessage().body, "GET /first HTTP/1.1|") << i;
  }
  for (size_t i = 0; i < kFlows; ++i) clients[i].Write(Get(fmt::format("/{}", i), b.origin.port()));
  for (size_t i = 0; i < kFlows; ++i) EXPECT_EQ(clients[i].ReadMessage().body, fmt::format("GET /{} HTTP/1.1|", i));
  EXPECT_EQ(b.bed.sink().exchanges(2 * kFlows).size(), 2 * kFlows);
}

}  // namespace
}  // namespace sluice::proxy::testing
