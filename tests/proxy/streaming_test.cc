// What takes its time or goes in pieces: long polling, ranges, Expect, uploads that are answered early, HTTP/1.0 clients.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>

#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {
namespace {

std::string Post(const std::string& path, uint16_t port, const std::string& fields) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: a.test:{}\r\n{}\r\n", path, port, fields);
}

std::string Ok(const std::string& body) {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
}

/// Something that happens once and is waited for.
class Signal {
 public:
  void Set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  bool Wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

TEST(Streaming, ALongPollWaitsForItsAnswerWhileOthersPass) {
  Signal published;
  OneOrigin b([&](Peer peer) {
    for (;;) {
      const auto request = peer.ReadMessage();
      if (request.head.empty()) return;
      if (request.head.starts_with("GET /poll") && !published.Wait()) return;
      peer.Write(Ok(request.FirstLine()));
      if (request.head.starts_with("POST /publish")) published.Set();
    }
  });
  Peer poll = b.Connect();
  poll.Write(Get("/poll", b.origin.port()));
  Peer other = b.Connect();
  for (int i = 0; i < 3; ++i) {
    other.Write(Get("/pass", b.origin.port()));
    EXPECT_EQ(other.ReadMessage().body, "GET /pass HTTP/1.1");
  }
  other.Write(Post("/publish", b.origin.port(), "Content-Length: 0\r\n"));
  EXPECT_EQ(other.ReadMessage().body, "POST /publish HTTP/1.1");
  EXPECT_EQ(poll.ReadMessage().body, "GET /poll HTTP/1.1");
}

TEST(Streaming, PassesRangesAsTheyWereAskedAndAnswered) {
  const std::string partial =
      "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 2-4/10\r\nETag: \"v1\"\r\nContent-Length: 3\r\n\r\n234";
  const std::string parts =
      "--B\r\nContent-Range: bytes 0-0/10\r\n\r\n0\r\n--B\r\nContent-Range: bytes 9-9/10\r\n\r\n9\r\n--B--\r\n";
  OneOrigin b([&](Peer peer) {
    for (;;) {
      const auto request = peer.ReadMessage();
      if (request.head.empty()) return;
      const std::string range = request.Field("range");
      const std::string condition = request.Field("if-range");
      if (range == "bytes=2-4" && (condition.empty() || condition == "\"v1\"")) {
        peer.Write(request.head.starts_with("HEAD") ? partial.substr(0, partial.size() - 3) : partial);
      } else if (range == "bytes=0-0,-1") {
        peer.Write(
            fmt::format("HTTP/1.1 206 Partial Content\r\nContent-Type: multipart/byteranges; boundary=B\r\n"
                        "Content-Length: {}\r\n\r\n{}",
                        parts.size(), parts));
      } else if (range == "bytes=20-") {
        peer.Write("HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */10\r\nContent-Length: 0\r\n\r\n");
      } else {
        peer.Write(Ok("0123456789"));
      }
    }
  });
  const struct {
    std::string fields;
    std::string line;
    std::string content_range;
    std::string body;
  } rows[] = {
      {"Range: bytes=2-4\r\n", "HTTP/1.1 206 Partial Content", "bytes 2-4/10", "234"},
      {"Range: bytes=2-4\r\nIf-Range: \"v1\"\r\n", "HTTP/1.1 206 Partial Content", "bytes 2-4/10", "234"},
      {"Range: bytes=2-4\r\nIf-Range: \"v0\"\r\n", "HTTP/1.1 200 OK", "", "0123456789"},
      {"Range: bytes=0-0,-1\r\n", "HTTP/1.1 206 Partial Content", "", parts},
      {"Range: bytes=20-\r\n", "HTTP/1.1 416 Range Not Satisfiable", "bytes */10", ""},
      {"", "HTTP/1.1 200 OK", "", "0123456789"},
  };
  Peer client = b.Connect();
  for (const auto& row : rows) {
    client.Write(Get("/x", b.origin.port(), row.fields));
    const auto answer = client.ReadMessage();
    EXPECT_EQ(answer.FirstLine(), row.line) << row.fields;
    EXPECT_EQ(answer.Field("content-range"), row.content_range) << row.fields;
    EXPECT_EQ(answer.body, row.body) << row.fields;
  }
  client.Write(fmt::format("HEAD /x HTTP/1.1\r\nHost: a.test:{}\r\nRange: bytes=2-4\r\n\r\n", b.origin.port()));
  const auto head = client.ReadMessage(Peer::Body::kNone);
  EXPECT_EQ(head.FirstLine(), "HTTP/1.1 206 Partial Content");
  EXPECT_EQ(head.Field("content-length"), "3");
  EXPECT_EQ(b.origin.accepted(), 1) << "all on one connection";
}

const std::string kExpect = "Content-Length: 5\r\nExpect: 100-continue\r\n";

TEST(Streaming, ARefusedExpectationIsToldAndNoBodyIsWaitedFor) {
  Signal told;
  OneOrigin b([&](Peer peer) {
    peer.ReadUntil("\r\n\r\n");
    peer.Write("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\r\nno");
    EXPECT_TRUE(told.Wait());
  });
  Peer client = b.Connect();
  client.Write(Post("/x", b.origin.port(), kExpect));
  const auto answer = client.ReadMessage();
  EXPECT_EQ(answer.FirstLine(), "HTTP/1.1 417 Expectation Failed");
  EXPECT_EQ(answer.body, "no");
  told.Set();
  // The body it announced never came: this connection is of no further use, and what it might send is no request.
  client.Write("GET /y HTTP/1.1\r\nHost: a.test\r\n\r\n");
  EXPECT_EQ(client.ReadToEnd(), "");
  EXPECT_EQ(b.origin.accepted(), 1);
}

TEST(Streaming, ADelayed100IsPassedWhenItComes) {
  Signal waited;
  OneOrigin b([&](Peer peer) {
    peer.ReadUntil("\r\n\r\n");
    EXPECT_TRUE(waited.Wait());
    peer.Write("HTTP/1.1 100 Continue\r\n\r\n");
    peer.Write(Ok(peer.ReadExactly(5)));
  });
  Peer client = b.Connect();
  client.Write(Post("/x", b.origin.port(), kExpect));
  waited.Set();
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Write("hello");
  EXPECT_EQ(client.ReadMessage().body, "hello");
}

TEST(Streaming, AClientThatDoesNotWaitFor100IsServed) {
  // The origin says 100 late or never; the body comes with the head, or before the origin has said anything.
  for (const bool late : {false, true}) {
    OneOrigin b([&](Peer peer) {
      peer.ReadUntil("\r\n\r\n");
      const std::string body = peer.ReadExactly(5);
      if (late) peer.Write("HTTP/1.1 100 Continue\r\n\r\n");
      peer.Write(Ok(body));
    });
    Peer client = b.Connect();
    client.Write(Post("/x", b.origin.port(), kExpect) + "hello");
    if (late) EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    EXPECT_EQ(client.ReadMessage().body, "hello");
  }
}

TEST(Streaming, AnInterimThatAnHttp10ClientCannotUnderstandIsKeptFromIt) {
  OneOrigin b([](Peer peer) {
    peer.ReadUntil("\r\n\r\n");
    peer.Write("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + Ok("ok"));
  });
  Peer client = b.Connect();
  client.Write("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n");
  const std::string all = client.ReadToEnd();
  EXPECT_TRUE(all.starts_with("HTTP/1.1 200 OK\r\n")) << all;
  EXPECT_TRUE(all.ends_with("\r\n\r\nok")) << all;
}

// 403 from the origin while the client still uploads, the origin reading no more of it: the client reads the answer.
TEST(Streaming, AnUploadThatTheOriginRefusesEarlyShowsItsAnswer) {
  for (const bool chunked : {false, true}) {
    for (const bool closes : {false, true}) {
      Signal answered;
      OneOrigin b([&](Peer peer) {
        peer.ReadUntil("\r\n\r\n");
        peer.Write("HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nbad");
        if (!closes) EXPECT_TRUE(answered.Wait());
      });
      Peer client = b.Connect();
      const std::string piece(16000, 'x');
      client.Write(Post("/x", b.origin.port(), chunked ? "Transfer-Encoding: chunked\r\n" : "Content-Length: 16000000\r\n"));
      // More than the buffers on the way hold: what is not wanted must still be taken.
      for (int i = 0; i < 60; ++i)
        if (!client.Write(chunked ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : piece)) break;
      const auto answer = client.ReadMessage();
      EXPECT_EQ(answer.FirstLine(), "HTTP/1.1 403 Forbidden") << chunked << closes;
      EXPECT_EQ(answer.body, "bad") << chunked << closes;
      answered.Set();
    }
  }
}

TEST(Streaming, AnHttp10ClientThatAsksToStayIsKept) {
  OneOrigin b([](Peer peer) {
    for (;;) {
      const auto request = peer.ReadMessage();
      if (request.head.empty()) return;
      EXPECT_TRUE(request.head.find(" HTTP/1.1\r\n") != std::string::npos) << request.head;
      if (request.head.starts_with("GET /chunks")) {
        peer.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
      } else {
        peer.Write(Ok(request.body.empty() ? "none" : request.body));
      }
    }
  });
  Peer client = b.Connect();
  for (int i = 0; i < 3; ++i) {
    client.Write("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
    const auto answer = client.ReadMessage();
    EXPECT_EQ(answer.body, "none");
    EXPECT_EQ(answer.Field("connection"), "keep-alive") << answer.head;
  }
  client.Write("POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi");
  EXPECT_EQ(client.ReadMessage().body, "hi");
  // A body whose length is not known beforehand can only end with the connection.
  client.Write("GET /chunks HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const std::string all = client.ReadToEnd();
  EXPECT_TRUE(all.ends_with("connection: close\r\n\r\nabc")) << all;
}

TEST(Streaming, OneLargeChunkArrivesWholeThoughTheOriginClosesAtOnce) {
  constexpr size_t kSize = 2 << 20;
  for (const bool last_chunk : {true, false}) {
    OneOrigin b([&](Peer peer) {
      peer.ReadMessage();
      peer.Write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
      peer.Write(fmt::format("{:x}\r\n{}\r\n", kSize, std::string(kSize, 'e')));
      if (last_chunk) peer.Write("0\r\n\r\n");
    });
    Peer client = b.Connect();
    client.Write(Get("/", b.origin.port()));
    // What is whole leaves the connection open for another request.
    const std::string all = last_chunk ? client.ReadUntil("\r\n0\r\n\r\n") : client.ReadToEnd();
    const auto body = all.begin() + static_cast<ptrdiff_t>(all.find("\r\n\r\n"));
    if (last_chunk) EXPECT_EQ(static_cast<size_t>(std::count(body, all.end(), 'e')), kSize);
    EXPECT_EQ(all.ends_with("\r\n0\r\n\r\n"), last_chunk) << "what was cut is not made whole";
  }
}

}  // namespace
}  // namespace sluice::proxy::testing
