#include "proxy/client_hello.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/proxy/hello_bytes.h"

namespace sluice::proxy {
namespace {

using testing::Counted16;
using testing::Extension;
using testing::ServerName;

std::string U8(size_t v) { return testing::Number8(v); }
std::string U16(size_t v) { return testing::Number16(v); }
std::string U24(size_t v) { return testing::Number24(v); }
std::string Alpn(const std::string& name) { return Extension(16, Counted16(testing::Number8(name.size()) + name)); }
std::string Message(const std::string& extensions) { return testing::HelloMessage(extensions); }
std::string Record(const std::string& fragment) { return testing::HelloRecord(fragment); }

TEST(ClientHello, TellsEsniApart) {
  const ClientHello hello = ParseClientHello(Record(Message(ServerName("a.test") + Extension(0xffce, "x")))).hello;
  EXPECT_TRUE(hello.esni);
  EXPECT_FALSE(hello.ech);
}

TEST(ClientHello, TellsNameProtocolsAndEch) {
  const auto result = ParseClientHello(Record(Message(ServerName("A.test") + Alpn("h2") + Extension(0xfe0d, "x"))));
  ASSERT_EQ(result.status, HelloStatus::kComplete);
  EXPECT_EQ(result.hello.sni, "A.test");
  EXPECT_EQ(result.hello.alpn, std::vector<std::string>{"h2"});
  EXPECT_TRUE(result.hello.ech);
}

TEST(ClientHello, IsReadAcrossRecordsAndInPieces) {
  const std::string message = Message(ServerName("a.test"));
  for (size_t cut = 1; cut < message.size(); ++cut) {
    const std::string bytes = Record(message.substr(0, cut)) + Record(message.substr(cut));
    EXPECT_EQ(ParseClientHello(bytes).hello.sni, "a.test") << cut;
    for (size_t n = 0; n < bytes.size(); n += 7)
      EXPECT_EQ(ParseClientHello(std::string_view(bytes).substr(0, n)).status, HelloStatus::kNeedMore) << cut << " " << n;
  }
}

TEST(ClientHello, RefusesWhatIsMalformed) {
  const std::string good = Message(ServerName("a.test"));
  std::string longer = good;
  longer[3] = static_cast<char>(longer[3] - 1);
  const std::string rows[] = {
      "GET / HTTP/1.1\r\n\r\n",
      "\x16\x02\x01" + Counted16(good),
      "\x16\x03\x01" + U16(0),
      "\x16\x03\x01" + U16(20000),
      Record(U8(2) + good.substr(1)),
      Record(longer),
      Record(U8(1) + U24(kMaxClientHelloBytes + 1) + "x"),
      Record(Message(ServerName("a.test") + ServerName("b.test"))),
      Record(Message(Extension(0, Counted16(U8(0) + Counted16("a.test") + U8(0) + Counted16("b.test"))))),
      Record(Message(Extension(0, ""))),
      Record(Message(Extension(0, Counted16(U8(0) + Counted16(""))))),
      Record(Message(ServerName(std::string("a\0b", 3)))),
      Record(Message(Extension(16, Counted16(U8(9) + "h2")))),
      Record(Message(std::string("\x00\x01", 2))),
  };
  for (const auto& row : rows) EXPECT_EQ(ParseClientHello(row).status, HelloStatus::kMalformed) << row.substr(0, 20);
}

TEST(ClientHello, IsBounded) {
  std::string bytes;
  while (bytes.size() <= 2 * kMaxClientHelloBytes) bytes += Record(bytes.empty() ? U8(1) + U24(kMaxClientHelloBytes) : "x");
  EXPECT_EQ(ParseClientHello(bytes).status, HelloStatus::kMalformed);
}

TEST(ClientHello, WithoutExtensionsHasNoName) {
  const std::string body = "\x03\x03" + std::string(32, 'r') + U8(0) + Counted16("\x13\x01") + U8(1) + U8(0);
  const auto result = ParseClientHello(Record(U8(1) + U24(body.size()) + body));
  EXPECT_EQ(result.status, HelloStatus::kComplete);
  EXPECT_FALSE(result.hello.sni.has_value());
}

}  // namespace
}  // namespace sluice::proxy
