// Which connection a request gets: one that is given back while its own is dialled, and what becomes of that dial.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "tests/proxy/h2_peer.h"

namespace sluice::proxy::testing {
namespace {

using namespace std::chrono_literals;

/// An origin whose connections from the second on do not get through their TLS handshake until they are let, or are closed in the
/// middle of it; the answer to /held waits likewise.
class SlowOrigin {
 public:
  SlowOrigin() : origin_(nullptr, [this](Peer peer) { Serve(std::move(peer)); }) {}
  ~SlowOrigin() {
    Answer();
    LetIn(true);
  }
  [[nodiscard]] uint16_t port() const { return origin_.port(); }
  [[nodiscard]] int accepted() const { return origin_.accepted(); }
  [[nodiscard]] bool Accepts(int connections) const {
    return Reaches(connections, [this] { return accepted(); });
  }
  /// Whose handshake is over, on both sides.
  [[nodiscard]] bool Secures(int connections) const {
    return Reaches(connections, [this] { return secured_.load(); });
  }
  void Answer() { Once(&answer_, true); }
  /// False: they are closed.
  void LetIn(bool in) { Once(&let_in_, in); }

 private:
  struct Gate {
    std::promise<bool> promise;
    std::shared_future<bool> opened = promise.get_future().share();
    std::atomic<bool> open{false};
  };
  static bool Reaches(int wanted, const std::function<int()>& count) {
    for (int i = 0; i < 1000 && count() < wanted; ++i) std::this_thread::sleep_for(10ms);
    return count() == wanted;
  }
  static void Once(Gate* gate, bool how) {
    if (!gate->open.exchange(true)) gate->promise.set_value(how);
  }
  void Serve(Peer raw) {
    if (++served_ > 1 && !let_in_.opened.get()) return;
    SSL* const ssl = SSL_new(context_.get());
    UniqueFd fd(dup(raw.fd()));
    SSL_set_fd(ssl, fd.get());
    const bool up = SSL_accept(ssl) == 1;
    Peer peer(std::move(fd), ssl);
    secured_ += up ? 1 : 0;
    while (up) {
      const auto request = peer.ReadMessage();
      if (request.head.empty()) return;
      if (request.head.starts_with("GET /held ")) (void)answer_.opened.get();
      const std::string body = request.FirstLine();
      peer.Write(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
    }
  }

  std::shared_ptr<ssl_ctx_st> context_ = SharedAuthority().ServerContext("DNS:a.test");
  Gate answer_;
  Gate let_in_;
  std::atomic<int> served_{0};
  std::atomic<int> secured_{0};
  Origin origin_;
};

// They share what is idle.
EngineOptions OneWorker() {
  EngineOptions options;
  options.workers = 1;
  return options;
}

/// One request waits for its answer, and another for a connection.
struct TwoRequests {
  TwoRequests() : bed(LoopbackRule(fmt::format("http a.test:{}/**", origin.port())), OneWorker()) {
    EXPECT_TRUE(held.Write(Get("/held", origin.port())));
    EXPECT_TRUE(origin.Accepts(1));
    EXPECT_TRUE(waiting.Write(Get("/waiting", origin.port())));
    EXPECT_TRUE(origin.Accepts(2));
  }
  SlowOrigin origin;
  Testbed bed;
  Peer held = bed.Connect("a.test", origin.port());
  Peer waiting = bed.Connect("a.test", origin.port());
};

TEST(Obtain, TakesAConnectionThatIsGivenBackBeforeItsOwnIsThere) {
  TwoRequests two;
  two.origin.Answer();
  EXPECT_EQ(two.held.ReadMessage().body, "GET /held HTTP/1.1");
  EXPECT_EQ(two.waiting.ReadMessage().body, "GET /waiting HTTP/1.1") << "its own dial has not ended";
  // What was dialled in vain serves the next ones.
  two.origin.LetIn(true);
  EXPECT_TRUE(two.origin.Secures(2));
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(two.held.Write(Get("/a", two.origin.port())));
    EXPECT_TRUE(two.waiting.Write(Get("/b", two.origin.port())));
    EXPECT_EQ(two.held.ReadMessage().body, "GET /a HTTP/1.1");
    EXPECT_EQ(two.waiting.ReadMessage().body, "GET /b HTTP/1.1");
  }
  EXPECT_EQ(two.origin.accepted(), 2);
}

TEST(Obtain, IsNotHarmedByADialThatFailsLater) {
  TwoRequests two;
  two.origin.Answer();
  EXPECT_EQ(two.held.ReadMessage().body, "GET /held HTTP/1.1");
  EXPECT_EQ(two.waiting.ReadMessage().body, "GET /waiting HTTP/1.1");
  two.origin.LetIn(false);
  EXPECT_TRUE(two.waiting.Write(Get("/again", two.origin.port())));
  EXPECT_EQ(two.waiting.ReadMessage().body, "GET /again HTTP/1.1");
  for (const auto& exchange : two.bed.sink().exchanges(3)) EXPECT_EQ(exchange.status, 200) << exchange.error;
}

TEST(Obtain, FailsWithItsOwnDialWhereNothingIsGivenBack) {
  TwoRequests two;
  two.origin.LetIn(false);
  EXPECT_TRUE(two.waiting.ReadMessage().FirstLine().starts_with("HTTP/1.1 502 "));
  two.origin.Answer();
  EXPECT_EQ(two.held.ReadMessage().body, "GET /held HTTP/1.1");
}

TEST(Obtain, ForgetsALateDialWhenThePolicyChanges) {
  TwoRequests two;
  two.origin.Answer();
  EXPECT_EQ(two.waiting.ReadMessage().body, "GET /waiting HTTP/1.1");
  two.bed.SetPolicy(LoopbackRule(fmt::format("GET a.test:{}/**", two.origin.port())));
  for (int i = 0; i < 1000 && two.bed.engine().LastRejudging().passes == 0; ++i) std::this_thread::sleep_for(10ms);
  two.origin.LetIn(true);
  EXPECT_EQ(two.held.ReadMessage().body, "GET /held HTTP/1.1");
  EXPECT_TRUE(two.waiting.Write(Get("/new", two.origin.port())));
  EXPECT_EQ(two.waiting.ReadMessage().body, "GET /new HTTP/1.1");
  EXPECT_EQ(two.origin.accepted(), 3) << "neither what was idle nor what was on its way is used";
}

TEST(Obtain, DialsForABurstOfStreamsOnce) {
  constexpr int kStreams = 100;
  Origin origin(SharedAuthority().ServerContext("DNS:a.test"), [](Peer peer) {
    for (;;) {
      const auto request = peer.ReadMessage();
      if (request.head.empty()) return;
      std::this_thread::sleep_for(20ms);  // so that all of a burst are under way at once
      if (!peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) return;
    }
  });
  Testbed bed(LoopbackRule(fmt::format("GET a.test:{}/**", origin.port())), OneWorker());
  bed.OfferAlpn({"h2"});
  H2Client client(bed.Connect("a.test", origin.port()));
  const auto burst = [&] {
    std::vector<int32_t> ids;
    for (int i = 0; i < kStreams; ++i) ids.push_back(client.Start(GetFields(fmt::format("a.test:{}", origin.port()), "/")));
    const auto answered = [&](int32_t id) { return client.messages[id].ended; };
    EXPECT_TRUE(client.Until([&] { return std::ranges::all_of(ids, answered); }));
    for (const int32_t id : ids) EXPECT_EQ(client.messages[id].status(), "200");
  };
  burst();
  EXPECT_LE(origin.accepted(), kStreams + 1) << "one more was met to learn what it speaks";
  const int before = origin.accepted();
  for (int i = 0; i < 5; ++i) burst();
  EXPECT_LE(origin.accepted(), std::max(before, kStreams + 1)) << "what the first burst has dialled is kept for the next ones";
}

const FieldList kOk = {{":status", "200"}};

TEST(Obtain, OverHttp2RepeatsOnlyWhatMayBeOnAConnectionThatHasAnsweredBefore) {
  for (const std::string method : {"GET", "POST"}) {
    SCOPED_TRACE(method);
    std::atomic<int> connections{0};
    Origin origin(SharedAuthority().ServerContext("DNS:a.test", "h2"), [&](Peer peer) {
      if (++connections > 1) return ServeH2(std::move(peer), EchoH2);
      H2ByHand first(std::move(peer));
      if (first.Until(kHeaders)) first.Write(HeadersFrame(1, kOk));
      (void)first.Until(kHeaders);
      first.Reset();
    });
    Testbed bed(LoopbackRule(fmt::format("GET,POST a.test:{}/**", origin.port())), OneWorker());
    bed.OfferAlpn({"h2"});
    H2Client client(bed.Connect("a.test", origin.port()));
    FieldList fields = GetFields(fmt::format("a.test:{}", origin.port()), "/");
    EXPECT_EQ(client.Do(fields).status(), "200");
    fields[0].second = method;
    EXPECT_EQ(client.Do(fields).status(), method == "GET" ? "200" : "502");
    EXPECT_EQ(origin.accepted(), method == "GET" ? 2 : 1);
  }
}

// One that is new cannot be stale: what fails on it has failed.
TEST(Obtain, DialsOnceForARequestThatFailsOnANewConnection) {
  for (const std::string alpn : {"http/1.1", "h2"}) {
    SCOPED_TRACE(alpn);
    const bool h2 = alpn == "h2";
    std::atomic<int> left{0};  // of requests that are answered
    Origin origin(SharedAuthority().ServerContext("DNS:a.test", h2 ? "h2" : ""), [&](Peer peer) {
      if (h2) {
        H2ByHand served(std::move(peer));
        for (uint32_t id = 1; served.Until(kHeaders) && left-- > 0; id += 2) served.Write(HeadersFrame(id, kOk));
        served.Reset();
      } else {
        while (!peer.ReadMessage().head.empty() && left-- > 0) peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        peer.Reset();
      }
    });
    Testbed bed(LoopbackRule(fmt::format("GET a.test:{}/**", origin.port())), OneWorker());
    bed.OfferAlpn({alpn});
    const auto status = [&] {
      Peer peer = bed.Connect("a.test", origin.port());
      if (h2) return H2Client(std::move(peer)).Do(GetFields(fmt::format("a.test:{}", origin.port()), "/")).status();
      peer.Write(Get("/", origin.port()));
      return peer.ReadMessage().FirstLine().substr(9, 3);
    };
    EXPECT_EQ(status(), "502");
    EXPECT_EQ(origin.accepted(), 1);
    left = 1;
    EXPECT_EQ(status(), "200");
    EXPECT_EQ(origin.accepted(), 2);
    // The one that has answered is found dead, and its successor fails as well: there is no third.
    left = 0;
    EXPECT_EQ(status(), "502");
    EXPECT_EQ(origin.accepted(), 3);
  }
}

}  // namespace
}  // namespace sluice::proxy::testing
