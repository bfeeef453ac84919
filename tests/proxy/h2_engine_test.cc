// HTTP/2 through the engine: real sockets, real TLS on both sides, nghttp2 at either end or frames by hand.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>

#include "tests/proxy/h2_peer.h"

namespace sluice::proxy::testing {
namespace {

void Serve(Peer peer) {
  if (peer.alpn() == "h2") {
    ServeH2(std::move(peer), EchoH2);
  } else {
    Echo(std::move(peer));
  }
}

/// An origin that speaks one protocol, and clients that offer HTTP/2.
struct H2Bed {
  explicit H2Bed(const std::string& alpn, std::function<void(Peer)> serve = Serve, const std::string& rules = "")
      : origin(SharedAuthority().ServerContext("DNS:a.test", alpn), std::move(serve)),
        bed(rules.empty() ? LoopbackRule(fmt::format("GET,PUT a.test:{}/**", origin.port())) : rules) {
    bed.OfferAlpn({"h2", "http/1.1"});
  }
  H2Client Client() {
    bed.OfferAlpn({"h2"});
    return H2Client(bed.Connect("a.test", origin.port()));
  }
  [[nodiscard]] std::string authority() const { return fmt::format("a.test:{}", origin.port()); }
  [[nodiscard]] FieldList Get(const std::string& path) const { return GetFields(authority(), path); }
  [[nodiscard]] FieldList Of(const std::string& method, const std::string& path, const FieldList& more = {}) const {
    FieldList fields = {{":method", method}, {":scheme", "https"}, {":authority", authority()}, {":path", path}};
    fields.insert(fields.end(), more.begin(), more.end());
    return fields;
  }
  Origin origin;
  Testbed bed;
};

TEST(H2, OffersWhatTheUpstreamSpeaks) {
  H2Bed old("");
  Peer first = old.bed.Connect("a.test", old.origin.port());
  EXPECT_EQ(first.alpn(), "http/1.1");
  H2Bed now("h2");
  EXPECT_EQ(now.bed.Connect("a.test", now.origin.port()).alpn(), "h2");
  // Once it is known, nobody is asked again.
  EXPECT_EQ(now.bed.Connect("a.test", now.origin.port()).alpn(), "h2");
  now.bed.OfferAlpn({"http/1.1"});
  EXPECT_EQ(now.bed.Connect("a.test", now.origin.port()).alpn(), "http/1.1");
  now.bed.OfferAlpn({"h2", "http/1.1"});
  // Nobody is there: the refusal is told inside.
  Testbed nobody(LoopbackRule("GET a.test:9/**"));
  nobody.OfferAlpn({"h2", "http/1.1"});
  Peer peer = nobody.Connect("a.test", 9);
  EXPECT_EQ(peer.alpn(), "h2");
  H2Client client(std::move(peer));
  EXPECT_EQ(client.Do(GetFields("a.test:9")).status(), "502");
}

TEST(H2, ForwardsToEitherProtocol) {
  for (const std::string alpn : {"", "h2"}) {
    SCOPED_TRACE(alpn);
    H2Bed b(alpn);
    H2Client client = b.Client();
    ASSERT_EQ(client.peer().alpn(), "h2");
    const H2Message got = client.Do(b.Get("/a/./b?q=1"));
    EXPECT_EQ(got.status(), "200");
    EXPECT_EQ(got.Field("x-origin"), alpn.empty() ? "yes" : "h2");
    EXPECT_TRUE(got.body.starts_with("GET /a/b?q=1")) << got.body;
    const H2Message put = client.Do(b.Of("PUT", "/x", {{"content-length", "5"}}), "hello");
    EXPECT_TRUE(put.body.ends_with("|hello")) << put.body;
    const H2Message unmeasured = client.Do(b.Of("PUT", "/x"), "hello");
    EXPECT_TRUE(unmeasured.body.ends_with("|hello")) << unmeasured.body;
    const auto exchanges = b.bed.sink().exchanges(3);
    ASSERT_EQ(exchanges.size(), 3u);
    EXPECT_EQ(exchanges[0].status, 200);
    EXPECT_EQ(exchanges[0].error, "");
    EXPECT_EQ(exchanges[0].target.path, "/a/b");
    EXPECT_EQ(exchanges[1].bytes_up, 5u);
    EXPECT_EQ(exchanges[1].bytes_down, put.body.size());
    EXPECT_EQ(exchanges[2].request, 3u);
  }
}

TEST(H2, CarriesHttp11ToAnUpstreamThatSpeaksOnlyHttp2) {
  H2Bed b("h2", [](Peer peer) {
    if (peer.alpn() != "h2") return;
    ServeH2(std::move(peer), [](const H2Message& request) -> H2Answer {
      if (request.Field(":path") == "/trailers")
        return {{{":status", "200"}, {"trailer", "x-sum"}}, "abc", "x-sum: 7\r\nx-other: 8\r\n"};
      if (request.Field(":method") == "HEAD") return {{{":status", "200"}, {"content-length", "9"}}, "", ""};
      return EchoH2(request);
    });
  });
  b.bed.OfferAlpn({"http/1.1"});
  for (int connection = 0; connection < 2; ++connection) {
    Peer client = b.bed.Connect("a.test", b.origin.port());
    const uint16_t port = b.origin.port();
    client.Write(testing::Get("/1", port));
    EXPECT_EQ(client.ReadMessage().body, "GET /1|");
    client.Write(
        fmt::format("PUT /2 HTTP/1.1\r\nHost: a.test:{}\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", port));
    EXPECT_EQ(client.ReadMessage().body, "PUT /2|hello");
    client.Write(fmt::format("PUT /3 HTTP/1.1\r\nHost: a.test:{}\r\nContent-Length: 200000\r\n\r\n", port) +
                 std::string(200000, 'x'));
    EXPECT_EQ(client.ReadMessage().body, "PUT /3|" + std::string(200000, 'x'));
    client.Write(fmt::format("HEAD /4 HTTP/1.1\r\nHost: a.test:{}\r\n\r\n", port));
    EXPECT_EQ(client.ReadMessage(Peer::Body::kNone).Field("content-length"), "9");
    client.Write(testing::Get("/trailers", port));
    const auto trailers = client.ReadMessage();
    EXPECT_EQ(trailers.body + trailers.trailers, "abcx-sum: 7\r\n");
    client.Write(fmt::format("DELETE /5 HTTP/1.1\r\nHost: a.test:{}\r\n\r\n", port));
    EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 "));
    client.Write(testing::Get("/6", port));
    EXPECT_EQ(client.ReadMessage().body, "GET /6|");
  }
  const auto exchanges = b.bed.sink().exchanges(12);
  ASSERT_EQ(exchanges.size(), 12u);
  EXPECT_EQ(exchanges[2].bytes_up, 200000u);
  EXPECT_EQ(exchanges[2].bytes_down, 200007u);
}

TEST(H2, DeniesOneStreamWhileItsNeighboursLive) {
  H2Bed b("h2");
  H2Client client = b.Client();
  const int32_t open = client.Start(b.Of("PUT", "/slow"), H2Client::Body::kOpen);
  const H2Message denied = client.Do(b.Of("DELETE", "/x"));
  EXPECT_EQ(denied.status(), "403");
  EXPECT_EQ(denied.Field("x-sluice-denied"), "d-1");
  EXPECT_EQ(denied.Field("proxy-status"), "sluice; error=http_request_denied; details=\"d-1\"");
  EXPECT_EQ(nlohmann::json::parse(denied.body)["code"], "method");
  EXPECT_EQ(client.Do(b.Of("POST", "/x", {{"user-agent", "git/2"}}), "body").Field("content-type"), "text/plain; charset=utf-8");
  client.Say(open, "late", true);
  ASSERT_TRUE(client.Until([&] { return client.messages[open].ended; }));
  EXPECT_EQ(client.messages[open].body, "PUT /slow|late");
}

TEST(H2, RefusesOtherAuthoritiesAndForms) {
  H2Bed b("h2");
  H2Client client = b.Client();
  EXPECT_EQ(client.Do(GetFields("b.test")).status(), "421");
  EXPECT_EQ(client.Do(GetFields("a.test:1")).status(), "421");
  EXPECT_EQ(client.Do(GetFields("u@a.test")).status(), "400");
  EXPECT_EQ(client.Do(b.Get("/a/../../b")).status(), "400");
  EXPECT_EQ(client.Do(b.Of("OPTIONS", "*")).status(), "405");
  EXPECT_EQ(client.Do(b.Of("TRACE", "/")).status(), "405");
  EXPECT_EQ(client.Do(b.Of("GET", "/", {{"content_length", "1"}})).status(), "400");
  EXPECT_EQ(client.Do(b.Get("/")).status(), "200");
  for (const auto& decision : b.bed.sink().decisions())
    if (!decision.decision.allowed) EXPECT_FALSE(decision.denial_id.empty());
}

TEST(H2, CarriesManyStreamsOnOneUpstreamConnection) {
  H2Bed b("h2");
  H2Client client = b.Client();
  std::vector<int32_t> ids;
  for (int i = 0; i < 90; ++i) ids.push_back(client.Start(b.Get(fmt::format("/{}", i))));
  client.Until([&] { return std::ranges::all_of(ids, [&](int32_t id) { return client.messages[id].ended; }); });
  for (int i = 0; i < 90; ++i) EXPECT_EQ(client.messages[ids[static_cast<size_t>(i)]].body, fmt::format("GET /{}|", i));
  EXPECT_EQ(b.origin.accepted(), 1);
}

TEST(H2, StreamsLargeBodiesBothWays) {
  std::string sent;
  for (int i = 0; i < 300000; ++i) sent += fmt::format("{:x}.", i);
  for (const std::string alpn : {"", "h2"}) {
    SCOPED_TRACE(alpn);
    H2Bed b(alpn);
    H2Client client = b.Client();
    const H2Message got = client.Do(b.Of("PUT", "/x"), sent);
    EXPECT_EQ(got.status(), "200");
    EXPECT_TRUE(got.body.ends_with(sent)) << got.body.size() << " of " << sent.size();
  }
}

TEST(H2, StopsASenderWhoseReaderIsSlow) {
  for (const std::string alpn : {"", "h2"}) {
    SCOPED_TRACE(alpn);
    std::atomic<size_t> taken{0};
    H2Bed b(alpn, [&](Peer peer) {
      if (peer.alpn() == "h2") {
        ServeH2(std::move(peer),
                [&](const H2Message&) -> H2Answer { return {{{":status", "200"}}, std::string(64 << 20, 'x'), ""}; });
        return;
      }
      peer.ReadMessage();
      peer.Write(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 64 << 20));
      const std::string piece(1 << 16, 'x');
      for (int i = 0; i < 1024 && peer.Write(piece); ++i) taken += piece.size();
    });
    H2Client client = b.Client();
    client.consume = false;
    const int32_t id = client.Start(b.Get("/big"));
    client.Until([&] { return client.messages[id].body.size() >= kH2UpstreamWindow; });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_LE(client.messages[id].body.size(), kH2UpstreamWindow);
    // What the kernel holds of loopback sockets is some megabytes.
    EXPECT_LT(taken.load(), size_t{24} << 20);
    client.session.Reset(id, kH2Cancel);
    client.Send();
    const auto exchanges = b.bed.sink().exchanges(1);
    ASSERT_EQ(exchanges.size(), 1u);
    EXPECT_EQ(exchanges[0].error, "the client went away");
  }
}

TEST(H2, PassesTrailersAndInterimResponses) {
  H2Bed b("h2", [](Peer peer) {
    ServeH2(std::move(peer), [](const H2Message& request) -> H2Answer {
      return {{{":status", "200"}, {"content-type", "application/grpc"}},
              "x" + request.trailers,
              "grpc-status: 5\r\ngrpc-message: gone\r\nx-sluice-denied: d-9\r\n"};
    });
  });
  H2Client client = b.Client();
  const int32_t id = client.Start(b.Of("PUT", "/x", {{"te", "trailers"}}), H2Client::Body::kOpen);
  client.Say(id, "b", true, "x-sum: 1\r\n");
  client.Until([&] { return client.messages[id].ended; });
  EXPECT_EQ(client.messages[id].body, "xx-sum: 1\r\n");
  EXPECT_EQ(client.messages[id].trailers, "grpc-status: 5\r\ngrpc-message: gone\r\n");

  H2Bed old("", [](Peer peer) {
    peer.ReadUntil("\r\n\r\n");
    peer.Write(
        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n");
    peer.Write("3\r\nabc\r\n0\r\nx-sum: 7\r\nContent-Length: 5\r\n\r\n");
    peer.ReadSome();
  });
  H2Client other = old.Client();
  const H2Message got = other.Do(old.Get("/x"));
  ASSERT_EQ(got.interims.size(), 1u);
  EXPECT_EQ(got.interims[0], (FieldList{{":status", "103"}, {"link", "x"}}));
  EXPECT_EQ(got.body, "abc");
  EXPECT_EQ(got.trailers, "x-sum: 7\r\n");
}

// A server may put trailers among the header fields.
TEST(H2, WhatRulesLookAtInAHeadDoesNotComeBehindTheBody) {
  for (const std::string alpn : {"", "h2"}) {
    for (const std::string client : {"h2", "http/1.1"}) {
      SCOPED_TRACE("client " + client + " upstream " + alpn);
      const auto h2 = [](Peer peer) {
        ServeH2(std::move(peer),
                [](const H2Message& request) -> H2Answer { return {{{":status", "200"}}, request.trailers, ""}; });
      };
      const auto http11 = [](Peer peer) {
        const auto request = peer.ReadMessage();
        peer.Write(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", request.trailers.size(), request.trailers));
      };
      Origin origin(SharedAuthority().ServerContext("DNS:a.test", alpn), alpn == "h2" ? std::function<void(Peer)>(h2) : http11);
      Testbed bed(LoopbackRule(fmt::format("PUT a.test:{}/**", origin.port())) +
                  fmt::format("  - deny: http a.test:{}/**\n    headers: {{ x-env: [prod] }}\n", origin.port()));
      bed.OfferAlpn({client});
      const std::string trailers = "x-sum: 1\r\nx-env: prod\r\nx_env: prod\r\nx-http-method: DELETE\r\n";
      const std::string announced = "x-sum, x-env, x_env, x-http-method";
      if (client == "h2") {
        H2Client peer(bed.Connect("a.test", origin.port()));
        const int32_t id = peer.Start({{":method", "PUT"},
                                       {":scheme", "https"},
                                       {":authority", fmt::format("a.test:{}", origin.port())},
                                       {":path", "/x"},
                                       {"trailer", announced}},
                                      H2Client::Body::kOpen);
        peer.Say(id, "b", true, trailers);
        peer.Until([&] { return peer.messages[id].ended; });
        EXPECT_EQ(peer.messages[id].body, "x-sum: 1\r\n");
      } else {
        Peer peer = bed.Connect("a.test", origin.port());
        peer.Write(
            fmt::format("PUT /x HTTP/1.1\r\nHost: a.test:{}\r\nTrailer: {}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n{}"
                        "x-unannounced: 1\r\n\r\n",
                        origin.port(), announced, trailers));
        EXPECT_EQ(peer.ReadMessage().body, "x-sum: 1\r\n");
      }
    }
  }
}

TEST(H2, SendsNoBodyWhereThereIsNone) {
  for (const std::string alpn : {"", "h2"}) {
    SCOPED_TRACE(alpn);
    H2Bed b(alpn, [](Peer peer) {
      if (peer.alpn() == "h2") {
        ServeH2(std::move(peer), [](const H2Message& request) -> H2Answer {
          const bool head = request.Field(":method") == "HEAD";
          return {{{":status", head ? "200" : request.Field(":path").substr(1)}, {"content-length", head ? "99" : "0"}}, "", ""};
        });
        return;
      }
      for (;;) {
        const auto request = peer.ReadMessage();
        if (request.head.empty()) return;
        if (request.head.starts_with("HEAD")) {
          peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n");
        } else {
          peer.Write(fmt::format("HTTP/1.1 {} X\r\nContent-Length: 0\r\n\r\n", request.head.substr(5, 3)));
        }
      }
    });
    H2Client client = b.Client();
    const H2Message head = client.Do(b.Of("HEAD", "/x"));
    EXPECT_EQ(head.status() + head.Field("content-length") + head.body, "20099");
    EXPECT_EQ(client.Do(b.Get("/304")).status(), "304");
    EXPECT_EQ(client.Do(b.Get("/200")).status(), "200");
    EXPECT_EQ(client.Do(b.Of("HEAD", "/x")).status(), "200");
  }
}

TEST(H2, TellsGrpcWhyInItsTrailers) {
  H2Bed b("h2");
  H2Client client = b.Client();
  const int32_t id = client.Start(b.Of("POST", "/pkg.Svc/Do", {{"content-type", "application/grpc"}, {"te", "trailers"}}),
                                  H2Client::Body::kOpen);
  client.Until([&] { return client.messages[id].ended; });
  const H2Message& denied = client.messages[id];
  EXPECT_EQ(denied.status(), "200");
  EXPECT_EQ(denied.Field("grpc-status"), "7");
  EXPECT_TRUE(denied.Field("grpc-message").starts_with("Egress denied: needs \"grpc a.test")) << denied.Field("grpc-message");
  EXPECT_EQ(denied.Field("x-sluice-denied"), "d-1");
  EXPECT_EQ(denied.body, "");
}

TEST(H2, MapsResetsBothWays) {
  std::atomic<uint32_t> cancelled{99};
  H2Bed b("h2", [&](Peer peer) {
    H2Talker talker(std::move(peer), H2Role::kServer);
    while (talker.Turn()) {
      for (auto& [id, message] : talker.messages) {
        if (message.Field(":path") == "/reset" && !message.closed) talker.session.Reset(id, kH2EnhanceYourCalm);
        if (message.closed && message.Field(":path") == "/hang") cancelled = *message.closed;
      }
      talker.Send();
    }
  });
  H2Client client = b.Client();
  const H2Message reset = client.Do(b.Get("/reset"));
  ASSERT_TRUE(reset.closed);
  EXPECT_EQ(*reset.closed, uint32_t{kH2EnhanceYourCalm});
  const int32_t id = client.Start(b.Get("/hang"));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  client.session.Reset(id, kH2Cancel);
  client.Send();
  (void)b.bed.sink().exchanges(2);
  for (int i = 0; i < 100 && cancelled == 99; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(cancelled.load(), uint32_t{kH2Cancel});
}

TEST(H2, SendsARefusedStreamAgainOnAnotherConnection) {
  std::atomic<int> connections{0};
  H2Bed b("h2", [&](Peer peer) {
    const bool first = ++connections == 1;
    if (!first) {
      ServeH2(std::move(peer), EchoH2);
      return;
    }
    H2Talker talker(std::move(peer), H2Role::kServer);
    while (talker.Turn() && talker.messages.empty()) {
    }
    // GOAWAY that has seen nothing.
    talker.peer().Write(Frame(kGoaway, 0, 0, U32(0) + U32(0)));
    talker.peer().CloseWrite();
    talker.peer().ReadToEnd();
  });
  H2Client client = b.Client();
  const H2Message got = client.Do(b.Get("/again"));
  EXPECT_EQ(got.status(), "200") << got.body;
  EXPECT_EQ(b.origin.accepted(), 2);
}

TEST(H2, CutsWhatTheNewPolicyForbids) {
  H2Bed b("h2", [](Peer peer) {
    H2Talker talker(std::move(peer), H2Role::kServer);
    while (talker.Turn()) {
      for (auto& [id, message] : talker.messages) {
        if (message.body == "answered") continue;
        message.body = "answered";
        H2Output head;
        head.Reset(0);
        head.Add(":status", "200");
        talker.session.Respond(id, head, H2End::kOpen);
        talker.Say(id, "begun");
      }
      talker.Send();
    }
  });
  H2Client client = b.Client();
  const int32_t kept = client.Start(b.Get("/kept"));
  const int32_t cut = client.Start(b.Get("/cut"));
  client.Until([&] { return client.messages[kept].body == "begun" && client.messages[cut].body == "begun"; });
  const auto before = std::chrono::steady_clock::now();
  b.bed.SetPolicy(LoopbackRule(fmt::format("GET a.test:{}/kept", b.origin.port())));
  client.Until([&] { return client.messages[cut].closed.has_value(); });
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(100));
  EXPECT_EQ(client.messages[cut].closed, std::optional<uint32_t>(kH2Cancel));
  EXPECT_FALSE(client.messages[kept].closed);
  const auto exchanges = b.bed.sink().exchanges(1);
  ASSERT_EQ(exchanges.size(), 1u);
  EXPECT_EQ(exchanges[0].error, "closed by a change of policy");
  b.bed.SetPolicy(LoopbackRule("GET b.test"));
  EXPECT_EQ(client.peer().ReadToEnd().find("HTTP/1.1"), std::string::npos);
}

TEST(H2, JudgesPriorKnowledgeAndIgnoresUpgrade) {
  std::atomic<bool> saw_h2{false};
  Origin origin(nullptr, [&](Peer peer) {
    const std::string first = peer.ReadExactly(4);
    if (first == "PRI ") {
      saw_h2 = true;
      H2Talker talker(std::move(peer), H2Role::kServer);
      (void)talker.session.Feed(first, SteadyTime{std::chrono::seconds(1)});
      while (talker.Turn())
        for (auto& [id, message] : talker.messages)
          if (message.ended && message.body.empty()) {
            message.body = "answered";
            H2Output head;
            head.Reset(0);
            head.Add(":status", "200");
            talker.session.Respond(id, head, H2End::kOpen);
            talker.Say(id, message.Field(":path"), true);
          }
      return;
    }
    const std::string rest = peer.ReadUntil("\r\n\r\n");
    const std::string body = first + rest;
    peer.Write(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  });
  Testbed bed(LoopbackRule(fmt::format("GET http://a.test:{}/ok", origin.port())));
  H2Client client(bed.Connect("a.test", origin.port(), Speak::kPlain));
  const std::string authority = fmt::format("a.test:{}", origin.port());
  FieldList ok = GetFields(authority, "/ok");
  ok[1].second = "http";
  FieldList bad = GetFields(authority, "/bad");
  bad[1].second = "http";
  EXPECT_EQ(client.Do(ok).body, "/ok");
  EXPECT_TRUE(saw_h2);
  EXPECT_EQ(client.Do(bad).status(), "403");
  EXPECT_EQ(client.Do(GetFields(authority, "/ok")).status(), "400");

  Peer old = bed.Connect("a.test", origin.port(), Speak::kPlain);
  old.Write(
      Get("/ok", origin.port(), "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"));
  const auto answer = old.ReadMessage();
  EXPECT_EQ(answer.FirstLine(), "HTTP/1.1 200 OK");
  EXPECT_EQ(answer.body.find("pgrade"), std::string::npos) << answer.body;
  EXPECT_EQ(answer.body.find("ettings"), std::string::npos) << answer.body;
}

TEST(H2, EndsAFloodWithARecordWhileOthersLive) {
  H2Bed b("h2");
  H2Client neighbour = b.Client();
  EXPECT_EQ(neighbour.Do(b.Get("/1")).status(), "200");
  Peer attacker = b.bed.Connect("a.test", b.origin.port());
  attacker.Write(std::string(kH2Preface) + SettingsFrame());
  std::string resets;
  for (uint32_t i = 0; i < 2000; ++i) {
    FieldList fields = b.Get("/x");
    resets += HeadersFrame(2 * i + 1, fields) + Frame(kRstStream, 0, 2 * i + 1, U32(8));
  }
  attacker.Write(resets);
  std::string bytes = attacker.ReadToEnd();
  const auto frames = TakeFrames(&bytes);
  const auto goaway = std::ranges::find(frames, int{kGoaway}, &SeenFrame::type);
  ASSERT_NE(goaway, frames.end());
  EXPECT_EQ(goaway->Number(4), uint32_t{kH2EnhanceYourCalm});
  const auto decisions = b.bed.sink().decisions();
  const auto record = std::ranges::find_if(decisions, [](const auto& d) { return d.detail.starts_with("HTTP/2: "); });
  ASSERT_NE(record, decisions.end());
  EXPECT_EQ(record->decision.reason, policy::Reason::kLimit);
  EXPECT_EQ(record->detail, "HTTP/2: too many streams reset");
  EXPECT_EQ(neighbour.Do(b.Get("/2")).status(), "200");
}

TEST(H2, AnUpstreamThatFloodsLosesItsOwnStreamsAlone) {
  struct Attack {
    std::string name;
    std::string once;   ///< of stream 1
    std::string piece;  ///< 3,000 times
    bool answered = false;
  };
  const FieldList ok = {{":status", "200"}};
  const std::string bomb = '\x40' + HpackString("x-bomb") + HpackString(std::string(3900, 'b')) + std::string(8000, '\xbe');
  const Attack attacks[] = {
      {"pings", "", Frame(kPing, 0, 0, "12345678")},
      {"settings", "", SettingsFrame({{4, 65535}})},
      {"window updates", HeadersFrame(1, ok, kEndHeaders), Frame(kWindowUpdate, 0, 0, U32(1)), true},
      {"empty data", HeadersFrame(1, ok, kEndHeaders), Frame(kData, 0, 1, ""), true},
      {"continuations", Frame(kHeaders, 0, 1, Hpack(ok)), Frame(kContinuation, 0, 1, Hpack({{"x", "y"}}))},
      {"a compression bomb", Frame(kHeaders, kEndHeaders, 1, Hpack(ok) + bomb), ""},
  };
  for (const Attack& attack : attacks) {
    SCOPED_TRACE(attack.name);
    std::atomic<int> connections{0};
    H2Bed other("h2");
    H2Bed b("h2", [&](Peer peer) {
      if (++connections > 1) return ServeH2(std::move(peer), EchoH2);
      H2ByHand origin(std::move(peer));
      if (!origin.Until(kHeaders)) return;
      origin.Write(attack.once);
      // In a few pieces: an end that is told to stop by the first may be gone before the last.
      std::string many;
      for (int i = 0; i < 300; ++i) many += attack.piece;
      for (int i = 0; i < 10 && origin.Write(many); ++i) {
      }
      origin.ToEnd();
    });
    H2Client client = b.Client();
    H2Client neighbour = other.Client();
    const int32_t beside = neighbour.Start(other.Of("PUT", "/beside"), H2Client::Body::kOpen);
    const H2Message got = client.Do(b.Get("/x"));
    if (attack.answered && got.status() != "502") {  // its head had come, whether it was handed on yet or not
      EXPECT_TRUE(got.closed && *got.closed != 0) << got.status();
    } else {
      EXPECT_EQ(got.status(), "502") << got.body;
    }
    const auto exchanges = b.bed.sink().exchanges(1);
    ASSERT_EQ(exchanges.size(), 1u);
    EXPECT_NE(exchanges[0].error, "");
    EXPECT_EQ(client.Do(b.Get("/y")).status(), "200") << "on another connection";
    neighbour.Say(beside, "all the while", true);
    ASSERT_TRUE(neighbour.Until([&] { return neighbour.messages[beside].ended; }));
    EXPECT_EQ(neighbour.messages[beside].body, "PUT /beside|all the while");
  }
}

TEST(H2, AnswersForAnUpstreamThatBreaksTheRules) {
  struct Case {
    std::string name;
    std::string bytes;
  };
  const Case cases[] = {
      {"not HTTP/2", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
      {"a frame on stream 0 that belongs to a stream", SettingsFrame() + Frame(kData, 0, 0, "x")},
      {"a push", SettingsFrame() + Frame(kPushPromise, kEndHeaders, 1, U32(2) + Hpack(GetFields("a.test")))},
      {"a response with a connection field", SettingsFrame() + HeadersFrame(1, {{":status", "200"}, {"connection", "close"}})},
      {"a switch of protocols", SettingsFrame() + HeadersFrame(1, {{":status", "101"}}, kEndHeaders)},
      {"a body longer than its length", SettingsFrame() +
                                            HeadersFrame(1, {{":status", "200"}, {"content-length", "1"}}, kEndHeaders) +
                                            Frame(kData, kEndStream, 1, "xx")},
      {"nothing", ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    H2Bed b("h2", [&](Peer peer) {
      peer.ReadExactly(24 + 9);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      peer.Write(c.bytes);
      peer.CloseWrite();
      peer.ReadToEnd();
    });
    H2Client client = b.Client();
    const H2Message got = client.Do(b.Get("/x"));
    EXPECT_TRUE(got.status() == "502" || (got.closed && *got.closed != 0)) << got.status() << got.body;
    EXPECT_FALSE(got.ended && got.status() == "200");
  }
}

}  // namespace
}  // namespace sluice::proxy::testing
