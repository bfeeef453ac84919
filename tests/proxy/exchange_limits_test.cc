// Bounds of time and size on either side of an exchange, each with an error of its own.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <string>
#include <thread>

#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {
namespace {

/// An origin in the clear and an engine with these options.
struct Limited {
  Limited(std::function<void(Peer)> serve, EngineOptions options)
      : origin(nullptr, std::move(serve)),
        bed(LoopbackRule(fmt::format("http http://a.test:{}/**", origin.port())), std::move(options)) {}
  Peer Connect() { return bed.Connect("a.test", origin.port(), Speak::kPlain); }
  std::string Post(const std::string& fields) const {
    return fmt::format("POST / HTTP/1.1\r\nHost: a.test:{}\r\n{}\r\n", origin.port(), fields);
  }
  std::string Error() { return bed.sink().exchanges(1)[0].error; }
  Origin origin;
  Testbed bed;
};

constexpr auto kSoon = std::chrono::milliseconds(300);

TEST(ExchangeLimits, ARequestBodyThatStopsIs408) {
  EngineOptions options;
  options.deadlines.request_body_idle = kSoon;
  Limited b(Echo, options);
  for (const std::string framing : {"Content-Length: 10\r\n", "Transfer-Encoding: chunked\r\n"}) {
    Peer client = b.Connect();
    client.Write(b.Post(framing) + "5\r\nh");
    const auto answer = client.ReadMessage();
    EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 408 ")) << answer.head;
    EXPECT_NE(answer.body.find("a request body of which nothing arrived in time"), std::string::npos) << answer.body;
    EXPECT_EQ(answer.Field("connection"), "close");
  }
}

TEST(ExchangeLimits, AResponseHeadThatDripsIs504) {
  EngineOptions options;
  options.deadlines.head = kSoon;
  std::atomic<bool> stop{false};
  Limited b(
      [&](Peer peer) {
        peer.ReadMessage();
        peer.Write("HTTP/1.1 200 OK\r\nX: ");
        while (!stop && peer.Write("x")) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      },
      options);
  Peer client = b.Connect();
  client.Write(Get("/", b.origin.port()));
  const auto answer = client.ReadMessage();
  stop = true;
  EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 504 ")) << answer.head;
  EXPECT_NE(b.Error().find("a response head that did not arrive in time"), std::string::npos) << b.Error();
}

TEST(ExchangeLimits, AnUpstreamThatTakesNothingIs504) {
  EngineOptions options;
  options.deadlines.write_stuck = kSoon;
  std::atomic<bool> stop{false};
  Limited b(
      [&](Peer peer) {
        while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        peer.Close();
      },
      options);
  Peer client = b.Connect();
  client.Write(b.Post("Content-Length: 100000000\r\n"));
  // Until nobody takes any more; then it is answered, or cut.
  const timeval limit{1, 0};
  setsockopt(client.fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 24 && client.Write(piece); ++i) {
  }
  EXPECT_NE(b.Error().find("a request of which it took nothing for too long"), std::string::npos) << b.Error();
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 504 "));
  stop = true;
}

TEST(ExchangeLimits, AClientThatTakesNothingIsCut) {
  EngineOptions options;
  options.deadlines.write_stuck = kSoon;
  Limited b(
      [&](Peer peer) {
        peer.ReadMessage();
        peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
        const std::string piece(1 << 20, 'x');
        for (int i = 0; i < 90 && peer.Write(piece); ++i) {
        }
      },
      options);
  Peer client = b.Connect();
  client.Write(Get("/", b.origin.port()));
  EXPECT_NE(b.Error().find("a response of which the client took nothing for too long"), std::string::npos) << b.Error();
  client.ReadToEnd();
  EXPECT_TRUE(client.was_reset());
}

TEST(ExchangeLimits, ABodyOverItsBoundIs413Or502) {
  EngineOptions options;
  options.max_body_bytes = 1000;
  const std::string large(1001, 'x');
  Limited b(
      [&](Peer peer) {
        const auto request = peer.ReadMessage();
        if (request.head.starts_with("GET /length")) peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + large);
        if (request.head.starts_with("GET /chunks"))
          peer.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + large + "\r\n0\r\n\r\n");
        if (request.head.starts_with("POST")) peer.Write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        peer.ReadToEnd();
      },
      options);
  const auto first_line = [&](const std::string& request) {
    Peer client = b.Connect();
    client.Write(request);
    return client.ReadMessage().FirstLine().substr(0, 12);
  };
  EXPECT_EQ(first_line(b.Post("Content-Length: 1000\r\n") + std::string(1000, 'x')), "HTTP/1.1 200");
  const int accepted = b.origin.accepted();
  EXPECT_EQ(first_line(b.Post("Content-Length: 1001\r\n") + large), "HTTP/1.1 413");
  EXPECT_EQ(b.origin.accepted(), accepted) << "told before anything was sent";
  EXPECT_EQ(first_line(b.Post("Transfer-Encoding: chunked\r\n") + "3e9\r\n" + large + "\r\n0\r\n\r\n"), "HTTP/1.1 413");
  EXPECT_EQ(first_line(Get("/length", b.origin.port())), "HTTP/1.1 502");
  // One that turns out too large after it has begun is cut; the head may or may not have gone by then.
  Peer client = b.Connect();
  client.Write(Get("/chunks", b.origin.port()));
  const std::string all = client.ReadToEnd();
  EXPECT_FALSE(all.ends_with("\r\n0\r\n\r\n")) << all;
}

}  // namespace
}  // namespace sluice::proxy::testing
