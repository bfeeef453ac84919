#include "proxy/connect_request.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::proxy {
namespace {

struct Parsed {
  std::string bytes;
  RequestHead head;
};

RequestHead HeadOf(std::string* bytes) {
  RequestHead head;
  EXPECT_FALSE(ParseRequestHead({bytes->data(), bytes->size()}, &head)) << *bytes;
  return head;
}

std::string Connect(const std::string& target, const std::string& fields = "") {
  std::string bytes = "CONNECT " + target + " HTTP/1.1\r\n" + (fields.empty() ? "Host: " + target + "\r\n" : fields) + "\r\n";
  const RequestHead head = HeadOf(&bytes);
  const auto result = ParseConnectRequest(head);
  if (!result) return std::to_string(result.error().status);
  return (result->host.empty() ? result->literal.ToString() : result->host) + " " + std::to_string(result->port);
}

std::string Absolute(const std::string& target, const std::string& host) {
  std::string bytes = "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n";
  const RequestHead head = HeadOf(&bytes);
  const auto result = ParseAbsoluteRequest(head);
  if (!result) return std::to_string(result.error().status);
  const ProxyTarget& place = result->place;
  return (place.host.empty() ? place.literal.ToString() : place.host) + " " + std::to_string(place.port) + " " +
         std::string(result->path);
}

TEST(ConnectRequest, TakesANameOrAnAddressAndAPort) {
  EXPECT_EQ(Connect("a.test:443"), "a.test 443");
  EXPECT_EQ(Connect("A.Test.:8443"), "a.test 8443");
  EXPECT_EQ(Connect("151.101.1.10:443"), "151.101.1.10 443");
  EXPECT_EQ(Connect("[::ffff:151.101.1.10]:443"), "151.101.1.10 443");
  EXPECT_EQ(Connect("[2606:4700:0::1]:443"), "2606:4700::1 443");
  EXPECT_EQ(Connect("a.test:443", "Host: a.test\r\n"), "a.test 443");
  EXPECT_EQ(Connect("a.test:443", "Host: A.TEST:443\r\nContent-Length: 0\r\n"), "a.test 443");
}

TEST(ConnectRequest, RefusesWhatTwoReadersCouldUnderstandDifferently) {
  for (const char* target : {"a.test",
                             "a.test:",
                             "a.test:0",
                             "a.test:65536",
                             "a.test:+443",
                             "user@a.test:443",
                             "u:p@a.test:443",
                             "http://a.test:443",
                             "https://a.test/",
                             "/",
                             "/a.test:443",
                             "a.test:443/",
                             "a.test\\@b.test:443",
                             "a%2etest:443",
                             "127.1:443",
                             "2130706433:443",
                             "0x7f000001:443",
                             "0177.0.0.1:443",
                             "[::1:443",
                             "::1:443",
                             "[::1%25eth0]:443",
                             "a..test:443",
                             "*:443",
                             ":443"}) {
    EXPECT_EQ(Connect(target, "Host: a.test:443\r\n"), "400") << target;
  }
}

TEST(ConnectRequest, RefusesABodyAndAMalformedHostAndLooksAtNoOtherHost) {
  EXPECT_EQ(Connect("a.test:443", "Host: b.test:443\r\n"), "a.test 443");
  EXPECT_EQ(Connect("a.test:443", "Host: 127.0.0.1:3128\r\n"), "a.test 443");
  EXPECT_EQ(Connect("a.test:443", "Host: a.test:x\r\n"), "400");
  EXPECT_EQ(Connect("a.test:443", "Host: u@a.test\r\n"), "400");
  EXPECT_EQ(Connect("a.test:443", "Host: a.test\r\nContent-Length: 1\r\n"), "400");
  EXPECT_EQ(Connect("a.test:443", "Host: a.test\r\nTransfer-Encoding: chunked\r\n"), "400");
}

TEST(AbsoluteRequest, TakesHttpUris) {
  EXPECT_EQ(Absolute("http://a.test/x?q=1", "a.test"), "a.test 80 /x?q=1");
  EXPECT_EQ(Absolute("HTTP://A.test:8080", "a.test:8080"), "a.test 8080 ");
  EXPECT_EQ(Absolute("http://[::1]:81?q", "[::1]:81"), "::1 81 ?q");
  EXPECT_EQ(Absolute("http://a.test/", "b.test:81"), "a.test 80 /");
}

TEST(AbsoluteRequest, RefusesOthers) {
  EXPECT_EQ(Absolute("http://u@a.test/", "a.test"), "400");
  EXPECT_EQ(Absolute("http://a.test:0/", "a.test"), "400");
  EXPECT_EQ(Absolute("http://a.test\\@b.test/", "a.test"), "400");
  EXPECT_EQ(Absolute("http:///x", "a.test"), "400");
  EXPECT_EQ(Absolute("https://a.test/", "a.test"), "400");
  EXPECT_EQ(Absolute("ftp://a.test/", "a.test"), "400");
  EXPECT_EQ(Absolute("http://127.1/", "127.1"), "400");
  EXPECT_EQ(Absolute("a.test/x", "a.test"), "400");
  EXPECT_EQ(Absolute("/x", "a.test"), "403");
  EXPECT_EQ(Absolute("*", "a.test"), "405");
}

}  // namespace
}  // namespace sluice::proxy
