// Bounds of time and size on either side of an exchange, each with an error of its own.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "tests/proxy/hello_bytes.h"
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

void ExpectUploadToEnd(EngineOptions options, const std::string& why) {
  SCOPED_TRACE(why);
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
  EXPECT_NE(b.Error().find(why), std::string::npos) << b.Error();
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 504 "));
  stop = true;
}

TEST(ExchangeLimits, AnUpstreamThatTakesNothingOrTooLittleIs504) {
  EngineOptions options;
  options.deadlines.write_stuck = kSoon;
  ExpectUploadToEnd(options, "a request of which it took nothing for too long");
  options = {};
  options.deadlines.request_body_pace = kSoon;
  ExpectUploadToEnd(options, "a request that it took too slowly");
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

/// Sends this every so often until it is told to stop, or nobody takes it.
class Drip {
 public:
  Drip(Peer& peer, std::string piece, std::chrono::milliseconds every)
      : thread_([this, &peer, said = std::move(piece), every] {
          while (!stop_ && peer.Write(said)) std::this_thread::sleep_for(every);
        }) {}
  ~Drip() {
    stop_ = true;
    thread_.join();
  }
  Drip(const Drip&) = delete;
  Drip& operator=(const Drip&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

constexpr auto kStep = std::chrono::milliseconds(50);

TEST(ExchangeLimits, ARequestBodyThatComesTooSlowlyIs408) {
  EngineOptions options;
  options.deadlines.request_body_pace = kSoon;
  Limited b(Echo, options);
  for (const std::string framing : {"Content-Length: 100000\r\n", "Transfer-Encoding: chunked\r\n"}) {
    SCOPED_TRACE(framing);
    Peer client = b.Connect();
    client.Write(b.Post(framing));
    // In chunks that cost more than they carry.
    const Drip drip(client, framing.starts_with("T") ? "0000001\r\nx\r\n" : "x", kStep);
    const auto answer = client.ReadMessage();
    EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 408 ")) << answer.head;
    EXPECT_NE(answer.body.find("a request body that came too slowly"), std::string::npos) << answer.body;
  }
}

TEST(ExchangeLimits, OneThatKeepsPaceTakesItsTime) {
  EngineOptions options;
  options.deadlines.request_body_pace = std::chrono::seconds(1);
  Limited b(Echo, options);
  Peer client = b.Connect();
  constexpr int kPieces = 25;
  const std::string piece(kRequestBodyPaceOctets, 'x');
  client.Write(b.Post(fmt::format("Content-Length: {}\r\n", kPieces * piece.size())));
  for (int i = 0; i < kPieces; ++i, std::this_thread::sleep_for(2 * kStep)) client.Write(piece);
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 200 "));
}

// Events, and whatever else talks both ways at leisure, are bounded by silence alone.
TEST(ExchangeLimits, NoPaceIsAskedOfAResponseOrOfARequestThatIsBeingAnswered) {
  EngineOptions options;
  options.deadlines.request_body_pace = kSoon;
  constexpr int kPieces = 20;
  Limited b(
      [&](Peer peer) {
        const bool events = peer.ReadUntil("\r\n\r\n").starts_with("GET ");
        peer.Write(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", kPieces));
        for (int i = 0; i < kPieces; ++i) {
          if (events) std::this_thread::sleep_for(kStep);
          if (!events) peer.ReadExactly(1);
          peer.Write("e");
        }
        peer.ReadToEnd();
      },
      options);
  Peer listener = b.Connect();
  listener.Write(Get("/", b.origin.port()));
  EXPECT_EQ(listener.ReadMessage().body, std::string(kPieces, 'e'));
  Peer talker = b.Connect();
  talker.Write(b.Post(fmt::format("Content-Length: {}\r\n", kPieces)));
  EXPECT_NE(talker.ReadUntil("\r\n\r\n"), "");
  std::string said;
  for (int i = 0; i < kPieces; ++i, std::this_thread::sleep_for(kStep)) {
    talker.Write("x");
    said += talker.ReadExactly(1);
  }
  EXPECT_EQ(said, std::string(kPieces, 'e'));
}

/// How long it took until the other side had closed, and whether that was long before a blocking read gives up.
class Watch {
 public:
  [[nodiscard]] bool Within(std::chrono::milliseconds least) const {
    const auto took = std::chrono::steady_clock::now() - since_;
    return took >= least && took < std::chrono::seconds(8);
  }

 private:
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

TEST(ExchangeLimits, AClientThatSaysNothingIsClosed) {
  EngineOptions options;
  options.deadlines.first_byte = kSoon;
  Limited b(Echo, options);
  const Watch watch;
  EXPECT_EQ(b.Connect().ReadToEnd(), "");
  EXPECT_TRUE(watch.Within(kSoon));
  EXPECT_EQ(b.Error(), "the client said nothing; a protocol where the server speaks first needs a tcp rule");
}

TEST(ExchangeLimits, AClientHelloThatIsNeverWholeIsClosed) {
  EngineOptions options;
  options.deadlines.tls_handshake = kSoon;
  Limited b(Echo, options);
  Peer client = b.Connect();
  const Watch watch;
  client.Write(HelloRecord(HelloMessage(ServerName("a.test"))).substr(0, 20));
  EXPECT_EQ(client.ReadToEnd(), "");
  EXPECT_TRUE(watch.Within(kSoon));
  EXPECT_EQ(b.Error(), "no ClientHello in time");
}

/// The first flight of OpenSSL, which can be answered.
std::string RealHello() {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), SSL_free);
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  SSL_set_tlsext_host_name(ssl.get(), "a.test");
  (void)SSL_connect(ssl.get());
  std::string hello(16384, '\0');
  hello.resize(static_cast<size_t>(BIO_read(SSL_get_wbio(ssl.get()), hello.data(), static_cast<int>(hello.size()))));
  return hello;
}

TEST(ExchangeLimits, AClientThatDoesNotFinishItsHandshakeIsClosed) {
  EngineOptions options;
  options.deadlines.tls_handshake = kSoon;
  Origin origin(nullptr, Echo);
  Testbed bed(LoopbackRule(fmt::format("http a.test:{}/**", origin.port())), options);
  Peer client = bed.Connect("a.test", origin.port(), Speak::kPlain);
  const Watch watch;
  client.Write(RealHello());
  EXPECT_NE(client.ReadToEnd(), "") << "the server's flight";
  EXPECT_TRUE(watch.Within(kSoon));
  EXPECT_EQ(bed.sink().exchanges(1)[0].error, "the client did not finish its TLS handshake in time");
}

TEST(ExchangeLimits, AnUpstreamThatDoesNotFinishItsHandshakeIs504) {
  EngineOptions options;
  // The client's own must be over by then.
  options.deadlines.tls_handshake = std::chrono::seconds(2);
  Origin origin(nullptr, [](Peer peer) { peer.ReadToEnd(); });
  Testbed bed(LoopbackRule(fmt::format("http a.test:{}/**", origin.port())), options);
  Peer client = bed.Connect("a.test", origin.port());
  client.Write(Get("/", origin.port()));
  const auto answer = client.ReadMessage();
  EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 504 ")) << answer.head;
  EXPECT_NE(answer.body.find("no TLS handshake with a.test"), std::string::npos) << answer.body;
}

TEST(ExchangeLimits, AConnectionThatRestsBetweenRequestsIsClosed) {
  EngineOptions options;
  options.deadlines.keep_alive_idle = kSoon;
  Limited b(Echo, options);
  Peer client = b.Connect();
  client.Write(Get("/", b.origin.port()));
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 200 "));
  const Watch watch;
  EXPECT_EQ(client.ReadToEnd(), "");
  EXPECT_TRUE(watch.Within(kSoon / 2));
}

TEST(ExchangeLimits, AnUpstreamThatIsSilentIs504OrCut) {
  EngineOptions options;
  options.deadlines.response_idle = kSoon;
  Limited b(
      [](Peer peer) {
        const bool begins = peer.ReadMessage().head.starts_with("GET /begun ");
        if (begins) peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhel");
        peer.ReadToEnd();
      },
      options);
  Peer client = b.Connect();
  client.Write(Get("/", b.origin.port()));
  const auto answer = client.ReadMessage();
  EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 504 ")) << answer.head;
  EXPECT_NE(answer.body.find("no answer in time"), std::string::npos) << answer.body;
  Peer begun = b.Connect();
  begun.Write(Get("/begun", b.origin.port()));
  EXPECT_TRUE(begun.ReadToEnd().ends_with("hel"));
  EXPECT_TRUE(begun.was_reset());
  EXPECT_EQ(b.bed.sink().exchanges(2)[1].error, "no answer in time");
}

TEST(ExchangeLimits, AClientThatHasSentItsFinIsWaitedForLess) {
  EngineOptions options;
  options.deadlines.half_closed_idle = kSoon;
  Limited b(
      [](Peer peer) {
        peer.ReadMessage();
        peer.ReadToEnd();
      },
      options);
  Peer client = b.Connect();
  const Watch watch;
  client.Write(Get("/", b.origin.port()));
  client.CloseWrite();
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 504 "));
  EXPECT_TRUE(watch.Within(kSoon));
}

TEST(ExchangeLimits, ARelayInWhichNothingMovesIsClosed) {
  EngineOptions options;
  options.deadlines.relay_idle = kSoon;
  Origin origin(nullptr, [](Peer peer) {
    for (std::string said = peer.ReadSome(); !said.empty(); said = peer.ReadSome()) peer.Write(said);
  });
  Testbed bed(LoopbackRule(fmt::format("tcp a.test:{}", origin.port())), options);
  Peer client = bed.Connect("a.test", origin.port(), Speak::kPlain);
  const Watch watch;
  client.Write("x");
  EXPECT_EQ(client.ReadToEnd(), "x");
  EXPECT_TRUE(watch.Within(kSoon));
  EXPECT_TRUE(client.was_reset());
  EXPECT_EQ(bed.sink().exchanges(1)[0].error, "idle for too long");
}

/// A request that is refused for the size of its body, and goes on with it.
Peer Refused(Limited& b) {
  Peer client = b.Connect();
  client.Write(b.Post(fmt::format("Content-Length: {}\r\n", kMaxBodyBytes + 1)));
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 413 "));
  return client;
}

TEST(ExchangeLimits, AfterAFinalAnswerSoManyBytesAreReadAndNoMore) {
  EngineOptions options;
  options.deadlines.linger_bytes = size_t{8} << 20;
  Limited b(Echo, options);
  Peer client = Refused(b);
  const std::string piece(1 << 20, 'x');
  int taken = 0;
  while (taken < 48 && client.Write(piece)) ++taken;
  // The rest is what sockets hold.
  EXPECT_GE(taken, 8);
  EXPECT_LT(taken, 48);
}

TEST(ExchangeLimits, AfterAFinalAnswerSoLongIsReadAndNoLonger) {
  EngineOptions options;
  options.deadlines.linger = kSoon;
  Limited b(Echo, options);
  Peer client = Refused(b);
  const Watch watch;
  while (client.Write("x")) std::this_thread::sleep_for(kStep);
  EXPECT_TRUE(watch.Within(kSoon / 2));
}

}  // namespace
}  // namespace sluice::proxy::testing
