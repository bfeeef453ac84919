// WebSockets through the engine: who may have one, what the handshake becomes, how frames pass and how it all ends.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "proxy/io/websocket_key.h"
#include "proxy/websocket.h"
#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {
namespace {

using Opcode = WebSocketOpcode;

const std::string kWs = "ws";

constexpr std::string_view kKey = "dGhlIHNhbXBsZSBub25jZQ==";
constexpr WebSocketMask kMask{7, 0x80, 3, 0xfe};

std::string Handshake(const std::string& path, uint16_t port, const std::string& fields = "") {
  return fmt::format(
      "GET {} HTTP/1.1\r\nHost: a.test:{}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
      "Sec-WebSocket-Key: {}\r\n{}\r\n",
      path, port, kKey, fields);
}

std::string Accepting(const Peer::Message& request, const std::string& fields = "") {
  return fmt::format(
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Accept: {}\r\n{}\r\n",
      WebSocketAccept(request.Field("sec-websocket-key")), fields);
}

std::string Frame(Opcode opcode, std::string_view data, WebSocketSide side, bool fin = true) {
  Buffer out;
  AppendWebSocketFrame(&out, {opcode, fin, false, 0}, data, side == WebSocketSide::kClient ? std::optional(kMask) : std::nullopt);
  return std::string(out.view());
}

std::string Close(uint16_t code, std::string_view reason, WebSocketSide side) {
  Buffer out;
  AppendWebSocketClose(&out, code, reason, side == WebSocketSide::kClient ? std::optional(kMask) : std::nullopt);
  return std::string(out.view());
}

/// Reads frames from a peer, strictly.
class Frames {
 public:
  Frames(Peer& peer, WebSocketSide sender, WebSocketCompression compression = WebSocketCompression::kNone)
      : peer_(peer), reader_(sender, compression) {}
  /// The next frame as "opcode data", "close CODE reason", or "end".
  std::string Next() {
    std::string seen;
    for (;;) {
      const auto step = reader_.Next({bytes_.data() + at_, bytes_.size() - at_});
      if (!step) return fmt::format("fault {}", step.error().code);
      if (step->what == WebSocketReader::What::kNeedMore) {
        const std::string more = peer_.ReadSome();
        if (more.empty()) return "end";
        bytes_.erase(0, at_);
        at_ = 0;
        bytes_ += more;
        continue;
      }
      at_ += step->consumed;
      if (step->what == WebSocketReader::What::kControl && step->frame.opcode == Opcode::kClose)
        return fmt::format("close {} {}", reader_.close_code(),
                           step->data.size() > 2 ? std::string_view(step->data.data() + 2, step->data.size() - 2) : "");
      if (step->what != WebSocketReader::What::kPayload)
        seen = fmt::format("{}{}{} ", static_cast<int>(step->frame.opcode), step->frame.compressed ? "z" : "",
                           step->frame.fin ? "" : "+");
      seen.append(step->data.data(), step->data.size());
      if (step->frame_end || step->what == WebSocketReader::What::kControl) return seen;
    }
  }

 private:
  Peer& peer_;
  WebSocketReader reader_;
  std::string bytes_;
  size_t at_ = 0;
};

/// Accepts, and says every frame back until the client closes.
void EchoFrames(Peer peer) {
  const auto request = peer.ReadMessage();
  if (request.head.empty()) return;
  peer.Write(Accepting(request));
  Frames frames(peer, WebSocketSide::kClient);
  for (;;) {
    const std::string frame = frames.Next();
    if (frame == "end" || frame.starts_with("fault")) return;
    if (frame.starts_with("close")) {
      peer.Write(Close(static_cast<uint16_t>(std::stoi(frame.substr(6))), "echo", WebSocketSide::kServer));
      return;
    }
    const size_t space = frame.find(' ');
    const auto opcode = static_cast<Opcode>(std::stoi(frame));
    peer.Write(Frame(opcode == Opcode::kPing ? Opcode::kPong : opcode, frame.substr(space + 1), WebSocketSide::kServer,
                     frame[space - 1] != '+'));
  }
}

TEST(WebSocketExchange, IsJudgedAndRelayedFrameByFrame) {
  OneOrigin b(EchoFrames, kWs);
  Peer client = b.Connect();
  // The first frame comes with the handshake, before it was answered.
  client.Write(Handshake("/chat", b.origin.port()) + Frame(Opcode::kText, "early", WebSocketSide::kClient));
  const auto answer = client.ReadMessage(Peer::Body::kNone);
  EXPECT_EQ(answer.FirstLine(), "HTTP/1.1 101 Switching Protocols");
  EXPECT_EQ(answer.Field("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") << "answers the client's own key";
  Frames frames(client, WebSocketSide::kServer);
  EXPECT_EQ(frames.Next(), "1 early");
  client.Write(Frame(Opcode::kBinary, "a", WebSocketSide::kClient, false) + Frame(Opcode::kPing, "p", WebSocketSide::kClient) +
               Frame(Opcode::kContinuation, "b", WebSocketSide::kClient));
  EXPECT_EQ(frames.Next(), "2+ a");
  EXPECT_EQ(frames.Next(), "10 p");
  EXPECT_EQ(frames.Next(), "0 b");
  const std::string large(3 << 20, 'L');
  std::thread writer([&] { client.Write(Frame(Opcode::kBinary, large, WebSocketSide::kClient)); });
  writer.join();
  EXPECT_TRUE(frames.Next() == "2 " + large);
  client.Write(Close(4001, "done", WebSocketSide::kClient));
  EXPECT_EQ(frames.Next(), "close 4001 echo");
  EXPECT_EQ(client.ReadToEnd(), "");

  const auto exchange = b.bed.sink().exchanges(1)[0];
  EXPECT_EQ(exchange.status, 101);
  EXPECT_EQ(exchange.close_code, 4001);
  EXPECT_EQ(exchange.error, "");
  EXPECT_EQ(exchange.bytes_up, large.size() + 7);
  EXPECT_EQ(exchange.bytes_down, large.size() + 7);
  const auto decision = b.bed.sink().decisions().back();
  EXPECT_TRUE(decision.decision.allowed);
  EXPECT_EQ(decision.target.path, "/chat");
}

TEST(WebSocketExchange, IsGrantedByWsAlone) {
  for (const std::string verb : {"http", "GET"}) {
    OneOrigin b(EchoFrames, verb);
    Peer client = b.Connect();
    client.Write(Handshake("/chat", b.origin.port()));
    const auto answer = client.ReadMessage();
    EXPECT_TRUE(answer.FirstLine().starts_with("HTTP/1.1 403 Egress denied: needs \"ws ")) << verb << ": " << answer.head;
    EXPECT_EQ(b.origin.accepted(), 0);
    // The connection stays, as after any denial.
    client.Write(Handshake("/chat", b.origin.port()));
    EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 "));
  }
  OneOrigin b(Echo, kWs);
  Peer client = b.Connect();
  client.Write(Get("/chat", b.origin.port()));
  EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 403 ")) << "and ws grants nothing else";
  EXPECT_EQ(b.origin.accepted(), 0);
}

TEST(WebSocketExchange, AsksTheUpstreamInItsOwnWords) {
  std::string seen;
  OneOrigin b(
      [&](Peer peer) {
        const auto request = peer.ReadMessage();
        seen = request.head;
        peer.Write(Accepting(request, "Sec-WebSocket-Protocol: v2\r\nSec-WebSocket-Extensions: permessage-deflate\r\n"));
        Frames frames(peer, WebSocketSide::kClient, WebSocketCompression::kDeflate);
        while (frames.Next() != "end") {
        }
      },
      kWs);
  Peer client = b.Connect();
  client.Write(Handshake("//a/../chat", b.origin.port(),
                         "Sec-WebSocket-Protocol: v1, v2\r\nSec-WebSocket-Extensions: x-own, permessage-deflate\r\n"
                         "Proxy-Connection: x\r\nOrigin: https://a.test\r\n"));
  const auto answer = client.ReadMessage(Peer::Body::kNone);
  EXPECT_EQ(answer.Field("sec-websocket-protocol"), "v2");
  EXPECT_EQ(answer.Field("sec-websocket-extensions"), "permessage-deflate");
  EXPECT_TRUE(seen.starts_with("GET /chat HTTP/1.1\r\n")) << seen;
  EXPECT_EQ(seen.find(kKey), std::string::npos) << "with a key of our own";
  EXPECT_EQ(seen.find("x-own"), std::string::npos);
  EXPECT_EQ(seen.find("roxy-"), std::string::npos);
  EXPECT_NE(seen.find("origin: https://a.test\r\n"), std::string::npos);
}

TEST(WebSocketExchange, RefusesHandshakesThatAreNotWellFormed) {
  OneOrigin b(EchoFrames, kWs);
  const std::string host = fmt::format("Host: a.test:{}\r\n", b.origin.port());
  const std::string upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\n";
  const std::string key = fmt::format("Sec-WebSocket-Key: {}\r\n", kKey);
  const std::string version = "Sec-WebSocket-Version: 13\r\n";
  const struct {
    const char* what;
    std::string request;
    std::string status;
  } rows[] = {
      {"no key", "GET /x HTTP/1.1\r\n" + host + upgrade + version + "\r\n", "400"},
      {"a short key", "GET /x HTTP/1.1\r\n" + host + upgrade + version + "Sec-WebSocket-Key: abc\r\n\r\n", "400"},
      {"no version", "GET /x HTTP/1.1\r\n" + host + upgrade + key + "\r\n", "400"},
      {"an old version", "GET /x HTTP/1.1\r\n" + host + upgrade + key + "Sec-WebSocket-Version: 8\r\n\r\n", "426"},
      {"a POST", "POST /x HTTP/1.1\r\n" + host + upgrade + key + version + "Content-Length: 0\r\n\r\n", "400"},
      {"HTTP/1.0", "GET /x HTTP/1.0\r\n" + host + upgrade + key + version + "\r\n", "400"},
      {"a body", "GET /x HTTP/1.1\r\n" + host + upgrade + key + version + "Content-Length: 3\r\n\r\nabc", "400"},
      {"no Connection", "GET /x HTTP/1.1\r\n" + host + "Upgrade: websocket\r\n" + key + version + "\r\n", "403"},
      {"another protocol", "GET /x HTTP/1.1\r\n" + host + "Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n", "403"},
  };
  for (const auto& row : rows) {
    Peer client = b.Connect();
    client.Write(row.request);
    const auto answer = client.ReadMessage();
    EXPECT_EQ(answer.FirstLine().substr(9, 3), row.status) << row.what << ": " << answer.head;
    if (row.status == "426") EXPECT_EQ(answer.Field("sec-websocket-version"), "13");
  }
  EXPECT_EQ(b.origin.accepted(), 0);
}

TEST(WebSocketExchange, TakesNoAnswerThatIsNotToItsHandshake) {
  const auto accepting = [](const std::string& from, const std::string& to) {
    return [from, to](const Peer::Message& request) {
      std::string text = Accepting(request);
      text.replace(text.find(from), from.size(), to);
      return text;
    };
  };
  const std::vector<std::function<std::string(const Peer::Message&)>> answers = {
      accepting("Sec-WebSocket-Accept: ", "Sec-WebSocket-Accept: x"),
      accepting("Upgrade: websocket", "Upgrade: h2c"),
      accepting("Connection: Upgrade\r\n", ""),
      [](const auto& request) { return Accepting(request, "Sec-WebSocket-Protocol: other\r\n"); },
      [](const auto& request) { return Accepting(request, "Sec-WebSocket-Extensions: permessage-deflate\r\n"); },
      [](const auto& request) { return Accepting(request, "Content-Length: 5\r\n"); },
      // The accept value of the client's key, whoever may have told the upstream.
      [](const auto&) {
        return std::string(
            "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n");
      },
  };
  std::atomic<size_t> row{0};
  OneOrigin b(
      [&](Peer peer) {
        peer.Write(answers[row](peer.ReadMessage()));
        peer.ReadToEnd();
      },
      kWs);
  for (row = 0; row < answers.size(); ++row) {
    Peer client = b.Connect();
    client.Write(Handshake("/chat", b.origin.port()));
    EXPECT_TRUE(client.ReadMessage().FirstLine().starts_with("HTTP/1.1 502 ")) << row;
  }
}

TEST(WebSocketExchange, AnswersOtherThan101ArePassedAsTheyAre) {
  OneOrigin b(
      [](Peer peer) {
        peer.ReadMessage();
        peer.Write("HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nno");
        EchoFrames(std::move(peer));
      },
      kWs);
  Peer client = b.Connect();
  client.Write(Handshake("/chat", b.origin.port()));
  const auto refused = client.ReadMessage();
  EXPECT_EQ(refused.FirstLine(), "HTTP/1.1 401 Unauthorized");
  EXPECT_EQ(refused.body, "no");
  EXPECT_EQ(refused.Field("upgrade"), "");
  client.Write(Handshake("/chat", b.origin.port()));
  EXPECT_EQ(client.ReadMessage(Peer::Body::kNone).FirstLine(), "HTTP/1.1 101 Switching Protocols");
}

TEST(WebSocketExchange, WhatBreaksTheProtocolClosesBothSides) {
  const struct {
    std::string what;
    std::string bytes;
    std::string at_origin;
    std::string at_client;
  } rows[] = {
      {"an unmasked frame", Frame(Opcode::kText, "x", WebSocketSide::kServer), "close 1002", "close 1002"},
      {"a continuation of nothing", Frame(Opcode::kContinuation, "x", WebSocketSide::kClient), "close 1002", "close 1002"},
      {"a reserved bit",
       "\xc1\x80"
       "abcd",
       "close 1002", "close 1002"},
      {"a message that is too large", std::string("\x82\xff\0\0\0\1\0\0\0\0abcd", 14), "close 1009", "close 1009"},
      // Part of the frame has gone up already: nothing can follow it there.
      {"text that is not UTF-8", Frame(Opcode::kText, "x\xff", WebSocketSide::kClient), "end", "close 1007"},
  };
  std::string at_origin;
  OneOrigin b(
      [&](Peer peer) {
        peer.Write(Accepting(peer.ReadMessage()));
        Frames frames(peer, WebSocketSide::kClient);
        at_origin = frames.Next();
      },
      kWs);
  size_t count = 0;
  for (const auto& row : rows) {
    Peer client = b.Connect();
    client.Write(Handshake("/chat", b.origin.port()) + row.bytes);
    EXPECT_EQ(client.ReadMessage(Peer::Body::kNone).FirstLine(), "HTTP/1.1 101 Switching Protocols") << row.what;
    EXPECT_EQ(Frames(client, WebSocketSide::kServer).Next().substr(0, row.at_client.size()), row.at_client) << row.what;
    EXPECT_EQ(client.ReadToEnd(), "");
    const auto exchange = b.bed.sink().exchanges(++count)[count - 1];
    EXPECT_NE(exchange.error, "") << row.what;
    EXPECT_EQ(std::to_string(exchange.close_code), row.at_client.substr(6)) << row.what;
  }
}

TEST(WebSocketExchange, AServerThatBreaksTheProtocolIsCutOffToo) {
  OneOrigin b(
      [](Peer peer) {
        peer.Write(Accepting(peer.ReadMessage()) + Frame(Opcode::kText, "fine", WebSocketSide::kServer) +
                   Frame(Opcode::kText, "masked", WebSocketSide::kClient));
        EXPECT_EQ(Frames(peer, WebSocketSide::kClient).Next().substr(0, 10), "close 1002");
      },
      kWs);
  Peer client = b.Connect();
  client.Write(Handshake("/chat", b.origin.port()));
  client.ReadMessage(Peer::Body::kNone);
  Frames frames(client, WebSocketSide::kServer);
  EXPECT_EQ(frames.Next(), "1 fine");
  EXPECT_EQ(frames.Next().substr(0, 10), "close 1002");
}

TEST(WebSocketExchange, AChangeOfPolicyClosesItWithAReason) {
  std::string at_origin;
  std::atomic<bool> told{false};
  OneOrigin b(
      [&](Peer peer) {
        peer.Write(Accepting(peer.ReadMessage()));
        at_origin = Frames(peer, WebSocketSide::kClient).Next();
        told = true;
      },
      kWs);
  Peer client = b.Connect();
  client.Write(Handshake("/chat", b.origin.port()));
  client.ReadMessage(Peer::Body::kNone);
  // One that stays allowed is not touched.
  b.bed.SetPolicy(LoopbackRule(fmt::format("{} a.test:{}/chat", kWs, b.origin.port())));
  client.Write(Frame(Opcode::kPing, "", WebSocketSide::kClient));
  while (!told) std::this_thread::yield();
  EXPECT_EQ(at_origin, "9 ");

  OneOrigin c(
      [&](Peer peer) {
        told = false;
        peer.Write(Accepting(peer.ReadMessage()));
        at_origin = Frames(peer, WebSocketSide::kClient).Next();
        told = true;
      },
      kWs);
  Peer other = c.Connect();
  other.Write(Handshake("/chat", c.origin.port()));
  other.ReadMessage(Peer::Body::kNone);
  c.bed.SetPolicy(LoopbackRule(fmt::format("GET a.test:{}/**", c.origin.port())));
  EXPECT_EQ(Frames(other, WebSocketSide::kServer).Next(), "close 1008 no longer allowed by the egress policy");
  EXPECT_EQ(other.ReadToEnd(), "");
  while (!told) std::this_thread::yield();
  EXPECT_EQ(at_origin, "close 1008 no longer allowed by the egress policy");
  const auto exchange = c.bed.sink().exchanges(1)[0];
  EXPECT_EQ(exchange.error, "closed by a change of policy");
  EXPECT_EQ(exchange.close_code, 1008);
}

TEST(WebSocketExchange, EndsWhenItIsIdleOrACloseIsNotAnswered) {
  EngineOptions options;
  options.deadlines.websocket_idle = std::chrono::milliseconds(300);
  options.deadlines.websocket_close = std::chrono::milliseconds(300);
  Origin origin(nullptr, [](Peer peer) {
    peer.Write(Accepting(peer.ReadMessage()));
    peer.ReadToEnd();
  });
  Testbed bed(LoopbackRule(fmt::format("{} http://a.test:{}/**", kWs, origin.port())), options);
  for (const bool closes : {false, true}) {
    Peer client = bed.Connect("a.test", origin.port(), Speak::kPlain);
    client.Write(Handshake("/chat", origin.port()));
    client.ReadMessage(Peer::Body::kNone);
    if (closes) client.Write(Close(1000, "", WebSocketSide::kClient));
    EXPECT_EQ(Frames(client, WebSocketSide::kServer).Next(), closes ? "end" : "close 1001 idle for too long");
  }
  const auto exchanges = bed.sink().exchanges(2);
  EXPECT_EQ(exchanges[0].error, "idle for too long");
  EXPECT_EQ(exchanges[1].error, "no answer to a close frame");
  EXPECT_EQ(exchanges[1].close_code, 1000);
}

TEST(WebSocketExchange, PassesOnThatAPeerIsGone) {
  std::atomic<bool> gone{false};
  OneOrigin b(
      [&](Peer peer) {
        peer.Write(Accepting(peer.ReadMessage()) + Frame(Opcode::kText, "last words", WebSocketSide::kServer));
        if (!gone) return;
        EXPECT_EQ(Frames(peer, WebSocketSide::kClient).Next(), "end");
      },
      kWs);
  {
    Peer client = b.Connect();
    client.Write(Handshake("/chat", b.origin.port()));
    client.ReadMessage(Peer::Body::kNone);
    Frames frames(client, WebSocketSide::kServer);
    EXPECT_EQ(frames.Next(), "1 last words");
    EXPECT_EQ(frames.Next(), "end");
  }
  gone = true;
  Peer client = b.Connect();
  client.Write(Handshake("/chat", b.origin.port()));
  client.ReadMessage(Peer::Body::kNone);
  client.Close();
  const auto exchanges = b.bed.sink().exchanges(2);
  for (const auto& exchange : exchanges) EXPECT_EQ(exchange.close_code, 1006);
}

}  // namespace
}  // namespace sluice::proxy::testing
