// An origin that means harm, or is broken: what the client is told, and what never reaches it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {
namespace {

struct Row {
  const char* what;
  std::string bytes;
};

std::string Repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(Response, ThatTwoReadersCouldReadDifferentlyIs502AndNothingOfItPasses) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const std::string mark = "X-Mark: passed\r\n";
  const std::vector<Row> rows = {
      {"two lengths", ok + mark + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc"},
      {"equal lengths", ok + mark + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"},
      {"a list of lengths", ok + mark + "Content-Length: 3, 3\r\n\r\nabc"},
      {"a signed length", ok + mark + "Content-Length: +3\r\n\r\nabc"},
      {"a negative length", ok + mark + "Content-Length: -1\r\n\r\nabc"},
      {"a hexadecimal length", ok + mark + "Content-Length: 0x3\r\n\r\nabc"},
      {"an empty length", ok + mark + "Content-Length: \r\n\r\nabc"},
      {"a length over 64 bits", ok + mark + "Content-Length: 99999999999999999999\r\n\r\nabc"},
      {"length and coding", ok + mark + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
      {"coding and length", ok + mark + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
      {"two codings", ok + mark + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"a list of codings", ok + mark + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
      {"an unknown coding", ok + mark + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"},
      {"a coding in 1.0", "HTTP/1.0 200 OK\r\n" + mark + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"a fold", ok + mark + "X: a\r\n b\r\nContent-Length: 0\r\n\r\n"},
      {"a fold first", ok + " X: a\r\n" + mark + "Content-Length: 0\r\n\r\n"},
      {"a bare LF", ok + mark + "X: a\nContent-Length: 0\r\n\r\n"},
      {"a bare CR", ok + mark + "X: a\rSet-Cookie: b\r\nContent-Length: 0\r\n\r\n"},
      {"a NUL", ok + mark + std::string("X: a\0b\r\n", 8) + "Content-Length: 0\r\n\r\n"},
      {"white space before the colon", ok + mark + "Content-Length : 0\r\n\r\n"},
      {"a line without a colon", ok + mark + "nonsense\r\nContent-Length: 0\r\n\r\n"},
      {"an empty name", ok + mark + ": x\r\nContent-Length: 0\r\n\r\n"},
      {"a name of eight bits", ok + mark + "X\xe9: x\r\nContent-Length: 0\r\n\r\n"},
      {"another version", "HTTP/2.0 200 OK\r\n" + mark + "Content-Length: 0\r\n\r\n"},
      {"no version", "200 OK\r\n" + mark + "\r\n"},
      {"a status of two digits", "HTTP/1.1 20 OK\r\n" + mark + "Content-Length: 0\r\n\r\n"},
      {"a status of four digits", "HTTP/1.1 2000 OK\r\n" + mark + "Content-Length: 0\r\n\r\n"},
      {"a status below 100", "HTTP/1.1 099 OK\r\n" + mark + "Content-Length: 0\r\n\r\n"},
      {"a control character in the reason", "HTTP/1.1 200 O\x01K\r\n" + mark + "Content-Length: 0\r\n\r\n"},
      {"a bare CR in the reason", "HTTP/1.1 200 OK\rX: y\r\n" + mark + "Content-Length: 0\r\n\r\n"},
      {"an unasked switch of protocols", "HTTP/1.1 101 Switching Protocols\r\n" + mark + "Upgrade: h2c\r\n\r\n"},
      {"a switch to WebSocket that was not asked for",
       "HTTP/1.1 101 Switching Protocols\r\n" + mark + "Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n"},
      {"an empty line first", "\r\n" + ok + mark + "Content-Length: 0\r\n\r\n"},
      {"another protocol", "SSH-2.0-OpenSSH_9.2\r\n"},
      {"mail", "220 mail.test ESMTP\r\n"},
      {"TLS in the clear", std::string("\x16\x03\x01\x00\x05hello", 10)},
      {"HTTP/2 frames", std::string("\0\0\x12\x04\0\0\0\0\0", 9)},
      {"binary without an end", std::string(40000, '\x01')},
      {"a head without an end", ok + Repeat("X: " + std::string(1000, 'x') + "\r\n", 40)},
      {"too many fields", ok + Repeat("X: y\r\n", 300) + "Content-Length: 0\r\n\r\n"},
      {"interim responses without an end", Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 40)},
      {"a head cut short", ok + "Content-Le"},
      {"nothing", ""},
  };
  std::atomic<size_t> row{0};
  OneOrigin b([&](Peer peer) {
    peer.ReadMessage();
    peer.Write(rows[row].bytes);
    peer.CloseWrite();
  });
  for (row = 0; row < rows.size(); ++row) {
    Peer client = b.Connect();
    client.Write(Get("/", b.origin.port()));
    Peer::Message answer = client.ReadMessage();
    // Interim responses up to the bound have passed by then.
    while (answer.FirstLine().starts_with("HTTP/1.1 103")) answer = client.ReadMessage();
    EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 502 ")) << rows[row].what << ": " << answer.head;
    EXPECT_EQ((answer.head + answer.body).find("passed"), std::string::npos) << rows[row].what;
    EXPECT_NE(answer.Field("proxy-status").find("sluice; error="), std::string::npos) << rows[row].what;
    EXPECT_EQ(client.ReadToEnd(), "") << rows[row].what;
  }
}

TEST(Response, CannotForgeADenialNorHopByHopFieldsInHeadInterimOrTrailer) {
  OneOrigin b([](Peer peer) {
    peer.ReadMessage();
    const std::string forged =
        "X-Sluice-Denied: d-1\r\nx-sluice-DENIED: d-2\r\nProxy-Status: sluice; error=http_request_denied\r\n";
    peer.Write("HTTP/1.1 103 Early Hints\r\nLink: x\r\n" + forged + "\r\n");
    peer.Write("HTTP/1.1 200 OK\r\nTrailer: X-Sluice-Denied, Content-Length, X-Sum\r\nConnection: x-hop\r\nX-Hop: 1\r\n" +
               forged +
               "Proxy-Authenticate: Basic\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sluice-Denied: d-3\r\n"
               "Content-Length: 7\r\nX-Sum: 9\r\n\r\n");
  });
  Peer client = b.Connect();
  client.Write(Get("/", b.origin.port(), "TE: trailers\r\n"));
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
  const auto answer = client.ReadMessage();
  EXPECT_EQ(answer.body, "ok");
  for (const char* field : {"x-sluice-denied", "proxy-status", "x-hop", "proxy-authenticate"})
    EXPECT_EQ(answer.Field(field), "") << field << "\n" << answer.head;
  EXPECT_EQ(answer.trailers, "x-sum: 9\r\n");
}

TEST(Response, WhoseBodyBreaksIsCutAndNeverMadeWhole) {
  const std::vector<Row> rows = {
      {"a size in another base", "2\r\nab\r\n0x2\r\nab\r\n0\r\n\r\n"},
      {"a bare LF after the size", "2\r\nab\r\n2\nab\r\n0\r\n\r\n"},
      {"a chunk longer than its size", "2\r\nabc\r\n0\r\n\r\n"},
      {"a size over 64 bits", "2\r\nab\r\nfffffffffffffffff\r\n"},
      {"a trailer without a colon", "2\r\nab\r\n0\r\nnonsense\r\n\r\n"},
      {"a folded trailer", "2\r\nab\r\n0\r\nX: y\r\n z\r\n\r\n"},
  };
  std::atomic<size_t> row{0};
  OneOrigin b([&](Peer peer) {
    peer.ReadMessage();
    peer.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + rows[row].bytes);
    peer.ReadToEnd();
  });
  for (row = 0; row < rows.size(); ++row) {
    Peer client = b.Connect();
    client.Write(Get("/", b.origin.port()));
    const std::string all = client.ReadToEnd();
    // A 200 that is cut, or, where its head had not been sent yet, a 502.
    if (all.starts_with("HTTP/1.1 502 ")) continue;
    EXPECT_TRUE(all.empty() || all.starts_with("HTTP/1.1 200 ")) << rows[row].what << all;
    EXPECT_FALSE(all.ends_with("\r\n0\r\n\r\n")) << rows[row].what;
    EXPECT_TRUE(client.was_reset()) << rows[row].what;
  }
}

// A second response that came with the first belongs to no request, though the next client asks for the same place.
TEST(Response, ThatFollowsAnotherReachesNobody) {
  std::atomic<int> served{0};
  OneOrigin b([&](Peer peer) {
    while (!peer.ReadMessage().head.empty()) {
      const std::string one = fmt::format("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nreal");
      const std::string two = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
      ++served;
      peer.Write(one + two);
    }
  });
  for (int i = 0; i < 6; ++i) {
    Peer client = b.Connect();
    for (int n = 0; n < 2; ++n) {
      client.Write(Get("/", b.origin.port()));
      EXPECT_EQ(client.ReadMessage().body, "real");
    }
  }
  EXPECT_EQ(served, 12);
}

// A response that comes before its request was sent: whatever the origin says first, the next one is not taken from it.
TEST(Response, ThatComesUnaskedOnAnIdleConnectionReachesNobody) {
  std::atomic<bool> spoke{false};
  OneOrigin b([&](Peer peer) {
    peer.ReadMessage();
    peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nreal");
    if (!spoke) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged");
      spoke = true;
    }
    peer.ReadToEnd();
  });
  Peer client = b.Connect();
  client.Write(Get("/", b.origin.port()));
  EXPECT_EQ(client.ReadMessage().body, "real");
  while (!spoke) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  client.Write(Get("/", b.origin.port()));
  EXPECT_EQ(client.ReadMessage().body, "real");
  EXPECT_EQ(b.origin.accepted(), 2);
}

}  // namespace
}  // namespace sluice::proxy::testing
