// The pure parts of the way through an upstream proxy: SOCKS5, CONNECT replies, exceptions, pins, the order of addresses.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "policy/host_pattern.h"
#include "policy/no_proxy.h"
#include "proxy/connect_reply.h"
#include "proxy/dial_order.h"
#include "proxy/socks5_client.h"
#include "proxy/spki.h"

namespace sluice::proxy {
namespace {

using namespace std::string_literals;

constexpr auto kNever = SocksLoginUse::kNever;
constexpr auto kOffered = SocksLoginUse::kOffered;

TEST(Socks5, SendsWhatTheFormatSays) {
  EXPECT_EQ(SocksHello(kNever), "\x05\x01\x00"s);
  EXPECT_EQ(SocksHello(kOffered), "\x05\x02\x00\x02"s);
  EXPECT_EQ(SocksLogin("me", "pass"), "\x01\x02me\x04pass"s);
  EXPECT_EQ(SocksConnect("a.test", {}, 443), "\x05\x01\x00\x03\x06"s + "a.test\x01\xbb"s);
  EXPECT_EQ(SocksConnect("", IpAddress::FromV4(0x01020304), 80), "\x05\x01\x00\x01\x01\x02\x03\x04\x00\x50"s);
  EXPECT_EQ(SocksConnect("", *IpAddress::Parse("2001:db8::1"), 80)->size(), 22u);
}

TEST(Socks5, RefusesToSendWhatDoesNotFit) {
  EXPECT_FALSE(SocksLogin("", "x"));
  EXPECT_FALSE(SocksLogin("x", ""));
  EXPECT_FALSE(SocksLogin(std::string(256, 'u'), "x"));
  EXPECT_FALSE(SocksLogin("x", std::string(256, 'p')));
  EXPECT_FALSE(SocksConnect(std::string(256, 'a'), {}, 1));
  EXPECT_TRUE(SocksConnect(std::string(255, 'a'), {}, 1));
}

TEST(Socks5, ReadsRepliesStrictly) {
  using S = SocksAnswer::Status;
  struct Case {
    const char* what;
    SocksAnswer got;
    S status;
    size_t consumed;
    int error;
  };
  const Case cases[] = {
      {"no login", ParseSocksMethod("\x05\x00"s, kNever), S::kDone, 2, 0},
      {"login", ParseSocksMethod("\x05\x02"s, kOffered), S::kDone, 2, 0},
      {"login unoffered", ParseSocksMethod("\x05\x02"s, kNever), S::kMalformed, 0, 0},
      {"GSSAPI", ParseSocksMethod("\x05\x01"s, kOffered), S::kMalformed, 0, 0},
      {"none acceptable", ParseSocksMethod("\x05\xff"s, kNever), S::kRefused, 0, ECONNREFUSED},
      {"SOCKS4", ParseSocksMethod("\x00\x5a"s, kNever), S::kMalformed, 0, 0},
      {"HTTP", ParseSocksMethod("HTTP/1.1 400 Bad"s, kNever), S::kMalformed, 0, 0},
      {"half a method", ParseSocksMethod("\x05"s, kNever), S::kNeedMore, 0, 0},
      {"login taken", ParseSocksLoginAnswer("\x01\x00"s), S::kDone, 2, 0},
      {"login refused", ParseSocksLoginAnswer("\x01\x01"s), S::kRefused, 0, ECONNREFUSED},
      {"login of version 5", ParseSocksLoginAnswer("\x05\x00"s), S::kMalformed, 0, 0},
      {"IPv4", ParseSocksConnectAnswer("\x05\x00\x00\x01\x01\x02\x03\x04\x00\x50SSH"s), S::kDone, 10, 0},
      {"IPv6", ParseSocksConnectAnswer("\x05\x00\x00\x04"s + std::string(18, 'x')), S::kDone, 22, 0},
      {"a name", ParseSocksConnectAnswer("\x05\x00\x00\x03\x03"s + "abc\x00\x50"s), S::kDone, 10, 0},
      {"an empty name", ParseSocksConnectAnswer("\x05\x00\x00\x03\x00\x00\x50"s), S::kDone, 7, 0},
      {"the longest", ParseSocksConnectAnswer("\x05\x00\x00\x03\xff"s + std::string(300, 'x')), S::kDone, kMaxSocksAnswer, 0},
      {"cut", ParseSocksConnectAnswer("\x05\x00\x00\x03\xff"s + std::string(256, 'x')), S::kNeedMore, 0, 0},
      {"not allowed", ParseSocksConnectAnswer("\x05\x02"s), S::kRefused, 0, ECONNREFUSED},
      {"no network", ParseSocksConnectAnswer("\x05\x03\x00\x01"s), S::kRefused, 0, ENETUNREACH},
      {"no host", ParseSocksConnectAnswer("\x05\x04\x00\x01"s), S::kRefused, 0, EHOSTUNREACH},
      {"refused", ParseSocksConnectAnswer("\x05\x05\x00\x01"s), S::kRefused, 0, ECONNREFUSED},
      {"unknown number", ParseSocksConnectAnswer("\x05\x09\x00\x01"s), S::kMalformed, 0, 0},
      {"reserved", ParseSocksConnectAnswer("\x05\x00\x01\x01\x00\x00\x00\x00\x00\x00"s), S::kMalformed, 0, 0},
      {"unknown address", ParseSocksConnectAnswer("\x05\x00\x00\x02\x00\x00\x00\x00\x00\x00"s), S::kMalformed, 0, 0},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(c.got.status, c.status) << c.what;
    EXPECT_EQ(c.got.consumed, c.consumed) << c.what;
    EXPECT_EQ(c.got.error, c.error) << c.what;
    EXPECT_EQ(c.got.why.empty(), c.status == S::kDone || c.status == S::kNeedMore) << c.what;
  }
  EXPECT_TRUE(ParseSocksMethod("\x05\x02"s, kOffered).wants_login);
  EXPECT_FALSE(ParseSocksMethod("\x05\x00"s, kOffered).wants_login);
}

TEST(ConnectReply, TheRequestNamesTheTargetOnceAndCarriesNothingElse) {
  EXPECT_EQ(ConnectRequest("a.test:443", ""), "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n");
  EXPECT_EQ(ConnectRequest("a.test:443", "Basic eA=="),
            "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nProxy-Authorization: Basic eA==\r\n\r\n");
  EXPECT_EQ(ConnectRequest("a.test:443", "Bearer x\r\nHost: b.test"), "");
  EXPECT_EQ(ConnectRequest("a.test:443\n", ""), "");
  EXPECT_EQ(ConnectRequest("", ""), "");
}

std::string ReplyText(std::string head) {
  static constexpr std::string_view kSecrets[] = {"hunter2", "bWU6aHVudGVyMg=="};
  const auto reply = ParseConnectReply({head.data(), head.size()}, kSecrets);
  if (!reply) return fmt::format("fault: {}", reply.error().why);
  switch (reply->kind) {
    case ConnectReply::Kind::kInterim:
      return "interim";
    case ConnectReply::Kind::kOpen:
      return "open";
    case ConnectReply::Kind::kRefused:
      break;
  }
  return reply->text;
}

TEST(ConnectReply, IsReadStrictlyAndRepeatedWithCare) {
  const std::pair<const char*, const char*> cases[] = {
      {"HTTP/1.1 200 Connection established\r\n\r\n", "open"},
      {"HTTP/1.0 200 OK\r\n\r\n", "open"},
      {"HTTP/1.1 204 No Content\r\n\r\n", "open"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "open"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "fault: a body announced where the tunnel begins"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "fault: a body announced where the tunnel begins"},
      {"HTTP/1.1 100 Continue\r\n\r\n", "interim"},
      {"HTTP/1.1 101 Switching Protocols\r\n\r\n", "fault: a switch of protocols that was not asked for"},
      {"HTTP/1.1 403 Forbidden\r\n\r\n", "403 Forbidden"},
      {"HTTP/1.1 503\r\n\r\n", nullptr},
      {"HTTP/1.1 502 a\tb\r\n\r\n", "502 a b"},
      {"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"a, b\"\r\nProxy-Authenticate: "
       "NTLM\r\n\r\n",
       "407 Proxy Authentication Required; it asks for Basic, NTLM"},
      {"HTTP/1.1 407 no such user me:hunter2\r\n\r\n", "407"},
      {"HTTP/1.1 407 bWU6aHVudGVyMg==\r\nProxy-Authenticate: hunter2\r\n\r\n", "407"},
  };
  for (const auto& [head, want] : cases) {
    if (want != nullptr) EXPECT_EQ(ReplyText(head), want) << head;
  }
  EXPECT_TRUE(ReplyText("SSH-2.0-OpenSSH_9\r\n\r\n").starts_with("fault"));
  EXPECT_EQ(ReplyText("HTTP/1.1 502 " + std::string(500, 'x') + "\r\n\r\n").size(), 4 + kMaxProxyReason);
}

policy::UpstreamProxy::Except Except(std::string_view host, std::vector<policy::PortRange> ports = {}) {
  policy::UpstreamProxy::Except except;
  if (!host.empty()) {
    auto parsed = policy::ParseHostPattern(host);
    EXPECT_TRUE(parsed) << host;
    except.host = *parsed;
  }
  except.ports = std::move(ports);
  return except;
}

TEST(NoProxy, MatchesNamesGlobsPrefixesAndPorts) {
  policy::UpstreamProxy proxy;
  proxy.except = {Except("intern.test"), Except("**.corp.test"), Except("*.one.test"),
                  Except("10.0.0.0/8"),  Except("fd00::/8"),     Except("host.test", {{8000, 8099}}),
                  Except("", {{22, 22}})};
  const auto name = [&](std::string_view host, uint16_t port) { return policy::IsExcepted(proxy, host, {}, port); };
  const auto literal = [&](std::string_view text, uint16_t port) {
    return policy::IsExcepted(proxy, "", *IpAddress::Parse(text), port);
  };
  EXPECT_TRUE(name("intern.test", 443));
  EXPECT_FALSE(name("xintern.test", 443));
  EXPECT_FALSE(name("a.intern.test", 443));
  EXPECT_TRUE(name("a.corp.test", 443));
  EXPECT_TRUE(name("a.b.corp.test", 443));
  EXPECT_FALSE(name("corp.test", 443));
  EXPECT_FALSE(name("corp.test.evil.test", 443));
  EXPECT_TRUE(name("a.one.test", 443));
  EXPECT_FALSE(name("a.b.one.test", 443));
  EXPECT_TRUE(literal("10.1.2.3", 443));
  EXPECT_TRUE(literal("::ffff:10.1.2.3", 443));
  EXPECT_FALSE(literal("11.1.2.3", 443));
  EXPECT_TRUE(literal("fd12::1", 443));
  EXPECT_FALSE(literal("2001:db8::1", 443));
  EXPECT_TRUE(name("host.test", 8042));
  EXPECT_FALSE(name("host.test", 443));
  EXPECT_TRUE(name("any.test", 22));
  EXPECT_TRUE(literal("11.1.2.3", 22));
  EXPECT_FALSE(policy::IsExcepted(policy::UpstreamProxy{}, "any.test", {}, 22));
}

TEST(NoProxy, AnAddressNeverCoversAName) {
  policy::UpstreamProxy proxy;
  proxy.except = {Except("0.0.0.0/0"), Except("::/0")};
  // The literal of a flow to a name is its synthetic address.
  EXPECT_FALSE(policy::IsExcepted(proxy, "a.test", IpAddress::FromV4(0xc6120001), 443));
}

TEST(Spki, WritesPinsAsPoliciesDo) {
  EXPECT_EQ(SpkiPinText(SpkiPin{}), "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
  SpkiPin pin{};
  for (size_t i = 0; i < pin.size(); ++i) pin[i] = static_cast<uint8_t>(i);
  EXPECT_EQ(SpkiPinText(pin), "sha256//AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
}

TEST(Spki, ASetIsOneWhateverItsOrder) {
  SpkiPin a{};
  SpkiPin b{};
  b[0] = 1;
  EXPECT_EQ(PinSetKey({a, b}), PinSetKey({b, a, b}));
  EXPECT_NE(PinSetKey({a}), PinSetKey({b}));
  EXPECT_EQ(PinSetKey({}), "");
  const SpkiPin keys[] = {b};
  EXPECT_TRUE(AnyPinned(std::vector{a, b}, keys));
  EXPECT_FALSE(AnyPinned(std::vector{a}, keys));
  EXPECT_FALSE(AnyPinned(std::vector<SpkiPin>{}, keys));
}

std::vector<IpAddress> Addresses(std::initializer_list<const char*> texts) {
  std::vector<IpAddress> addresses;
  for (const char* text : texts) addresses.push_back(*IpAddress::Parse(text));
  return addresses;
}

TEST(DialOrder, FamiliesTakeTurnsAndFailedOnesComeLast) {
  FailedAddresses failed;
  const SteadyTime now{};
  EXPECT_EQ(DialOrder(Addresses({"1.1.1.1", "2.2.2.2", "::1", "::2", "::3"}), failed, now),
            Addresses({"::1", "1.1.1.1", "::2", "2.2.2.2", "::3"}));
  EXPECT_EQ(DialOrder(Addresses({"1.1.1.1", "::ffff:1.1.1.1", "1.1.1.1"}), failed, now), Addresses({"1.1.1.1"}));
  failed.Add(*IpAddress::Parse("::1"), now);
  EXPECT_EQ(DialOrder(Addresses({"1.1.1.1", "::1"}), failed, now), Addresses({"1.1.1.1", "::1"}));
  EXPECT_EQ(DialOrder(Addresses({"1.1.1.1", "::1", "::2"}), failed, now), Addresses({"::2", "1.1.1.1", "::1"}));
  EXPECT_EQ(DialOrder(Addresses({"1.1.1.1", "::1"}), failed, now + kFailedFor), Addresses({"::1", "1.1.1.1"}));
  failed.Forget(*IpAddress::Parse("::1"));
  EXPECT_EQ(DialOrder(Addresses({"1.1.1.1", "::1"}), failed, now), Addresses({"::1", "1.1.1.1"}));
}

TEST(DialOrder, TheTableOfFailedOnesIsBounded) {
  FailedAddresses failed;
  SteadyTime now{};
  for (uint32_t i = 0; i < 3 * kMaxFailedAddresses; ++i) {
    failed.Add(IpAddress::FromV4(i), now);
    ASSERT_LE(failed.size(), kMaxFailedAddresses);
    EXPECT_TRUE(failed.Contains(IpAddress::FromV4(i), now));
  }
}

TEST(DialOrder, TheErrnoThatSaysMostIsTold) {
  EXPECT_EQ(TellingErrno({}), 0);
  EXPECT_EQ(TellingErrno({ENETUNREACH, ECONNREFUSED}), ECONNREFUSED);
  EXPECT_EQ(TellingErrno({ENETUNREACH, ETIMEDOUT}), ETIMEDOUT);
  EXPECT_EQ(TellingErrno({EADDRNOTAVAIL, ENETUNREACH}), ENETUNREACH);
  EXPECT_EQ(TellingErrno({EADDRNOTAVAIL}), EADDRNOTAVAIL);
}

}  // namespace
}  // namespace sluice::proxy
