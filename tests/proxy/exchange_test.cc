// HTTP exchanges through the engine: real sockets, real TLS on both sides.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>

#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {
namespace {

TEST(Exchange, ForwardsAnAllowedGetAndRefusesAPost) {
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), Echo);
  Testbed bed(LoopbackRule(fmt::format("GET a.test:{}/repos/**", origin.port())));
  Peer client = bed.Connect("a.test", origin.port());
  ASSERT_TRUE(client.ok());

  client.Write(fmt::format("GET /repos/./x?q=1 HTTP/1.1\r\nHost: a.test:{}\r\n\r\n", origin.port()));
  const auto allowed = client.ReadMessage();
  EXPECT_EQ(allowed.FirstLine(), "HTTP/1.1 200 OK");
  EXPECT_EQ(allowed.body, "GET /repos/x?q=1 HTTP/1.1|");
  EXPECT_EQ(allowed.Field("x-origin"), "yes");

  client.Write(fmt::format("POST /repos/x HTTP/1.1\r\nHost: a.test:{}\r\nContent-Length: 0\r\n\r\n", origin.port()));
  const auto denied = client.ReadMessage();
  EXPECT_TRUE(denied.FirstLine().starts_with("HTTP/1.1 403 Egress denied: needs \"POST a.test")) << denied.FirstLine();
  EXPECT_EQ(denied.Field("x-sluice-denied"), "d-1");
  EXPECT_EQ(denied.Field("proxy-status"), "sluice; error=http_request_denied; details=\"d-1\"");
  const auto json = nlohmann::json::parse(denied.body);
  EXPECT_TRUE(json["error"].is_string());
  EXPECT_EQ(json["code"], "method");
  EXPECT_EQ(json["id"], "d-1");
  EXPECT_EQ(json["method"], "POST");
  EXPECT_EQ(json["host"], "a.test");
  EXPECT_EQ(json["path"], "/repos/x");
  EXPECT_EQ(json["process"]["pid"], 4711);
  EXPECT_EQ(json["process"]["exe"], "/usr/bin/node");
  EXPECT_EQ(json["retry"], false);

  const auto exchanges = bed.sink().exchanges(1);
  ASSERT_EQ(exchanges.size(), 1u);
  EXPECT_EQ(exchanges[0].status, 200);
  EXPECT_EQ(exchanges[0].target.query, "q=");
  const auto decisions = bed.sink().decisions();
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_TRUE(decisions[0].decision.allowed);
  EXPECT_FALSE(decisions[1].decision.allowed);
  EXPECT_EQ(decisions[1].denial_id, "d-1");
  EXPECT_EQ(decisions[0].target.query, "q=");
}

TEST(Exchange, JudgesEachPipelinedRequestInOrder) {
  OneOrigin b(Echo, "GET");
  Peer client = b.Connect();
  const uint16_t port = b.origin.port();
  client.Write(Get("/1", port) + fmt::format("DELETE /2 HTTP/1.1\r\nHost: a.test:{}\r\n\r\n", port) + Get("/3", port));
  EXPECT_EQ(client.ReadMessage().body, "GET /1 HTTP/1.1|");
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 "));
  EXPECT_EQ(client.ReadMessage().body, "GET /3 HTTP/1.1|");
  EXPECT_EQ(b.origin.accepted(), 1);
}

TEST(Exchange, ReadsWhatFollowsAChunkedBodyAsTheNextRequest) {
  OneOrigin b(Echo, "POST");
  Peer client = b.Connect();
  client.Write(
      fmt::format("POST /x HTTP/1.1\r\nHost: a.test:{0}\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\n"
                  "GET /smuggled HTTP/1.1\r\nHost: a.test:{0}\r\n\r\n",
                  b.origin.port()));
  EXPECT_EQ(client.ReadMessage().body, "POST /x HTTP/1.1|hello");
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 "));
}

TEST(Exchange, StreamsALargeBodyBothWays) {
  std::string sent;
  OneOrigin b([](Peer peer) {
    const auto request = peer.ReadMessage();
    peer.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (size_t at = 0; at < request.body.size(); at += 7000) {
      const std::string piece = request.body.substr(at, 7000);
      peer.Write(fmt::format("{:x}\r\n{}\r\n", piece.size(), piece));
    }
    peer.Write("0\r\n\r\n");
  });
  for (int i = 0; i < 300000; ++i) sent += fmt::format("{:x}.", i);
  for (const bool chunked : {false, true}) {
    Peer client = b.Connect();
    if (chunked) {
      client.Write(fmt::format("PUT /x HTTP/1.1\r\nHost: a.test:{}\r\nTransfer-Encoding: chunked\r\n\r\n", b.origin.port()));
      for (size_t at = 0; at < sent.size(); at += 50000) {
        const std::string piece = sent.substr(at, 50000);
        client.Write(fmt::format("{:X}\r\n{}\r\n", piece.size(), piece));
      }
      client.Write("0\r\n\r\n");
    } else {
      client.Write(fmt::format("PUT /x HTTP/1.1\r\nHost: a.test:{}\r\nContent-Length: {}\r\n\r\n", b.origin.port(), sent.size()));
      client.Write(sent);
    }
    const auto answer = client.ReadMessage();
    EXPECT_EQ(answer.FirstLine(), "HTTP/1.1 200 OK");
    EXPECT_TRUE(answer.body == sent) << answer.body.size() << " of " << sent.size();
  }
}

TEST(Exchange, DeniesALargeUploadSoThatTheAnswerCanBeRead) {
  OneOrigin b(Echo, "GET");
  Peer client = b.Connect();
  client.Write(fmt::format("POST /x HTTP/1.1\r\nHost: a.test:{}\r\nTransfer-Encoding: chunked\r\n\r\n", b.origin.port()));
  const std::string piece(4000, 'x');
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(client.Write(fmt::format("{:x}\r\n{}\r\n", piece.size(), piece))) << i;
  client.Write("0\r\n\r\n");
  const auto denied = client.ReadMessage();
  EXPECT_TRUE(denied.FirstLine().starts_with("HTTP/1.1 403 Egress denied")) << denied.head;
  EXPECT_EQ(denied.Field("connection"), "close");
  EXPECT_FALSE(denied.body.empty());
  EXPECT_EQ(client.ReadToEnd(), "");
  EXPECT_FALSE(client.was_reset());
  EXPECT_EQ(b.origin.accepted(), 0);
}

TEST(Exchange, RelaysTheOriginsAnswerToExpect) {
  OneOrigin b([](Peer peer) {
    peer.ReadUntil("\r\n\r\n");
    peer.Write("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
    const std::string body = peer.ReadExactly(5);
    peer.Write(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  });
  Peer client = b.Connect();
  client.Write(
      fmt::format("POST /x HTTP/1.1\r\nHost: a.test:{}\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", b.origin.port()));
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Write("hello");
  EXPECT_EQ(client.ReadMessage().body, "hello");
}

TEST(Exchange, DecidesBeforeAnExpectingClientSendsItsBody) {
  OneOrigin b(Echo, "GET");
  Peer client = b.Connect();
  client.Write(
      fmt::format("POST /x HTTP/1.1\r\nHost: a.test:{}\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", b.origin.port()));
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 "));
  EXPECT_EQ(b.origin.accepted(), 0);
}

TEST(Exchange, PassesHeadNoContentAndNotModified) {
  OneOrigin b([](Peer peer) {
    for (;;) {
      const auto request = peer.ReadMessage();
      if (request.head.empty()) return;
      if (request.head.starts_with("HEAD")) peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
      if (request.head.starts_with("GET /304")) peer.Write("HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\nETag: x\r\n\r\n");
      if (request.head.starts_with("GET /204")) peer.Write("HTTP/1.1 204 No Content\r\n\r\n");
      if (request.head.starts_with("GET /ok")) peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    }
  });
  Peer client = b.Connect();
  const uint16_t port = b.origin.port();
  client.Write(fmt::format("HEAD / HTTP/1.1\r\nHost: a.test:{}\r\n\r\n", port));
  EXPECT_EQ(client.ReadMessage(Peer::Body::kNone).Field("content-length"), "1000");
  client.Write(Get("/304", port));
  EXPECT_EQ(client.ReadMessage(Peer::Body::kNone).FirstLine(), "HTTP/1.1 304 Not Modified");
  client.Write(Get("/204", port));
  const auto none = client.ReadMessage(Peer::Body::kNone);
  EXPECT_EQ(none.FirstLine(), "HTTP/1.1 204 No Content");
  EXPECT_EQ(none.Field("content-length"), "");
  client.Write(Get("/ok", port));
  EXPECT_EQ(client.ReadMessage().body, "ok");
  EXPECT_EQ(b.origin.accepted(), 1);
}

TEST(Exchange, PassesAnnouncedTrailersOnly) {
  OneOrigin b([](Peer peer) {
    const auto request = peer.ReadMessage();
    peer.Write(fmt::format(
        "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX-Sum: {}\r\nX-Other: 1\r\n"
        "Content-Length: 9\r\n\r\n",
        request.trailers.substr(0, request.trailers.find('\r'))));
  });
  Peer client = b.Connect();
  client.Write(
      fmt::format("POST / HTTP/1.1\r\nHost: a.test:{}\r\nTrailer: X-Mine\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
                  "X-Mine: 5\r\nAuthorization: no\r\n\r\n",
                  b.origin.port()));
  const auto answer = client.ReadMessage();
  EXPECT_EQ(answer.body, "body");
  EXPECT_EQ(answer.trailers, "x-sum: x-mine: 5\r\n");
}

TEST(Exchange, DeliversEventsAsTheyArrive) {
  std::atomic<int> seen{0};
  OneOrigin b([&](Peer peer) {
    peer.ReadMessage();
    peer.Write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
    for (int i = 1; i <= 3; ++i) {
      peer.Write(fmt::format("data: {}\n\n", i));
      // The next is sent only once the client has had this one.
      while (seen < i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    peer.Write(std::string(2 << 20, 'z'));
  });
  Peer client = b.Connect();
  client.Write(Get("/events", b.origin.port()));
  EXPECT_EQ(client.ReadUntil("\r\n\r\n").substr(0, 15), "HTTP/1.1 200 OK");
  for (int i = 1; i <= 3; ++i) {
    EXPECT_NE(client.ReadUntil("\n\n\r\n").find(fmt::format("data: {}", i)), std::string::npos);
    seen = i;
  }
  // All of what an origin sends just before it closes arrives.
  std::string rest = client.ReadUntil("0\r\n\r\n");
  EXPECT_EQ(std::ranges::count(rest, 'z'), 2 << 20);
}

TEST(Exchange, RefusesRequestsThatNameAnotherPlaceOrAreNotWellFormed) {
  OneOrigin b(Echo);
  const uint16_t port = b.origin.port();
  const std::string host = fmt::format("Host: a.test:{}\r\n", port);
  const std::pair<std::string, int> rows[] = {
      {"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n", 421},
      {"GET / HTTP/1.1\r\nHost: a.test:1\r\n\r\n", 421},
      {"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 421},
      {"GET / HTTP/1.1\r\nHost: a.test%00\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: u@a.test\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a.test\\b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost:\r\n\r\n", 400},
      {"GET https://b.test/ HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET http://a.test/ HTTP/1.1\r\n" + host + "\r\n", 400},
      {fmt::format("GET https://a.test:{}/ HTTP/1.1\r\nHost: b.test\r\n\r\n", port), 400},
      {fmt::format("GET https://u:p@a.test:{}/ HTTP/1.1\r\n{}\r\n", port, host), 400},
      {fmt::format("CONNECT a.test:{0} HTTP/1.1\r\n{1}\r\n", port, host), 400},
      {"TRACE / HTTP/1.1\r\n" + host + "\r\n", 405},
      {"OPTIONS * HTTP/1.1\r\n" + host + "\r\n", 405},
      {"OPTIONS / HTTP/1.1\r\nMax-Forwards: 0\r\n" + host + "\r\n", 405},
      {"GET /a\\b HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /a#b HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /../x HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /%00 HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /a%2fb HTTP/1.1\r\n" + host + "\r\n", 403},
      {"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n" + host + "\r\n", 400},
      {"GET / HTTP/1.1\nHost: a.test\n\n", 400},
      {"GET / HTTP/2.0\r\n" + host + "\r\n", 505},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n" + host + "\r\n", 501},
      {"GET /" + std::string(20000, 'a') + " HTTP/1.1\r\n" + host + "\r\n", 414},
      {"GET / HTTP/1.1\r\nX: " + std::string(40000, 'a') + "\r\n" + host + "\r\n", 431},
  };
  for (const auto& [bytes, status] : rows) {
    Peer client = b.Connect();
    ASSERT_TRUE(client.ok());
    client.Write(bytes);
    EXPECT_EQ(client.ReadMessage().FirstLine().substr(0, 13), fmt::format("HTTP/1.1 {} ", status)) << bytes.substr(0, 100);
  }
  EXPECT_EQ(b.origin.accepted(), 0);
}

TEST(Exchange, AcceptsTheSpellingsThatMeanTheSame) {
  OneOrigin b(Echo);
  const uint16_t port = b.origin.port();
  const std::pair<std::string, std::string> rows[] = {
      {"GET /x/../y HTTP/1.1\r\nHost: a.test\r\n\r\n", "GET /y HTTP/1.1|"},
      {fmt::format("GET //y%7E HTTP/1.1\r\nHost: A.TEST:{}\r\n\r\n", port), "GET /y~ HTTP/1.1|"},
      {fmt::format("GET /y HTTP/1.1\r\nHost: a.test.:{}\r\n\r\n", port), "GET /y HTTP/1.1|"},
      {fmt::format("GET https://a.test:{0}?q=1 HTTP/1.1\r\nHost: a.test:{0}\r\n\r\n", port), "GET /?q=1 HTTP/1.1|"},
      {fmt::format("GET HTTPS://A.test:{0}/z HTTP/1.1\r\nHost: a.test:{0}\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", port),
       "GET /z HTTP/1.1|"},
      {"GET /y HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "GET /y HTTP/1.1|"},
      {fmt::format("GET /y HTTP/1.1\r\nHost: a.test:{}\r\nContent-Length: 4\r\n\r\nbody", port), "GET /y HTTP/1.1|body"},
  };
  Peer client = b.Connect();
  for (const auto& [bytes, body] : rows) {
    client.Write(bytes);
    EXPECT_EQ(client.ReadMessage().body, body) << bytes;
  }
}

TEST(Exchange, ClosesAfterAnHttp10RequestThatDoesNotAskToStay) {
  OneOrigin b([](Peer peer) {
    peer.ReadMessage();
    peer.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
  });
  Peer client = b.Connect();
  client.Write("GET / HTTP/1.0\r\n\r\n");
  const std::string all = client.ReadToEnd();
  EXPECT_TRUE(all.ends_with("connection: close\r\n\r\nabc")) << all;
}

TEST(Exchange, SaysWhichCheckOfTheOriginsCertificateFailed) {
  Origin wrong_name(SharedAuthority().ServerContext("DNS:other.test"), Echo);
  TestAuthority stranger;
  Origin unknown_root(stranger.ServerContext("DNS:a.test"), Echo);
  Testbed bed(LoopbackRule(fmt::format("GET a.test:{},{}/**", wrong_name.port(), unknown_root.port())));
  const std::pair<uint16_t, std::string> rows[] = {{wrong_name.port(), "hostname mismatch"},
                                                   {unknown_root.port(), "unable to get local issuer certificate"}};
  for (const auto& [port, words] : rows) {
    Peer client = bed.Connect("a.test", port);
    client.Write(Get("/", port));
    const auto answer = client.ReadMessage();
    EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 502 ")) << answer.head;
    EXPECT_NE(answer.Field("proxy-status").find("tls_certificate_error"), std::string::npos) << answer.head;
    EXPECT_NE(answer.body.find(words), std::string::npos) << answer.body;
  }
}

TEST(Exchange, SaysWhichStepFailedWhenTheOriginCannotBeReached) {
  uint16_t closed = 0;
  {
    Origin gone(nullptr, Echo);
    closed = gone.port();
  }
  Testbed bed(LoopbackRule(fmt::format("GET a.test:{0}/**", closed)) +
              LoopbackRule(fmt::format("GET missing.test:{0}/**", closed)));
  Peer refused = bed.Connect("a.test", closed);
  refused.Write(Get("/", closed));
  EXPECT_NE(refused.ReadMessage().Field("proxy-status").find("connection_refused"), std::string::npos);
  Peer missing = bed.Connect("missing.test", closed);
  missing.Write(fmt::format("GET / HTTP/1.1\r\nHost: missing.test:{}\r\n\r\n", closed));
  EXPECT_NE(missing.ReadMessage().Field("proxy-status").find("dns_error"), std::string::npos);
}

TEST(Exchange, AnswersResponsesThatCannotBeTrustedWith502) {
  const std::string rows[] = {
      "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
      "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
      "SSH-2.0-OpenSSH_9.2\r\n\r\n",
      "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
      "",
  };
  std::atomic<size_t> row{0};
  OneOrigin b([&](Peer peer) {
    peer.ReadMessage();
    peer.Write(rows[row]);
  });
  for (row = 0; row < std::size(rows); ++row) {
    Peer client = b.Connect();
    client.Write(Get("/", b.origin.port()));
    EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 502 ")) << rows[row];
  }
}

TEST(Exchange, DropsAnOriginConnectionThatSaysMoreThanItsResponse) {
  OneOrigin b([](Peer peer) {
    peer.ReadMessage();
    peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
    peer.ReadToEnd();
  });
  Peer client = b.Connect();
  for (int i = 0; i < 2; ++i) {
    client.Write(Get("/", b.origin.port()));
    EXPECT_EQ(client.ReadMessage().body, "ok");
  }
  EXPECT_EQ(b.origin.accepted(), 2);
}

TEST(Exchange, DropsAnOriginConnectionThatSaysMoreInAnotherTlsRecord) {
  OneOrigin b([](Peer peer) {
    peer.ReadMessage();
    // Both records in one segment: the second is read into OpenSSL with the first, and no socket event tells of it.
    const int on = 1;
    setsockopt(peer.fd(), IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
    const int off = 0;
    setsockopt(peer.fd(), IPPROTO_TCP, TCP_CORK, &off, sizeof off);
    peer.ReadToEnd();
  });
  Peer client = b.Connect();
  for (int i = 0; i < 2; ++i) {
    client.Write(Get("/", b.origin.port()));
    EXPECT_EQ(client.ReadMessage().body, "ok");
  }
  EXPECT_EQ(b.origin.accepted(), 2);
}

TEST(Exchange, KeepsAnAuthenticatedConnectionToTheClientThatAuthenticated) {
  // As with NTLM, the connection is the user from the first credentials on.
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), [](Peer peer) {
    std::string user = "nobody";
    for (;;) {
      const auto request = peer.ReadMessage();
      if (request.head.empty()) return;
      if (!request.Field("authorization").empty()) user = "alice";
      if (!peer.Write(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", user.size(), user))) return;
    }
  });
  for (const std::string scheme : {"NTLM", "negotiate"}) {
    EngineOptions one_pool;
    one_pool.workers = 1;
    Testbed bed(LoopbackRule(fmt::format("http a.test:{}", origin.port())), one_pool);
    Peer alice = bed.Connect("a.test", origin.port());
    const int before = origin.accepted();
    for (const std::string& fields : {fmt::format("Authorization: {} TlRMTVNTUA==\r\n", scheme), std::string()}) {
      alice.Write(Get("/", origin.port(), fields));
      EXPECT_EQ(alice.ReadMessage().body, "alice") << scheme;
    }
    EXPECT_EQ(origin.accepted(), before + 1) << scheme;
    Peer mallory = bed.Connect("a.test", origin.port());
    mallory.Write(Get("/", origin.port()));
    EXPECT_EQ(mallory.ReadMessage().body, "nobody") << scheme;
  }
}

TEST(Exchange, ReplacesAPooledConnectionThatHasDied) {
  OneOrigin b([](Peer peer) {
    if (peer.ReadMessage().head.empty()) return;
    peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    // Waits for the next request, and then breaks instead of answering.
    peer.ReadUntil("\r\n\r\n");
    peer.Reset();
  });
  Peer client = b.Connect();
  for (int i = 0; i < 3; ++i) {
    client.Write(Get("/", b.origin.port()));
    EXPECT_EQ(client.ReadMessage().body, "ok") << i;
  }
  // Without a body, but not safe to repeat.
  client.Write(fmt::format("POST / HTTP/1.1\r\nHost: a.test:{}\r\nContent-Length: 0\r\n\r\n", b.origin.port()));
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 502 "));
}

TEST(Exchange, TellsACutResponseFromAWholeOne) {
  OneOrigin b([](Peer peer) {
    const auto request = peer.ReadMessage();
    if (request.head.starts_with("GET /chunked")) peer.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel");
    if (request.head.starts_with("GET /length")) peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhel");
    if (request.head.starts_with("GET /close")) peer.Write("HTTP/1.1 200 OK\r\n\r\nhel");
    peer.Reset();
  });
  for (const std::string path : {"/chunked", "/length", "/close"}) {
    Peer client = b.Connect();
    client.Write(Get(path, b.origin.port()));
    const std::string all = client.ReadToEnd();
    EXPECT_TRUE(all.starts_with("HTTP/1.1 200 OK")) << all;
    EXPECT_EQ(all.find("\r\n0\r\n\r\n"), std::string::npos) << path;
    EXPECT_TRUE(client.was_reset()) << path;
  }
}

TEST(Exchange, RefusesTheExchangeThatCannotBeRecorded) {
  OneOrigin b(Echo);
  Peer client = b.Connect();
  b.bed.sink().full = true;
  client.Write(Get("/", b.origin.port()));
  const auto answer = client.ReadMessage();
  EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 503 ")) << answer.head;
  EXPECT_NE(answer.body.find("audit queue full"), std::string::npos);
  EXPECT_EQ(b.origin.accepted(), 0);
}

TEST(Exchange, TellsGitInPlainText) {
  OneOrigin b(Echo, "git fetch-pack");
  Peer client = b.Connect();
  client.Write(Get("/octo/r.git/info/refs?service=git-receive-pack", b.origin.port(), "User-Agent: git/2.39.5\r\n"));
  const auto answer = client.ReadMessage();
  EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 403 "));
  EXPECT_EQ(answer.Field("content-type"), "text/plain; charset=utf-8");
  EXPECT_TRUE(answer.body.starts_with("sluice: denied GET a.test")) << answer.body;
}

TEST(Exchange, ResumesItsSessionsTowardAnOrigin) {
  auto context = SharedAuthority().ServerContext("DNS:a.test");
  std::atomic<int> resumed{0};
  Origin origin(context, [&](Peer peer) {
    resumed += peer.resumed() ? 1 : 0;
    peer.ReadMessage();
    peer.Write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
  });
  Testbed bed(LoopbackRule(fmt::format("GET a.test:{}/**", origin.port())));
  for (int i = 0; i < 3; ++i) {
    Peer client = bed.Connect("a.test", origin.port());
    client.Write(Get("/", origin.port()));
    EXPECT_EQ(client.ReadMessage().body, "ok");
  }
  EXPECT_EQ(origin.accepted(), 3);
  EXPECT_EQ(resumed, 2);
}

}  // namespace
}  // namespace sluice::proxy::testing
