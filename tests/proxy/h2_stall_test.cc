// Peers of HTTP/2 that never open a window: what waits for them is bounded, and a deadline ends it, whatever they send meanwhile.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/proxy/h2_peer.h"

namespace sluice::proxy::testing {
namespace {

using std::chrono::milliseconds;

constexpr uint16_t kInitialWindow = 4;  // of SETTINGS
constexpr size_t kLarge = size_t{16} << 20;
constexpr milliseconds kStuck{300};

EngineOptions Impatient() {
  EngineOptions options;
  options.workers = 1;
  options.deadlines.write_stuck = kStuck;
  options.deadlines.response_idle = kStuck;
  return options;
}

EngineOptions ImpatientForHeads() {
  EngineOptions options;
  options.workers = 1;
  options.deadlines.head = kStuck;
  return options;
}

struct StallBed {
  StallBed(const std::string& alpn, std::function<void(Peer)> serve, EngineOptions options = Impatient())
      : origin(SharedAuthority().ServerContext("DNS:a.test", alpn), std::move(serve)),
        bed(LoopbackRule(fmt::format("GET,PUT,POST a.test:{}/**", origin.port())), std::move(options)) {
    bed.OfferAlpn({"h2"});
  }
  Peer Connect() { return bed.Connect("a.test", origin.port()); }
  [[nodiscard]] FieldList Fields(const std::string& method, const std::string& path) const {
    return {{":method", method}, {":scheme", "https"}, {":authority", fmt::format("a.test:{}", origin.port())}, {":path", path}};
  }
  Origin origin;
  Testbed bed;
};

EngineOptions Pinging(milliseconds again) {
  EngineOptions options;
  options.workers = 1;
  options.deadlines.ping_after = kStuck;
  options.deadlines.ping = kStuck;
  options.deadlines.ping_again = again;
  return options;
}

/// The beginning of a header section whose end never comes: no other frame may follow it (RFC 9113 section 6.10).
std::string Unended(uint32_t stream, const FieldList& fields) { return HeadersFrame(stream, fields, 0); }

/// A client that says in its SETTINGS that it takes nothing, and reads frames until one of this type comes for its stream.
class DeafClient {
 public:
  explicit DeafClient(Peer peer) : peer_(std::move(peer)) {
    peer_.Write(std::string(kH2Preface) + SettingsFrame({{kInitialWindow, 0}}));
  }
  void Write(const std::string& frames) { peer_.Write(frames); }
  /// False: the connection ended first.
  bool Until(int type, uint32_t stream) {
    for (;;) {
      for (const SeenFrame& frame : TakeFrames(&bytes_)) {
        if (frame.type == kData) data_ += frame.payload.size();
        if (frame.type == type && frame.stream == stream) return true;
      }
      const std::string more = peer_.ReadSome();
      if (more.empty()) return false;
      bytes_ += more;
    }
  }
  /// Whether one is among what comes within this time.
  bool Saw(int type, uint32_t stream, milliseconds within) {
    pollfd ready{peer_.fd(), POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(within.count())) != 1) return false;
    bytes_ += peer_.ReadSome();
    const auto frames = TakeFrames(&bytes_);
    return std::ranges::any_of(frames, [&](const SeenFrame& frame) { return frame.type == type && frame.stream == stream; });
  }
  [[nodiscard]] size_t data() const { return data_; }

 private:
  Peer peer_;
  std::string bytes_;
  size_t data_ = 0;
};

TEST(H2Stall, AClientThatTakesNothingLosesItsStreamInTime) {
  for (const size_t size : {size_t{10}, kLarge}) {
    SCOPED_TRACE(size);
    std::atomic<size_t> taken{0};
    StallBed b("", [&](Peer peer) {
      peer.ReadUntil("\r\n\r\n");
      peer.Write(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", size));
      const std::string piece(std::min<size_t>(size, 1 << 16), 'x');
      for (size_t sent = 0; sent < size && peer.Write(piece); sent += piece.size()) taken += piece.size();
      peer.ReadToEnd();
    });
    DeafClient client(b.Connect());
    const auto before = std::chrono::steady_clock::now();
    client.Write(HeadersFrame(1, b.Fields("GET", "/large")));
    ASSERT_TRUE(client.Until(kHeaders, 1));
    ASSERT_TRUE(client.Until(kRstStream, 1));
    EXPECT_GE(std::chrono::steady_clock::now() - before, kStuck);
    EXPECT_EQ(client.data(), 0u);
    // The kernel's own buffers of loopback sockets are some megabytes.
    EXPECT_LT(taken.load(), kLarge);
    const auto exchanges = b.bed.sink().exchanges(1);
    ASSERT_EQ(exchanges.size(), 1u);
    EXPECT_EQ(exchanges[0].bytes_down, 0u);
    EXPECT_EQ(exchanges[0].error, "a response of which the client took nothing for too long");
    // The connection lives: the next stream has its answer's head.
    client.Write(HeadersFrame(3, b.Fields("DELETE", "/denied")));
    EXPECT_TRUE(client.Until(kHeaders, 3));
  }
}

TEST(H2Stall, AClientThatSendsMeanwhileGainsNoTime) {
  StallBed b("", [](Peer peer) {
    peer.ReadUntil("\r\n\r\n");
    const std::string body(1 << 20, 'x');
    peer.Write(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.size()));
    peer.Write(body);
    peer.ReadToEnd();
  });
  DeafClient client(b.Connect());
  const auto before = std::chrono::steady_clock::now();
  client.Write(HeadersFrame(1, b.Fields("PUT", "/drip"), kEndHeaders));
  bool reset = false;
  // In steps much shorter than the deadline, and for much longer.
  for (int i = 0; i < 300 && !reset; ++i) {
    client.Write(Frame(kData, 0, 1, "x"));
    reset = client.Saw(kRstStream, 1, kStuck / 10);
  }
  EXPECT_TRUE(reset);
  EXPECT_GE(std::chrono::steady_clock::now() - before, kStuck);
}

/// An origin that takes a request's head and never a byte of its body.
void DeafOrigin(Peer peer) { H2ByHand(std::move(peer), {{kInitialWindow, 0}}).ToEnd(); }

TEST(H2Stall, AnUpstreamThatTakesNothingIsGivenUpInTime) {
  StallBed b("h2", DeafOrigin);
  H2Client client(b.Connect());
  const auto before = std::chrono::steady_clock::now();
  const int32_t id = client.Start(b.Fields("PUT", "/upload"), H2Client::Body::kOpen);
  client.Say(id, std::string(kLarge, 'x'), true);
  ASSERT_TRUE(client.Until([&] { return client.messages[id].closed || !client.messages[id].head.empty(); }));
  EXPECT_GE(std::chrono::steady_clock::now() - before, kStuck);
  EXPECT_EQ(client.messages[id].status(), "504");
  // What fits into the windows on the way, and no more, was taken from the client.
  EXPECT_GT(client.Unsent(id), kLarge - (size_t{4} << 20));
  const auto exchanges = b.bed.sink().exchanges(1);
  ASSERT_EQ(exchanges.size(), 1u);
  EXPECT_FALSE(exchanges[0].error.empty());
}

TEST(H2Stall, TheSameOfAClientOfHttp11) {
  StallBed b("h2", DeafOrigin);
  b.bed.OfferAlpn({"http/1.1"});
  Peer client = b.bed.Connect("a.test", b.origin.port());
  // More than waits on the way, and no more than the sockets hold.
  constexpr size_t kBody = 256 << 10;
  client.Write(fmt::format("PUT /upload HTTP/1.1\r\nHost: a.test:{}\r\nContent-Length: {}\r\n\r\n", b.origin.port(), kBody));
  client.Write(std::string(kBody, 'x'));
  const auto answer = client.ReadMessage();
  EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 504 ")) << answer.FirstLine();
}

TEST(H2Stall, AClientsHeaderSectionThatHasNoEndEndsItsConnectionInTime) {
  StallBed b("h2", [](Peer peer) { ServeH2(std::move(peer), EchoH2); }, ImpatientForHeads());
  FieldList bad = b.Fields("GET", "/bad");
  bad.emplace_back("Bad", "x");
  // Of a new stream, and of one that was reset, where nghttp2 tells nothing of it.
  for (const bool of_the_past : {false, true}) {
    SCOPED_TRACE(of_the_past);
    DeafClient client(b.Connect());
    if (of_the_past) {
      client.Write(HeadersFrame(1, bad));
      ASSERT_TRUE(client.Until(kRstStream, 1));
    }
    const auto before = std::chrono::steady_clock::now();
    client.Write(Unended(1, b.Fields("GET", "/slow")));
    ASSERT_TRUE(client.Until(kGoaway, 0));
    EXPECT_GE(std::chrono::steady_clock::now() - before, kStuck);
    EXPECT_EQ(b.bed.sink().decisions().back().detail, "HTTP/2: a header section that did not arrive in time");
  }
}

TEST(H2Stall, AFieldThatIsRefusedLeavesItsNeighboursTheirTime) {
  StallBed b(
      "",
      [](Peer peer) {
        peer.ReadUntil("\r\n\r\n");
        std::this_thread::sleep_for(5 * kStuck / 2);
        peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        peer.ReadToEnd();
      },
      ImpatientForHeads());
  DeafClient client(b.Connect());
  client.Write(HeadersFrame(1, b.Fields("GET", "/waits")));
  FieldList bad = b.Fields("GET", "/bad");
  bad.emplace_back("Bad", "x");
  client.Write(HeadersFrame(3, bad));
  EXPECT_TRUE(client.Until(kHeaders, 1)) << "its section is whole";
}

TEST(H2Stall, AnUpstreamsHeaderSectionThatHasNoEndIs504InTime) {
  enum class How : uint8_t { kOfAStream, kInPieces, kOfThePast };
  for (const How how : {How::kOfAStream, How::kInPieces, How::kOfThePast}) {
    SCOPED_TRACE(static_cast<int>(how));
    std::atomic<int> connections{0};
    const auto serve = [&](Peer peer) {
      if (++connections > 1) return ServeH2(std::move(peer), EchoH2);
      H2ByHand origin(std::move(peer));
      if (!origin.Until(kHeaders) || !origin.Until(kHeaders)) return;
      const FieldList head = {{":status", "200"}};
      if (how == How::kOfThePast) origin.Write(HeadersFrame(1, head));
      origin.Write(Unended(1, head));
      for (int i = 0; how == How::kInPieces && i < 6; ++i) {
        std::this_thread::sleep_for(kStuck / 3);
        origin.Write(Frame(kContinuation, 0, 1, Hpack({{"x", "y"}})));
      }
      origin.ToEnd();
    };
    StallBed b("h2", serve, ImpatientForHeads());
    H2Client client(b.Connect());
    const auto before = std::chrono::steady_clock::now();
    const int32_t one = client.Start(b.Fields("GET", "/one"));
    const int32_t other = client.Start(b.Fields("GET", "/other"));
    ASSERT_TRUE(client.Until([&] { return client.messages[one].ended && client.messages[other].ended; }));
    const auto took = std::chrono::steady_clock::now() - before;
    EXPECT_GE(took, kStuck);
    EXPECT_LT(took, 20 * kStuck);
    EXPECT_EQ(client.messages[one].status(), how == How::kOfThePast ? "200" : "504");
    EXPECT_EQ(client.messages[other].status(), "504") << "held by the same connection";
    EXPECT_NE(client.messages[other].body.find("a response head that did not arrive in time"), std::string::npos);
    EXPECT_EQ(client.Do(b.Fields("GET", "/next")).status(), "200") << "on a new connection";
    EXPECT_EQ(b.origin.accepted(), 2);
  }
}

TEST(H2Stall, ARequestBodyThatComesTooSlowlyIs408UnlessItIsGrpcs) {
  EngineOptions options;
  options.deadlines.request_body_pace = kStuck;
  StallBed b("h2", [](Peer peer) { ServeH2(std::move(peer), EchoH2); }, options);
  H2Client client(b.Connect());
  const auto drip = [&](const FieldList& more) {
    FieldList fields = b.Fields("POST", "/drip");
    fields.insert(fields.end(), more.begin(), more.end());
    const int32_t id = client.Start(fields, H2Client::Body::kOpen);
    for (int i = 0; i < 30 && client.messages[id].head.empty(); ++i) {
      client.Say(id, "x");
      pollfd ready{client.peer().fd(), POLLIN, 0};
      if (poll(&ready, 1, static_cast<int>(kStuck.count() / 10)) == 1) client.Turn();
    }
    client.Say(id, "", true);
    EXPECT_TRUE(client.Until([&] { return client.messages[id].ended || client.messages[id].closed; }));
    return client.messages[id];
  };
  const H2Message late = drip({});
  EXPECT_EQ(late.status(), "408");
  EXPECT_NE(late.body.find("a request body that came too slowly"), std::string::npos) << late.body;
  EXPECT_EQ(drip({{"content-type", "application/grpc"}, {"te", "trailers"}}).status(), "200");
}

TEST(H2Stall, AConnectionThatRestsBetweenRequestsIsClosed) {
  EngineOptions options;
  options.deadlines.keep_alive_idle = kStuck;
  StallBed b("h2", [](Peer peer) { ServeH2(std::move(peer), EchoH2); }, options);
  DeafClient client(b.Connect());
  EXPECT_TRUE(client.Until(kGoaway, 0));
}

const FieldList kOk = {{":status", "200"}};

TEST(H2Ping, AConnectionThatLeadsNowhereTakesNoStreamAndEndsThoseItHas) {
  std::atomic<int> connections{0};
  std::atomic<bool> pinged{false};
  const auto serve = [&](Peer peer) {
    if (++connections > 1) return ServeH2(std::move(peer), EchoH2);
    H2ByHand origin(std::move(peer));
    pinged = origin.Until(kHeaders) && origin.Until(kPing);
    origin.ToEnd();
  };
  StallBed b("h2", serve, Pinging(milliseconds(60'000)));
  H2Client client(b.Connect());
  const auto before = std::chrono::steady_clock::now();
  const int32_t lost = client.Start(b.Fields("GET", "/lost"));
  for (int i = 0; i < 1000 && !pinged; ++i) std::this_thread::sleep_for(milliseconds(10));
  ASSERT_TRUE(pinged);
  EXPECT_EQ(client.Do(b.Fields("GET", "/elsewhere")).status(), "200");
  EXPECT_EQ(b.origin.accepted(), 2);
  ASSERT_TRUE(client.Until([&] { return client.messages[lost].ended; }));
  EXPECT_GE(std::chrono::steady_clock::now() - before, 2 * kStuck);
  EXPECT_EQ(client.messages[lost].status(), "504");
  EXPECT_NE(client.messages[lost].body.find("nothing, not even to a PING"), std::string::npos) << client.messages[lost].body;
  EXPECT_EQ(b.origin.accepted(), 2) << "the connection was a new one: nothing is sent again";
}

TEST(H2Ping, OnOneThatHasAnsweredOthersWhatMayBeRepeatedIsSentAgain) {
  for (const std::string method : {"GET", "POST"}) {
    SCOPED_TRACE(method);
    std::atomic<int> connections{0};
    const auto serve = [&](Peer peer) {
      if (++connections > 1) return ServeH2(std::move(peer), EchoH2);
      H2ByHand origin(std::move(peer));
      if (origin.Until(kHeaders)) origin.Write(HeadersFrame(1, kOk));
      origin.ToEnd();
    };
    StallBed b("h2", serve, Pinging(milliseconds(60'000)));
    H2Client client(b.Connect());
    EXPECT_EQ(client.Do(b.Fields("GET", "/first")).status(), "200");
    EXPECT_EQ(client.Do(b.Fields(method, "/second")).status(), method == "GET" ? "200" : "504");
    EXPECT_EQ(b.origin.accepted(), method == "GET" ? 2 : 1);
  }
}

TEST(H2Ping, IsNotMissedBeforeTheUpstreamHasTakenWhatIsAheadOfIt) {
  const auto serve = [](Peer peer) {
    H2ByHand origin(std::move(peer), {{kInitialWindow, kLarge}});
    origin.Write(Frame(kWindowUpdate, 0, 0, U32(kLarge)));
    if (!origin.Until(kHeaders)) return;
    std::this_thread::sleep_for(5 * kStuck);
    if (origin.Until(kPing)) origin.Write(HeadersFrame(1, kOk));
    origin.ToEnd();
  };
  StallBed b("h2", serve, Pinging(milliseconds(60'000)));
  H2Client client(b.Connect());
  const int32_t id = client.Start(b.Fields("PUT", "/upload"), H2Client::Body::kOpen);
  client.Say(id, std::string(kLarge, 'x'), true);
  ASSERT_TRUE(client.Until([&] { return client.messages[id].ended; }));
  EXPECT_EQ(client.messages[id].status(), "200");
}

// As a long poll is; and as servers of gRPC count the PINGs that they are sent.
TEST(H2Ping, AnUpstreamThatAnswersIsWaitedForAndAskedSeldom) {
  const auto serve = [](Peer peer) {
    H2ByHand origin(std::move(peer));
    if (!origin.Until(kHeaders)) return;
    for (int i = 0; i < 3; ++i)
      if (origin.Until(kPing)) origin.Write(Frame(kPing, kAck, 0, std::string(8, '\0')));
    origin.Write(HeadersFrame(1, kOk));
    origin.ToEnd();
  };
  StallBed b("h2", serve, Pinging(2 * kStuck));
  H2Client client(b.Connect());
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(client.Do(b.Fields("GET", "/poll")).status(), "200");
  EXPECT_GE(std::chrono::steady_clock::now() - before, kStuck + 2 * 2 * kStuck);
  EXPECT_EQ(b.origin.accepted(), 1);
}

TEST(H2Ping, OneThatHasSaidSomethingBetweenIsAskedAgainSooner) {
  const auto serve = [](Peer peer) {
    H2ByHand origin(std::move(peer));
    if (!origin.Until(kHeaders) || !origin.Until(kPing)) return;
    origin.Write(Frame(kPing, kAck, 0, std::string(8, '\0')) + HeadersFrame(1, kOk, kEndHeaders) + Frame(kData, 0, 1, "event"));
    if (origin.Until(kPing)) origin.Write(Frame(kData, kEndStream, 1, ""));
    origin.ToEnd();
  };
  StallBed b("h2", serve, Pinging(milliseconds(60'000)));
  H2Client client(b.Connect());
  EXPECT_EQ(client.Do(b.Fields("GET", "/events")).body, "event");
}

}  // namespace
}  // namespace sluice::proxy::testing
