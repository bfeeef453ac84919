#include "proxy/proxy_protocol.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::proxy {
namespace {

using std::string_literals::operator""s;

std::string Told(const std::string& bytes) {
  const ProxyHeader header = ParseProxyHeader(bytes);
  if (header.status == ProxyHeaderStatus::kNeedMore) return "more";
  if (header.status == ProxyHeaderStatus::kMalformed) return "malformed";
  return std::to_string(header.consumed) + (header.source ? " " + header.source->ToString() : "");
}

std::string Version2(char command, char family, const std::string& block) {
  return "\r\n\r\n\0\r\nQUIT\n"s + command + family + static_cast<char>(block.size() >> 8) +
         static_cast<char>(block.size() & 0xff) + block;
}
const std::string kV4 = "\xc0\x00\x02\x01\x97\x65\x01\x0a\x13\x88\x01\xbb"s;

TEST(ProxyProtocol, ReadsLines) {
  const struct {
    std::string bytes, told;
  } cases[] = {
      {"PROXY TCP4 192.0.2.1 151.101.1.10 5000 443\r\nGET", "44 192.0.2.1:5000"},
      {"PROXY TCP6 2001:db8::1 ::1 5000 443\r\n", "37 [2001:db8::1]:5000"},
      {"PROXY UNKNOWN\r\n", "15"},
      {"PROXY UNKNOWN ffff:f...f:ffff 1 2\r\n", "35"},
      {"PROXY TCP4 192.0.2.1", "more"},
      {"PRO", "more"},
      {"", "more"},
      {"PROXY TCP4 192.0.2.1 151.101.1.10 5000 443\n", "malformed"},
      {"PROXY TCP4 192.0.2.1 151.101.1.10 05000 443\r\n", "malformed"},
      {"PROXY TCP4 192.0.2.1 151.101.1.10 5000 65536\r\n", "malformed"},
      {"PROXY TCP4 192.0.2.1 151.101.1.10 5000\r\n", "malformed"},
      {"PROXY TCP4  192.0.2.1 151.101.1.10 5000 443\r\n", "malformed"},
      {"PROXY TCP4 192.0.2.1 151.101.1.10 5000 443 \r\n", "malformed"},
      {"PROXY TCP4 ::1 ::1 5000 443\r\n", "malformed"},
      {"PROXY TCP6 192.0.2.1 192.0.2.1 5000 443\r\n", "malformed"},
      {"PROXY UDP4 192.0.2.1 192.0.2.1 5000 443\r\n", "malformed"},
      {"PROXY " + std::string(102, 'x'), "malformed"},
      {"GET / HTTP/1.1\r\n", "malformed"},
      {"\x05\x01\x00"s, "malformed"},
  };
  for (const auto& c : cases) EXPECT_EQ(Told(c.bytes), c.told) << c.bytes;
}

TEST(ProxyProtocol, ReadsVersion2) {
  EXPECT_EQ(Told(Version2(0x21, 0x11, kV4)), "28 192.0.2.1:5000");
  EXPECT_EQ(Told(Version2(0x21, 0x11, kV4 + "\x04\x00\x01x"s)), "32 192.0.2.1:5000");
  EXPECT_EQ(Told(Version2(0x21, 0x21, std::string(15, '\0') + "\x01"s + std::string(16, '\0') + "\x13\x88\x01\xbb"s)),
            "52 [::1]:5000");
  EXPECT_EQ(Told(Version2(0x20, 0x00, "")), "16");
  EXPECT_EQ(Told(Version2(0x20, 0x11, kV4)), "28");
  EXPECT_EQ(Told(Version2(0x21, 0x31, std::string(216, 'x'))), "232");
  EXPECT_EQ(Told(Version2(0x21, 0x12, kV4)), "28");
  EXPECT_EQ(Told(Version2(0x22, 0x11, kV4)), "malformed");
  EXPECT_EQ(Told(Version2(0x11, 0x11, kV4)), "malformed");
  EXPECT_EQ(Told(Version2(0x21, 0x11, kV4.substr(1))), "malformed");
  EXPECT_EQ(Told(Version2(0x21, 0x11, std::string(kMaxProxyHeader, 'x'))), "malformed");
  const std::string whole = Version2(0x21, 0x11, kV4);
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_EQ(Told(whole.substr(0, n)), "more") << n;
}

}  // namespace
}  // namespace sluice::proxy
