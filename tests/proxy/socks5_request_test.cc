#include "proxy/socks5_request.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace sluice::proxy {
namespace {

using std::string_literals::operator""s;

std::string Request(char command, char type, const std::string& address, uint16_t port) {
  return "\x05"s + command + '\0' + type + address + static_cast<char>(port >> 8) + static_cast<char>(port & 0xff);
}
std::string Named(const std::string& name) { return static_cast<char>(name.size()) + name; }

std::string Told(const SocksRequest& request) {
  if (request.status == SocksStatus::kNeedMore) return "more";
  if (request.status == SocksStatus::kMalformed) return "malformed";
  if (request.refusal != SocksReply::kSucceeded) return "refused " + std::to_string(static_cast<int>(request.refusal));
  const ProxyTarget& target = request.target;
  return (target.host.empty() ? target.literal.ToString() : target.host) + " " + std::to_string(target.port);
}

TEST(Socks5, ReadsGreetings) {
  SocksGreeting greeting = ParseSocksGreeting("\x05\x02\x00\x02rest"s);
  EXPECT_EQ(greeting.status, SocksStatus::kComplete);
  EXPECT_EQ(greeting.consumed, 4u);
  EXPECT_TRUE(greeting.none && greeting.password);
  greeting = ParseSocksGreeting("\x05\x01\x01"s);
  EXPECT_TRUE(greeting.status == SocksStatus::kComplete && !greeting.none && !greeting.password);
  EXPECT_EQ(ParseSocksGreeting("\x05\x00"s).status, SocksStatus::kComplete);
  EXPECT_EQ(ParseSocksGreeting("\x05\x02\x00"s).status, SocksStatus::kNeedMore);
  EXPECT_EQ(ParseSocksGreeting("\x04\x01"s).status, SocksStatus::kMalformed);
}

TEST(Socks5, ReadsNamesAndPasswords) {
  const std::string bytes =
      "\x01\x02"
      "ci"
      "\x03"
      "abcX"s;
  const SocksPassword password = ParseSocksPassword(bytes);
  EXPECT_EQ(password.status, SocksStatus::kComplete);
  EXPECT_EQ(password.consumed, bytes.size() - 1);
  EXPECT_EQ(password.name, "ci");
  EXPECT_EQ(password.password, "abc");
  for (size_t n = 0; n + 1 < bytes.size(); ++n)
    EXPECT_EQ(ParseSocksPassword(std::string_view(bytes).substr(0, n)).status, SocksStatus::kNeedMore) << n;
  EXPECT_EQ(ParseSocksPassword("\x05"s).status, SocksStatus::kMalformed);
}

TEST(Socks5, ReadsRequestsOfEachAddressType) {
  const std::string v6 = "\x26\x06\x47\x00\0\0\0\0\0\0\0\0\0\0\0\x01"s;
  const struct {
    std::string bytes, told;
  } cases[] = {
      {Request(1, 1, "\x97\x65\x01\x0a"s, 443), "151.101.1.10 443"},
      {Request(1, 4, v6, 80), "2606:4700::1 80"},
      {Request(1, 3, Named("A.test."), 443), "a.test 443"},
      {Request(1, 3, Named("151.101.1.10"), 443), "151.101.1.10 443"},
      {Request(1, 3, Named("::1"), 443), "::1 443"},
      {Request(1, 3, Named("127.1"), 443), "refused 1"},
      {Request(1, 3, Named("a.test:80"), 443), "refused 1"},
      {Request(1, 3, Named("a\0b"s), 443), "refused 1"},
      {Request(1, 3, Named(""), 443), "refused 1"},
      {Request(1, 3, Named("a.test"), 0), "refused 1"},
      {Request(2, 3, Named("a.test"), 443), "refused 7"},
      {Request(3, 1, "\0\0\0\0"s, 0), "refused 7"},
      {Request(1, 2, "x", 443), "malformed"},
      {"\x04"s, "malformed"},
      {"\x05\x01\x01"s, "malformed"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Told(ParseSocksRequest(c.bytes + "rest")), c.told);
    if (c.told == "malformed") continue;
    EXPECT_EQ(ParseSocksRequest(c.bytes + "rest").consumed, c.bytes.size());
    for (size_t n = 0; n < c.bytes.size(); ++n) EXPECT_EQ(Told(ParseSocksRequest(c.bytes.substr(0, n))), "more") << c.told << n;
  }
  EXPECT_EQ(ParseSocksRequest(Request(1, 9, "x", 1)).refusal, SocksReply::kAddressNotSupported);
}

TEST(Socks5, WritesReplies) {
  EXPECT_EQ(SocksMethodText(0xff), "\x05\xff"s);
  EXPECT_EQ(SocksPasswordText(false), "\x01\x01"s);
  EXPECT_EQ(SocksReplyText(SocksReply::kNotAllowed), "\x05\x02\0\x01\0\0\0\0\0\0"s);
  EXPECT_EQ(SocksReplyFor(EACCES), SocksReply::kNotAllowed);
  EXPECT_EQ(SocksReplyFor(ECONNREFUSED), SocksReply::kRefused);
  EXPECT_EQ(SocksReplyFor(ETIMEDOUT), SocksReply::kExpired);
  EXPECT_EQ(SocksReplyFor(EMFILE), SocksReply::kFailure);
}

}  // namespace
}  // namespace sluice::proxy
