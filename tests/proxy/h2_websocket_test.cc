// WebSockets wherever HTTP/2 is spoken (RFC 8441), through the engine: by the client, by the upstream, or by both.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "proxy/io/websocket_key.h"
#include "proxy/websocket.h"
#include "tests/proxy/h2_peer.h"

namespace sluice::proxy::testing {
namespace {

using ::testing::HasSubstr;
using Opcode = WebSocketOpcode;
using std::chrono::milliseconds;

constexpr WebSocketMask kMask{7, 0x80, 3, 0xfe};

std::optional<WebSocketMask> MaskOf(WebSocketSide side) {
  return side == WebSocketSide::kClient ? std::optional(kMask) : std::nullopt;
}

std::string Frame(Opcode opcode, std::string_view data, WebSocketSide side) {
  Buffer out;
  AppendWebSocketFrame(&out, {opcode, true, false, 0}, data, MaskOf(side));
  return std::string(out.view());
}

std::string Close(uint16_t code, std::string_view reason, WebSocketSide side) {
  Buffer out;
  AppendWebSocketClose(&out, code, reason, MaskOf(side));
  return std::string(out.view());
}

/// Frames of one side, read strictly from bytes as they come.
class FrameTexts {
 public:
  explicit FrameTexts(WebSocketSide sender) : reader_(sender, WebSocketCompression::kNone) {}
  void Feed(std::string_view bytes) { bytes_ += bytes; }
  /// "opcode data" or "close CODE reason"; empty: more is needed.
  std::string Next() {
    for (;;) {
      const auto step = reader_.Next({bytes_.data() + at_, bytes_.size() - at_});
      if (!step) return fmt::format("fault {}", step.error().code);
      if (step->what == WebSocketReader::What::kNeedMore) {
        bytes_.erase(0, at_);
        at_ = 0;
        return "";
      }
      at_ += step->consumed;
      if (step->what == WebSocketReader::What::kControl && step->frame.opcode == Opcode::kClose)
        return fmt::format("close {} {}", reader_.close_code(),
                           step->data.size() > 2 ? std::string_view(step->data.data() + 2, step->data.size() - 2) : "");
      if (step->what != WebSocketReader::What::kPayload) seen_ = fmt::format("{} ", static_cast<int>(step->frame.opcode));
      seen_.append(step->data.data(), step->data.size());
      if (step->frame_end || step->what == WebSocketReader::What::kControl) return std::exchange(seen_, {});
    }
  }

 private:
  WebSocketReader reader_;
  std::string bytes_;
  std::string seen_;
  size_t at_ = 0;
};

/// Who speaks HTTP/2, by ALPN.
struct Versions {
  std::string client;
  std::string upstream;
};
const Versions kAll[] = {{"h2", ""}, {"h2", "h2"}, {"http/1.1", "h2"}};

/// An origin that says every frame back and keeps what it was sent.
class WsBed {
 public:
  /// `more`: lines behind the rule, with credentials of `secrets`.
  explicit WsBed(const Versions& versions, const std::string& verb = "ws", const std::string& more = "",
                 std::shared_ptr<SecretStore> secrets = nullptr)
      : versions_(versions),
        origin(SharedAuthority().ServerContext("DNS:a.test", versions.upstream), [this](Peer peer) { Serve(std::move(peer)); }),
        bed(Rule(verb) + more, OptionsWith(std::move(secrets))) {
    bed.OfferAlpn({versions.client});
  }
  [[nodiscard]] std::string Rule(const std::string& verb) const {
    return LoopbackRule(fmt::format("{} a.test:{}/**", verb, origin.port()));
  }
  [[nodiscard]] const Versions& versions() const { return versions_; }
  std::vector<std::string> seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  std::string asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  /// How the origin's WebSocket ended, once it has.
  std::string last() {
    for (int i = 0; i < 500 && (seen().empty() || (!seen().back().starts_with("close") && seen().back() != "end")); ++i)
      std::this_thread::sleep_for(milliseconds(10));
    return seen().empty() ? "" : seen().back();
  }

 private:
  void Keep(const std::string& frame) {
    const std::lock_guard lock(mutex_);
    seen_.push_back(frame);
  }
  void Ask(const std::string& asked) {
    const std::lock_guard lock(mutex_);
    asked_ = asked;
  }
  /// What is answered to `bytes`; sets `*over` once a close frame came.
  std::string Answer(FrameTexts& frames, std::string_view bytes, bool* over) {
    frames.Feed(bytes);
    std::string out;
    for (std::string frame = frames.Next(); !frame.empty(); frame = frames.Next()) {
      Keep(frame.substr(0, 100));
      if (frame.starts_with("fault")) *over = true;
      if (frame.starts_with("close")) {
        *over = true;
        out += Close(static_cast<uint16_t>(std::stoi(frame.substr(6))), "echo", WebSocketSide::kServer);
      }
      if (*over) break;
      const auto opcode = static_cast<Opcode>(std::stoi(frame));
      out += Frame(opcode == Opcode::kPing ? Opcode::kPong : opcode, frame.substr(frame.find(' ') + 1), WebSocketSide::kServer);
    }
    return out;
  }
  void ServeHttp11(Peer peer) {
    const auto request = peer.ReadMessage();
    if (request.head.empty()) return;
    Ask(request.head);
    if (request.head.find("/plain ") != std::string::npos) {
      peer.Write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno");
      return;
    }
    if (request.head.find("/none ") != std::string::npos) {
      peer.Write("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno");
      return;
    }
    peer.Write(
        fmt::format("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    "Sec-WebSocket-Accept: {}\r\nX-Origin: yes\r\n{}\r\n",
                    WebSocketAccept(request.Field("sec-websocket-key")),
                    request.head.find("protocol: v1") != std::string::npos ? "Sec-WebSocket-Protocol: v2\r\n" : ""));
    FrameTexts frames(WebSocketSide::kClient);
    bool over = false;
    while (!over) {
      const std::string bytes = peer.ReadSome();
      if (bytes.empty()) {
        Keep("end");
        return;
      }
      peer.Write(Answer(frames, bytes, &over));
    }
  }
  void ServeH2(Peer peer) {
    H2Talker talker(std::move(peer), H2Role::kServer);
    std::map<int32_t, FrameTexts> open;
    std::set<int32_t> done;
    while (talker.Turn()) {
      for (auto& [id, message] : talker.messages) {
        if (done.count(id) != 0) continue;
        const bool first = open.emplace(id, FrameTexts(WebSocketSide::kClient)).second;
        bool over = false;
        if (first) over = !Open(talker, id, message);
        const std::string answer = over ? "" : Answer(open.at(id), std::exchange(message.body, {}), &over);
        if (!answer.empty() || over) talker.Say(id, answer, over);
        if (!over && (message.ended || message.closed)) {
          Keep("end");
          over = true;
        }
        if (over) done.insert(id);
      }
      talker.Send();
    }
  }
  bool Open(H2Talker& talker, int32_t id, const H2Message& message) {
    std::string asked;
    for (const auto& [name, value] : message.head) asked += name + ": " + value + "\r\n";
    Ask(asked);
    const bool none = message.Field(":path") == "/none" || message.Field(":protocol") != "websocket";
    H2Output head;
    head.Reset(0);
    head.Add(":status", none ? "404" : "200");
    head.Add("x-origin", "yes");
    if (message.Field("sec-websocket-protocol") == "v1, v2") head.Add("sec-websocket-protocol", "v2");
    talker.session.Respond(id, head, H2End::kOpen);
    return !none;
  }
  static EngineOptions OptionsWith(std::shared_ptr<SecretStore> secrets) {
    EngineOptions options;
    options.secrets = std::move(secrets);
    return options;
  }
  void Serve(Peer peer) {
    if (peer.alpn() == "h2") {
      ServeH2(std::move(peer));
    } else {
      ServeHttp11(std::move(peer));
    }
  }
  const Versions versions_;
  std::mutex mutex_;
  std::vector<std::string> seen_;
  std::string asked_;

 public:
  Origin origin;
  Testbed bed;
};

/// One connection of a client, and one WebSocket on it.
class WsClient {
 public:
  explicit WsClient(WsBed& bed) : authority_(fmt::format("a.test:{}", bed.origin.port())) {
    Peer peer = bed.bed.Connect("a.test", bed.origin.port());
    if (bed.versions().client == "h2") {
      h2_.emplace(std::move(peer));
    } else {
      peer_ = std::move(peer);
    }
  }
  /// The answer's status; 101 reads 200.
  std::string Open(const std::string& path, const FieldList& more = {}) {
    FieldList fields = {{"sec-websocket-version", "13"}};
    fields.insert(fields.end(), more.begin(), more.end());
    if (h2_) {
      FieldList head = {
          {":method", "CONNECT"}, {":protocol", "websocket"}, {":scheme", "https"}, {":authority", authority_}, {":path", path}};
      head.insert(head.end(), fields.begin(), fields.end());
      return Ask(head, H2Client::Body::kOpen);
    }
    std::string text = fmt::format(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: "
        "dGhlIHNhbXBsZSBub25jZQ==\r\n",
        path, authority_);
    for (const auto& [name, value] : fields) text += fmt::format("{}: {}\r\n", name, value);
    peer_.Write(text + "\r\n");
    answer_ = peer_.ReadMessage(Peer::Body::kNone);
    const std::string status = answer_.FirstLine().substr(9, 3);
    return status == "101" ? "200" : status;
  }
  /// Of HTTP/2: whatever it is.
  std::string Ask(const FieldList& head, H2Client::Body body) {
    id_ = h2_->Start(head, body);
    h2_->Until([&] { return !h2_->messages[id_].head.empty() || h2_->messages[id_].closed; });
    return h2_->messages[id_].status();
  }
  [[nodiscard]] std::string Field(const std::string& name) { return h2_ ? h2_->messages[id_].Field(name) : answer_.Field(name); }
  void Send(std::string_view bytes) {
    if (h2_) {
      h2_->Say(id_, bytes);
    } else {
      peer_.Write(bytes);
    }
  }
  std::string Next() {
    for (;;) {
      if (const std::string frame = frames_.Next(); !frame.empty()) return frame;
      std::string more;
      if (h2_) {
        H2Message& message = h2_->messages[id_];
        h2_->Until([&] { return !message.body.empty() || message.ended || message.closed; });
        more = std::exchange(message.body, {});
      } else {
        more = peer_.ReadSome();
      }
      if (more.empty()) return "end";
      frames_.Feed(more);
    }
  }
  H2Client& h2() { return *h2_; }
  [[nodiscard]] int32_t id() const { return id_; }
  void Leave() {
    if (h2_) h2_->session.Reset(id_, kH2Cancel);
    if (h2_) h2_->Send();
    if (!h2_) peer_.Reset();
  }

 private:
  const std::string authority_;
  std::optional<H2Client> h2_;
  int32_t id_ = 0;
  Peer peer_;
  Peer::Message answer_;
  FrameTexts frames_{WebSocketSide::kServer};
};

template <class Check>
void WithEach(Check check) {
  for (const Versions& versions : kAll) {
    SCOPED_TRACE(
        fmt::format("client {} upstream {}", versions.client, versions.upstream.empty() ? "http/1.1" : versions.upstream));
    WsBed b(versions);
    check(b);
  }
}

TEST(H2WebSocket, IsJudgedAndRelayedFrameByFrame) {
  WithEach([](WsBed& b) {
    WsClient client(b);
    ASSERT_EQ(client.Open("//a/../chat", {{"sec-websocket-protocol", "v1, v2"}, {"origin", "https://a.test"}}), "200");
    EXPECT_EQ(client.Field("sec-websocket-protocol"), "v2");
    EXPECT_EQ(client.Field("x-origin"), "yes");
    EXPECT_THAT(b.asked(), HasSubstr(b.versions().upstream == "h2" ? ":path: /chat\r\n" : "GET /chat HTTP/1.1\r\n"));
    EXPECT_THAT(b.asked(), HasSubstr("origin: https://a.test\r\n"));
    client.Send(Frame(Opcode::kText, "hello", WebSocketSide::kClient) + Frame(Opcode::kPing, "p", WebSocketSide::kClient));
    EXPECT_EQ(client.Next(), "1 hello");
    EXPECT_EQ(client.Next(), "10 p");
    const std::string large(3 << 20, 'L');
    std::thread writer;
    if (b.versions().client == "h2") {
      client.Send(Frame(Opcode::kBinary, large, WebSocketSide::kClient));
    } else {
      writer = std::thread([&] { client.Send(Frame(Opcode::kBinary, large, WebSocketSide::kClient)); });
    }
    EXPECT_TRUE(client.Next() == "2 " + large);
    if (writer.joinable()) writer.join();
    client.Send(Close(4001, "done", WebSocketSide::kClient));
    EXPECT_EQ(client.Next(), "close 4001 echo");
    EXPECT_EQ(client.Next(), "end");
    const auto exchange = b.bed.sink().exchanges(1)[0];
    EXPECT_EQ(exchange.status, b.versions().client == "h2" ? 200 : 101);
    EXPECT_EQ(exchange.close_code, 4001);
    EXPECT_EQ(exchange.error, "");
    EXPECT_EQ(exchange.bytes_up, large.size() + 5);
    EXPECT_EQ(exchange.bytes_down, large.size() + 5);
    EXPECT_EQ(exchange.target.method, "GET");
  });
}

TEST(H2WebSocket, IsOfferedAndGrantedByWsAlone) {
  for (const std::string verb : {"http", "GET"}) {
    WsBed b({"h2", "h2"}, verb);
    WsClient client(b);
    EXPECT_EQ(client.Open("/chat"), "403") << verb;
    EXPECT_TRUE(client.h2().session.PeerTakesConnect());
    EXPECT_EQ(b.asked(), "");
  }
  WsBed b({"h2", "h2"});
  WsClient client(b);
  EXPECT_EQ(client.Ask(GetFields(fmt::format("a.test:{}", b.origin.port()), "/chat"), H2Client::Body::kNone), "403");
  EXPECT_EQ(b.asked(), "");
  // Its neighbours on the connection live on.
  EXPECT_EQ(client.Open("/chat"), "200");
}

TEST(H2WebSocket, HandshakesThatAreNotWellFormedAreRefused) {
  WsBed b({"h2", "h2"});
  const std::string authority = fmt::format("a.test:{}", b.origin.port());
  const auto connect = [&](const std::string& protocol, const FieldList& more) {
    FieldList head = {
        {":method", "CONNECT"}, {":protocol", protocol}, {":scheme", "https"}, {":authority", authority}, {":path", "/"}};
    head.insert(head.end(), more.begin(), more.end());
    return head;
  };
  const std::pair<std::string, std::string> version = {"sec-websocket-version", "13"};
  const struct {
    const char* what;
    FieldList head;
    H2Client::Body body;
    std::string status;
  } rows[] = {
      {"no version", connect("websocket", {}), H2Client::Body::kOpen, "400"},
      {"an old version", connect("websocket", {{"sec-websocket-version", "8"}}), H2Client::Body::kOpen, "426"},
      {"a key", connect("websocket", {version, {"sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="}}), H2Client::Body::kOpen, "400"},
      {"another protocol", connect("connect-udp", {version}), H2Client::Body::kOpen, "501"},
      {"an ended stream", connect("websocket", {version}), H2Client::Body::kNone, "400"},
  };
  for (const auto& row : rows) {
    WsClient client(b);
    EXPECT_EQ(client.Ask(row.head, row.body), row.status) << row.what;
  }
  EXPECT_EQ(b.asked(), "");
}

TEST(H2WebSocket, AnAnswerThatOpensNoneIsNoneToTheClient) {
  WithEach([](WsBed& b) {
    WsClient client(b);
    EXPECT_EQ(client.Open("/none"), "404");
  });
  // 200 is how HTTP/2 says that it is open; from HTTP/1.1 it says that it is not.
  WsBed b({"h2", ""});
  WsClient client(b);
  EXPECT_EQ(client.Open("/plain"), "502");
}

TEST(H2WebSocket, WhatBreaksTheProtocolClosesBothSides) {
  const struct {
    std::string what;
    std::string bytes;
    std::string code;
  } rows[] = {
      {"an unmasked frame", Frame(Opcode::kText, "x", WebSocketSide::kServer), "1002"},
      {"a message that is too large", std::string("\x82\xff\0\0\0\1\0\0\0\0abcd", 14), "1009"},
      {"text that is not UTF-8", Frame(Opcode::kText, "x\xff", WebSocketSide::kClient), "1007"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    WithEach([&](WsBed& b) {
      WsClient client(b);
      ASSERT_EQ(client.Open("/chat"), "200");
      client.Send(row.bytes);
      EXPECT_THAT(client.Next(), ::testing::StartsWith("close " + row.code));
      EXPECT_EQ(client.Next(), "end");
      EXPECT_THAT(b.last(), row.code == "1007" ? ::testing::StartsWith("end") : ::testing::StartsWith("close " + row.code));
      EXPECT_EQ(std::to_string(b.bed.sink().exchanges(1)[0].close_code), row.code);
    });
  }
}

constexpr const char* kSecret = "sk-the-real-one-of-the-supervisor-0123456789";

/// A WebSocket whose rule names the placeholder, or one whose rule names none while another rule's does.
struct StandInBed {
  StandInBed(const Versions& versions, bool named)
      : secrets(SecretsOf(std::string("  - allow: GET a.test\n") + kCredentials, {{"SLUICE_TEST_WS", kSecret}})),
        bed(versions, "ws", (named ? "    with: model\n" : "") + std::string(kCredentials), secrets) {}
  static constexpr const char* kCredentials =
      "credentials:\n  model: { from: env SLUICE_TEST_WS, send: placeholder MODEL_KEY, to: ['a.test:1-65535'] }\n";
  [[nodiscard]] std::string stand_in() const { return secrets->stand_ins().at(0).text; }
  std::shared_ptr<SecretStore> secrets;
  WsBed bed;
};

const Versions kEach[] = {{"h2", ""}, {"h2", "h2"}, {"http/1.1", "h2"}, {"http/1.1", ""}};

TEST(H2WebSocket, AStandInInTextIsReplacedWhereTheRuleNamesIt) {
  for (const Versions& versions : kEach) {
    SCOPED_TRACE(versions.client + " " + versions.upstream);
    StandInBed b(versions, true);
    WsClient client(b.bed);
    ASSERT_EQ(client.Open("/chat", {{"sec-websocket-extensions", "permessage-deflate"}}), "200");
    EXPECT_EQ(b.bed.asked().find("permessage-deflate"), std::string::npos);
    const std::string text = "{\"key\": \"" + b.stand_in() + "\"}";
    client.Send(Frame(Opcode::kText, text, WebSocketSide::kClient));
    EXPECT_EQ(client.Next(), "1 {\"key\": \"" + std::string(kSecret) + "\"}");
  }
}

TEST(H2WebSocket, AStandInWhoseRuleNamesNoneEndsItAndIsRecorded) {
  for (const Versions& versions : kEach) {
    for (const Opcode opcode : {Opcode::kText, Opcode::kBinary}) {
      SCOPED_TRACE(versions.client + " " + versions.upstream);
      StandInBed b(versions, false);
      WsClient client(b.bed);
      ASSERT_EQ(client.Open("/chat", {{"sec-websocket-extensions", "permessage-deflate"}}), "200");
      EXPECT_EQ(b.bed.asked().find("permessage-deflate"), std::string::npos);
      client.Send(Frame(opcode, "harmless", WebSocketSide::kClient));
      EXPECT_EQ(client.Next(), fmt::format("{} harmless", static_cast<int>(opcode)));
      client.Send(Frame(opcode, "to you: " + b.stand_in(), WebSocketSide::kClient));
      EXPECT_THAT(client.Next(), HasSubstr("close 1008 "));
      const auto exchange = b.bed.bed.sink().exchanges(1)[0];
      EXPECT_EQ(exchange.close_code, 1008);
      EXPECT_THAT(exchange.error, HasSubstr("stand-in"));
      const auto decisions = b.bed.bed.sink().decisions();
      ASSERT_FALSE(decisions.empty());
      EXPECT_FALSE(decisions.back().decision.allowed);
      EXPECT_THAT(decisions.back().detail, HasSubstr("credential model"));
      for (const std::string& seen : b.bed.seen()) EXPECT_EQ(seen.find(b.stand_in()), std::string::npos);
    }
  }
}

TEST(H2WebSocket, AChangeOfPolicyClosesItWithAReason) {
  WithEach([](WsBed& b) {
    WsClient client(b);
    ASSERT_EQ(client.Open("/chat"), "200");
    client.Send(Frame(Opcode::kText, "hello", WebSocketSide::kClient));
    EXPECT_EQ(client.Next(), "1 hello");
    const auto before = std::chrono::steady_clock::now();
    b.bed.SetPolicy(LoopbackRule(fmt::format("ws a.test:{}/other", b.origin.port())));
    EXPECT_EQ(client.Next(), "close 1008 no longer allowed by the egress policy");
    EXPECT_LT(std::chrono::steady_clock::now() - before, milliseconds(1000));
    EXPECT_EQ(b.last(), "close 1008 no longer allowed by the egress policy");
    const auto exchange = b.bed.sink().exchanges(1)[0];
    EXPECT_EQ(exchange.error, "closed by a change of policy");
    EXPECT_EQ(exchange.close_code, 1008);
  });
}

TEST(H2WebSocket, AClientThatLeavesIsNotThePolicys) {
  WithEach([](WsBed& b) {
    WsClient client(b);
    ASSERT_EQ(client.Open("/chat"), "200");
    client.Leave();
    EXPECT_THAT(b.last(), ::testing::AnyOf("end", HasSubstr("close 1001")));
    EXPECT_NE(b.bed.sink().exchanges(1)[0].error, "closed by a change of policy");
    EXPECT_NE(b.bed.sink().exchanges(1)[0].error, "");
  });
}

TEST(H2WebSocket, IsNotAskedOfAnUpstreamThatDoesNotAnnounceIt) {
  std::atomic<bool> asked{false};
  Origin origin(SharedAuthority().ServerContext("DNS:a.test", "h2"), [&](Peer peer) {
    peer.Write(SettingsFrame());
    peer.ReadExactly(24);
    for (std::string bytes;;) {
      const std::string more = peer.ReadSome();
      if (more.empty()) return;
      bytes += more;
      for (const SeenFrame& frame : TakeFrames(&bytes)) asked = asked || frame.type == kHeaders;
    }
  });
  Testbed bed(LoopbackRule(fmt::format("ws a.test:{}/**", origin.port())));
  for (const std::string alpn : {"h2", "http/1.1"}) {
    bed.OfferAlpn({alpn});
    const std::string authority = fmt::format("a.test:{}", origin.port());
    if (alpn == "h2") {
      H2Client client(bed.Connect("a.test", origin.port()));
      const int32_t id = client.Start({{":method", "CONNECT"},
                                       {":protocol", "websocket"},
                                       {":scheme", "https"},
                                       {":authority", authority},
                                       {":path", "/"},
                                       {"sec-websocket-version", "13"}},
                                      H2Client::Body::kOpen);
      client.Until([&] { return client.messages[id].ended || client.messages[id].closed; });
      EXPECT_EQ(client.messages[id].status(), "502");
      EXPECT_THAT(client.messages[id].body, HasSubstr("does not announce WebSockets"));
    } else {
      Peer client = bed.Connect("a.test", origin.port());
      client.Write(
          fmt::format("GET / HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
                      authority));
      EXPECT_THAT(client.ReadMessage().FirstLine(), HasSubstr("HTTP/1.1 502 "));
    }
  }
  EXPECT_FALSE(asked);
}

}  // namespace
}  // namespace sluice::proxy::testing
