#include "proxy/chunked.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::proxy {
namespace {

struct Decoded {
  std::string body;
  std::string rest;
  std::string trailers;
  bool done = false;
  bool fault = false;
};

Decoded Decode(std::string_view bytes, size_t piece) {
  ChunkedDecoder decoder;
  Decoded out;
  std::string held;
  while (!bytes.empty() && !decoder.done()) {
    held += bytes.substr(0, piece);
    bytes.remove_prefix(std::min(piece, bytes.size()));
    while (!held.empty() && !decoder.done()) {
      const auto step = decoder.Next(held);
      if (!step) {
        out.fault = true;
        return out;
      }
      out.body += step->data;
      held.erase(0, step->consumed);
    }
  }
  out.rest = held + std::string(bytes);
  out.done = decoder.done();
  out.trailers = decoder.trailers();
  return out;
}

TEST(Chunked, DecodesInPiecesOfAnySize) {
  const std::string coded = "5\r\nhello\r\n6;ext=\"v\"\r\n world\r\nA\r\n0123456789\r\n0\r\nX-Sum: 9\r\n\r\nGET /next";
  for (size_t piece = 1; piece < coded.size(); ++piece) {
    const Decoded out = Decode(coded, piece);
    EXPECT_TRUE(out.done) << piece;
    EXPECT_EQ(out.body, "hello world0123456789") << piece;
    EXPECT_EQ(out.trailers, "x-sum: 9\r\n") << piece;
    EXPECT_EQ(out.rest, "GET /next") << piece;
  }
}

TEST(Chunked, RefusesWhatIsNotPlainHexadecimalAndCrlf) {
  const std::string rows[] = {
      "0x2\r\nab\r\n0\r\n\r\n",
      "+2\r\nab\r\n0\r\n\r\n",
      "0_2\r\nab\r\n0\r\n\r\n",
      " 2\r\nab\r\n0\r\n\r\n",
      "2 \r\nab\r\n0\r\n\r\n",
      "-2\r\nab\r\n",
      "\r\nab\r\n",
      ";x\r\n",
      "10000000000000002\r\nab\r\n0\r\n\r\n",
      "00000000000000002\r\nab\r\n0\r\n\r\n",
      "2\nab\r\n0\r\n\r\n",
      "2\r\nab\n0\r\n\r\n",
      "2\r\nabc\r\n0\r\n\r\n",
      "2;a\nb\r\nab\r\n0\r\n\r\n",
      "2;a\rb\r\nab\r\n0\r\n\r\n",
      std::string("2;a\0b\r\nab\r\n0\r\n\r\n", 16),
      "0\r\nX: 1\n\r\n",
      "0\r\n X: 1\r\n\r\n",
      "0\r\nX : 1\r\n\r\n",
      "0\r\n\n",
      "2;" + std::string(kMaxChunkExtensionBytes + 1, 'x') + "\r\nab\r\n0\r\n\r\n",
      "0\r\nX: " + std::string(kMaxTrailerBytes, 'x') + "\r\n\r\n",
  };
  for (const auto& row : rows) EXPECT_TRUE(Decode(row, row.size()).fault) << row.substr(0, 40);
}

TEST(Chunked, CountsExtensionsOverTheWholeMessage) {
  std::string coded;
  for (int i = 0; i < 50; ++i) coded += "1;" + std::string(100, 'x') + "\r\na\r\n";
  EXPECT_TRUE(Decode(coded, coded.size()).fault);
}

TEST(Chunked, EncodesWhatItDecodes) {
  Buffer out;
  AppendChunk(&out, "hello");
  AppendChunk(&out, "");
  AppendChunk(&out, std::string(300, 'x'));
  std::string trailers = "x-sum: 9\r\nauthorization: secret\r\nx-other: 1\r\ncontent-length: 5\r\n";
  AppendLastChunk(&out, trailers, "X-Sum, Authorization, Content-Length");
  const Decoded back = Decode(out.view(), 7);
  EXPECT_TRUE(back.done);
  EXPECT_EQ(back.body, "hello" + std::string(300, 'x'));
  EXPECT_EQ(back.trailers, "x-sum: 9\r\n");
}

TEST(Chunked, NoTrailerFramesRoutesOrLogsIn) {
  for (const char* name : {"content-length",
                           "content_type",
                           "transfer-encoding",
                           "host",
                           "x-host",
                           "x-forwarded-for",
                           "x_forwarded_host",
                           "x-original-url",
                           "x-rewrite-url",
                           "x_real_ip",
                           "authorization",
                           "proxy-authorization",
                           "proxy",
                           "cookie",
                           "set_cookie",
                           "x-api-key",
                           "x_api_key",
                           "private-token",
                           "x-http-method",
                           "x_http_method_override",
                           "x-http-method-override",
                           "x-method-override",
                           "sec-websocket-key",
                           "sec_fetch_site",
                           "te",
                           "connection"})
    EXPECT_FALSE(IsTrailerAllowed(name)) << name;
  for (const char* name : {"x-sum", "grpc-status", "grpc-message", "server-timing", "digest", "etag", "x-amz-checksum-crc32"})
    EXPECT_TRUE(IsTrailerAllowed(name)) << name;
}

TEST(Chunked, DropsTrailersByWhatWasAnnouncedAndByName) {
  std::string lines = "x-sum: 9\r\nx_env: prod\r\nx-other: 1\r\n";
  DropNamed(&lines, std::vector<std::string>{"x-env"});
  EXPECT_EQ(lines, "x-sum: 9\r\nx-other: 1\r\n");
  DropUnannounced(&lines, "X-Other");
  EXPECT_EQ(lines, "x-other: 1\r\n");
  DropUnannounced(&lines, "");
  EXPECT_EQ(lines, "");
}

}  // namespace
}  // namespace sluice::proxy
