#include "proxy/websocket_handshake.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::proxy {
namespace {

constexpr std::string_view kKey = "dGhlIHNhbXBsZSBub25jZQ==";
constexpr std::string_view kAccept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

struct Asked {
  std::string bytes;
  RequestHead head;
  WebSocketOffer offer;
  Fault fault;
};

// By pointer, since views point into `bytes`.
std::unique_ptr<Asked> Ask(const std::string& fields, const std::string& line = "GET /chat HTTP/1.1") {
  auto asked = std::make_unique<Asked>();
  asked->bytes = line + "\r\nHost: a.test\r\n" + fields + "\r\n";
  asked->fault = ParseRequestHead({asked->bytes.data(), asked->bytes.size()}, &asked->head);
  EXPECT_FALSE(asked->fault) << fields;
  EXPECT_TRUE(AsksForWebSocket(asked->head)) << fields;
  const auto framing = RequestFraming(asked->head);
  EXPECT_TRUE(framing.has_value());
  asked->fault = ReadWebSocketRequest(&asked->head, *framing, &asked->offer);
  return asked;
}

const std::string kUpgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\n";
const std::string kVersion = "Sec-WebSocket-Version: 13\r\n";
const std::string kGoodKey = "Sec-WebSocket-Key: " + std::string(kKey) + "\r\n";
const std::string kGood = kUpgrade + kVersion + kGoodKey;

TEST(WebSocketHandshake, IsAskedForByUpgradeAndConnectionTogether) {
  const struct {
    std::string fields;
    bool asks;
  } rows[] = {
      {kUpgrade, true},
      {"Upgrade: WebSocket\r\nConnection: keep-alive, UPGRADE\r\n", true},
      {"Upgrade: h2c, websocket\r\nConnection: upgrade\r\n", true},
      {"Upgrade: websocket\r\nUpgrade: h2c\r\nConnection: upgrade\r\n", true},
      {"Upgrade: websocket/13\r\nConnection: upgrade\r\n", true},
      {"Upgrade: websocket\r\n", false},
      {"Connection: upgrade\r\n", false},
      {"Upgrade: h2c\r\nConnection: upgrade\r\n", false},
      {"Upgrade: websockets\r\nConnection: upgrade\r\n", false},
  };
  for (const auto& row : rows) {
    std::string bytes = "GET / HTTP/1.1\r\nHost: a.test\r\n" + row.fields + "\r\n";
    RequestHead head;
    ASSERT_FALSE(ParseRequestHead({bytes.data(), bytes.size()}, &head));
    EXPECT_EQ(AsksForWebSocket(head), row.asks) << row.fields;
  }
}

TEST(WebSocketHandshake, RefusesWhatIsNotOne) {
  const struct {
    std::string fields;
    uint16_t status;
    std::string line = "GET /chat HTTP/1.1";
  } rows[] = {
      {kGood, 0},
      {kGood, 400, "POST /chat HTTP/1.1"},
      {kGood, 400, "GET /chat HTTP/1.0"},
      {kGood + "Content-Length: 1\r\n", 400},
      {kGood + "Content-Length: 0\r\n", 0},
      {kGood + "Transfer-Encoding: chunked\r\n", 400},
      {kUpgrade + kGoodKey, 400},
      {kUpgrade + kGoodKey + kVersion + kVersion, 400},
      {kUpgrade + kGoodKey + "Sec-WebSocket-Version: 8\r\n", 426},
      {kUpgrade + kGoodKey + "Sec-WebSocket-Version: 13, 8\r\n", 426},
      {kUpgrade + kVersion, 400},
      {kGood + kGoodKey, 400},
      {kUpgrade + kVersion + "Sec-WebSocket-Key: \r\n", 400},
      {kUpgrade + kVersion + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=\r\n", 400},
      {kUpgrade + kVersion + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZR==\r\n", 400},
      {kUpgrade + kVersion + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j\r\n", 400},
      {kUpgrade + kVersion + "Sec-WebSocket-Key: dGhlIHNhbXBs-SBub25jZQ==\r\n", 400},
      {kGood + "Sec-WebSocket-Accept: " + std::string(kAccept) + "\r\n", 400},
      {kGood + "Sec-WebSocket-Protocol: a b\r\n", 400},
      {kGood + "Sec-WebSocket-Protocol: a, a\r\n", 400},
      {kGood + "Sec_WebSocket_Key: " + std::string(kKey) + "\r\n", 400},
      {kGood + "Sec-WebSocket-Origin: x\r\n", 400},
  };
  for (const auto& row : rows) EXPECT_EQ(Ask(row.fields, row.line)->fault.status, row.status) << row.line << "\n" << row.fields;
}

TEST(WebSocketHandshake, IsAskedOfTheUpstreamInOurOwnWords) {
  const auto asked = Ask(kGood +
                         "Origin: https://a.test\r\nConnection: x-hop\r\nX-Hop: 1\r\nSec-WebSocket-Protocol: chat, v2\r\n"
                         "Sec-WebSocket-Protocol: v1\r\nSec-WebSocket-Extensions: x-webkit-deflate-frame, permessage-deflate; "
                         "client_max_window_bits ; server_max_window_bits=\"10\", permessage-deflate;mystery=1, bbf-usp\r\n");
  ASSERT_FALSE(asked->fault);
  Buffer out;
  AppendWebSocketRequest(&out, asked->head, asked->offer, {"/chat", "a.test", "AAAAAAAAAAAAAAAAAAAAAA=="});
  EXPECT_EQ(out.view(),
            "GET /chat HTTP/1.1\r\nhost: a.test\r\norigin: https://a.test\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            "sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-protocol: chat, v2, v1\r\n"
            "sec-websocket-extensions: permessage-deflate; server_max_window_bits=10; client_max_window_bits\r\n\r\n");
}

TEST(WebSocketHandshake, ChecksTheAnswer) {
  const auto asked =
      Ask(kGood + "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=10\r\n");
  const std::string good = kUpgrade + "Sec-WebSocket-Accept: " + std::string(kAccept) + "\r\n";
  const std::string extension = "Sec-WebSocket-Extensions: permessage-deflate";
  const struct {
    std::string fields;
    bool good;
    std::string version = "HTTP/1.1";
  } rows[] = {
      {good, true},
      {good, false, "HTTP/1.0"},
      {good + "Sec-WebSocket-Protocol: chat\r\n", true},
      {good + "Sec-WebSocket-Protocol: Chat\r\n", false},
      {good + "Sec-WebSocket-Protocol: other\r\n", false},
      {good + "Sec-WebSocket-Protocol: \r\n", false},
      {good + "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: chat\r\n", false},
      {good + extension + "; server_max_window_bits=10\r\n", true},
      {good + extension + "; server_max_window_bits=9; server_no_context_takeover\r\n", true},
      {good + extension + "\r\n", false},
      {good + extension + "; server_max_window_bits=12\r\n", false},
      {good + extension + "; server_max_window_bits=10; client_max_window_bits=10\r\n", false},
      {good + extension + "; server_max_window_bits=10, permessage-deflate; server_max_window_bits=10\r\n", false},
      {good + extension + "; server_max_window_bits=10; mystery\r\n", false},
      {good + "Sec-WebSocket-Extensions: x-other\r\n", false},
      {good + "Content-Length: 0\r\n", false},
      {good + "Transfer-Encoding: chunked\r\n", false},
      {kUpgrade, false},
      {good + "Sec-WebSocket-Accept: " + std::string(kAccept) + "\r\n", false},
      {kUpgrade + "Sec-WebSocket-Accept: t3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n", false},
      {"Upgrade: h2c\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + std::string(kAccept) + "\r\n", false},
      {good + "Upgrade: h2c\r\n", false},
      {"Upgrade: websocket\r\nSec-WebSocket-Accept: " + std::string(kAccept) + "\r\n", false},
  };
  for (const auto& row : rows) {
    std::string bytes = row.version + " 101 Switching Protocols\r\n" + row.fields + "\r\n";
    ResponseHead head;
    ASSERT_FALSE(ParseResponseHead({bytes.data(), bytes.size()}, &head)) << row.fields;
    const auto agreed = CheckWebSocketAnswer(&head, asked->offer, kAccept);
    EXPECT_EQ(agreed.has_value(), row.good) << row.fields;
    if (!agreed) EXPECT_EQ(agreed.error().status, 502);
  }
}

TEST(WebSocketHandshake, IsAnsweredInOurOwnWords) {
  const auto asked = Ask(kGood + "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Extensions: permessage-deflate\r\n");
  std::string bytes =
      "HTTP/1.1 101 Sure\r\nServer: x\r\nUpgrade: WebSocket\r\nConnection: upgrade, x-hop\r\nX-Hop: 1\r\nX-Sluice-Denied: d-1\r\n"
      "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover\r\n"
      "Sec-WebSocket-Accept: " +
      std::string(kAccept) + "\r\n\r\n";
  ResponseHead head;
  ASSERT_FALSE(ParseResponseHead({bytes.data(), bytes.size()}, &head));
  const auto agreed = CheckWebSocketAnswer(&head, asked->offer, kAccept);
  ASSERT_TRUE(agreed.has_value());
  EXPECT_EQ(agreed->compression(), WebSocketCompression::kDeflate);
  Buffer out;
  AppendWebSocketAnswer(&out, head, *agreed, "client's");
  EXPECT_EQ(out.view(),
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nServer: x\r\n"
            "sec-websocket-accept: client's\r\nsec-websocket-protocol: chat\r\n"
            "sec-websocket-extensions: permessage-deflate; client_no_context_takeover\r\n\r\n");
}

}  // namespace
}  // namespace sluice::proxy
