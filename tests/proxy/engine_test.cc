// The engine end to end: real sockets, real TLS on both sides.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/proxy/testbed.h"

namespace sluice::proxy::testing {
namespace {

using Speak = Testbed::Speak;

// Answers every request with 200 and what it was asked, until the client leaves.
void Echo(Peer peer) {
  for (;;) {
    const Peer::Message request = peer.ReadMessage();
    if (request.head.empty()) return;
    const std::string body = request.FirstLine() + "|" + request.body;
    if (!peer.Write(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Origin: yes\r\n\r\n{}", body.size(), body))) return;
  }
}

TEST(Engine, ForwardsAnAllowedGetAndRefusesAPost) {
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
  const auto decisions = bed.sink().decisions();
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_TRUE(decisions[0].decision.allowed);
  EXPECT_FALSE(decisions[1].decision.allowed);
  EXPECT_EQ(decisions[1].denial_id, "d-1");
  EXPECT_EQ(decisions[0].target.query, "q=");
}

}  // namespace
}  // namespace sluice::proxy::testing
