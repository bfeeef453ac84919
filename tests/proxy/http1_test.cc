// Heads and framing, row by row of what request smuggling tries.

#include "proxy/http1.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice::proxy {
namespace {

// What becomes of a request's bytes: 0 where it is understood, else the status it is refused with.
int RequestStatus(std::string bytes, Framing* framing = nullptr) {
  size_t resume = 0;
  const auto end = FindHeadEnd(bytes, &resume);
  if (!end) return end.error().status;
  if (*end == 0) return -1;
  RequestHead head;
  if (const Fault fault = ParseRequestHead({bytes.data(), *end}, &head)) return fault.status;
  const auto framed = RequestFraming(head);
  if (!framed) return framed.error().status;
  if (framing != nullptr) *framing = *framed;
  return 0;
}

struct RequestRow {
  const char* name;
  std::string bytes;
  int status;
};

std::string Post(const std::string& fields) { return "POST / HTTP/1.1\r\nHost: a.test\r\n" + fields + "\r\n"; }
std::string Line(const std::string& line) { return line + "\r\nHost: a.test\r\n\r\n"; }

TEST(RequestHead, RefusesWhatTwoReadersCouldReadDifferently) {
  const RequestRow rows[] = {
      {"plain", Line("GET / HTTP/1.1"), 0},
      {"CL and TE", Post("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), 400},
      {"TE and CL", Post("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"), 400},
      {"two differing CL", Post("Content-Length: 3\r\nContent-Length: 4\r\n"), 400},
      {"two equal CL", Post("Content-Length: 3\r\nContent-Length: 3\r\n"), 400},
      {"CL list", Post("Content-Length: 3, 3\r\n"), 400},
      {"CL +2", Post("Content-Length: +2\r\n"), 400},
      {"CL 0x2", Post("Content-Length: 0x2\r\n"), 400},
      {"CL -1", Post("Content-Length: -1\r\n"), 400},
      {"CL empty", Post("Content-Length:\r\n"), 400},
      {"CL 2 3", Post("Content-Length: 2 3\r\n"), 400},
      {"CL 2^64", Post("Content-Length: 18446744073709551616\r\n"), 400},
      {"CL 2^63", Post("Content-Length: 9223372036854775808\r\n"), 400},
      {"TE identity", Post("Transfer-Encoding: identity\r\n"), 501},
      {"TE gzip, chunked", Post("Transfer-Encoding: gzip, chunked\r\n"), 501},
      {"TE leading comma", Post("Transfer-Encoding: , chunked\r\n"), 501},
      {"TE chunked twice", Post("Transfer-Encoding: chunked, chunked\r\n"), 501},
      {"TE two fields", Post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
      {"TE xchunked", Post("Transfer-Encoding: xchunked\r\n"), 501},
      {"TE quoted", Post("Transfer-Encoding: \"chunked\"\r\n"), 501},
      {"TE VT", Post("Transfer-Encoding: \vchunked\r\n"), 400},
      {"TE empty", Post("Transfer-Encoding:\r\n"), 501},
      {"TE in capitals", Post("TRANSFER-ENCODING: CHUNKED\r\n"), 0},
      {"TE in HTTP/1.0", "POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"TE with an underscore", Post("Transfer_Encoding: chunked\r\n"), 400},
      {"CL with an underscore", Post("content_length: 3\r\n"), 400},
      {"content type with an underscore", Post("Content_Type: application/x-git-upload-pack-request\r\n"), 400},
      {"another name with an underscore", Post("X_Y: 1\r\n"), 0},
      {"space before colon", Post("Content-Length : 3\r\n"), 400},
      {"tab before colon", Post("Content-Length\t: 3\r\n"), 400},
      {"fold before first field", "GET / HTTP/1.1\r\n Host: a.test\r\n\r\n", 400},
      {"fold", Post("X: 1\r\n 2\r\n"), 400},
      {"bare LF everywhere", "GET / HTTP/1.1\nHost: a.test\n\n", 400},
      {"bare LF after a field", "GET / HTTP/1.1\r\nHost: a.test\nX: 1\r\n\r\n", 400},
      {"bare LF before the end", "GET / HTTP/1.1\r\nHost: a.test\r\n\n", 400},
      {"bare CR in value", Post("X: 1\r2\r\n"), 400},
      {"bare CR before CRLF", Post("X: 1\r\r\n"), 400},
      {"NUL in value", Post(std::string("X: 1\0", 5) + "\r\n"), 400},
      {"DEL in value", Post("X: 1\x7f\r\n"), 400},
      {"space in name", Post("X Y: 1\r\n"), 400},
      {"8-bit name", Post("X\xe9: 1\r\n"), 400},
      {"empty name", Post(": 1\r\n"), 400},
      {"no colon", Post("XYZ\r\n"), 400},
      {"8-bit value", Post("X: caf\xc3\xa9\r\n"), 0},
      {"double space", Line("GET  / HTTP/1.1"), 400},
      {"double space before version", Line("GET /  HTTP/1.1"), 400},
      {"tab in request line", Line("GET\t/ HTTP/1.1"), 400},
      {"trailing space", Line("GET / HTTP/1.1 "), 400},
      {"HTTP/1.2", Line("GET / HTTP/1.2"), 505},
      {"HTTP/2.0", Line("GET / HTTP/2.0"), 505},
      {"lower-case http", Line("GET / http/1.1"), 400},
      {"HTTP/1.10", Line("GET / HTTP/1.10"), 400},
      {"HTTP/0.9", "GET /\r\n\r\n", 400},
      {"HTTP/1.0 without Host", "GET / HTTP/1.0\r\n\r\n", 0},
      {"no Host", "GET / HTTP/1.1\r\n\r\n", 400},
      {"two Host", "GET / HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n", 400},
      {"empty method", Line(" / HTTP/1.1"), 400},
      {"method not a token", Line("G(T / HTTP/1.1"), 400},
      {"8-bit target", Line("GET /\xe9 HTTP/1.1"), 400},
      {"NUL in target", Line(std::string("GET /\0 HTTP/1.1", 15)), 400},
      {"Expect other", Post("Expect: 200-ok\r\n"), 417},
      {"Connection malformed", Post("Connection: a b\r\n"), 400},
      {"empty line first", "\r\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n", 400},
      {"20 KB target", Line("GET /" + std::string(20480, 'a') + " HTTP/1.1"), 414},
      {"huge field", Post("X: " + std::string(40000, 'a') + "\r\n"), 431},
      {"300 fields", Post([] {
         std::string fields;
         for (int i = 0; i < 300; ++i) fields += "X" + std::to_string(i) + ": 1\r\n";
         return fields;
       }()),
       431},
      {"unfinished", "GET / HTTP/1.1\r\nHost: a.test\r\n", -1},
  };
  for (const auto& row : rows) EXPECT_EQ(RequestStatus(row.bytes), row.status) << row.name;
}

TEST(RequestHead, IsTheSameInPieces) {
  const std::string bytes = "POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello";
  size_t resume = 0;
  size_t end = 0;
  for (size_t n = 1; n <= bytes.size() && end == 0; ++n) {
    const auto found = FindHeadEnd(std::string_view(bytes).substr(0, n), &resume);
    ASSERT_TRUE(found.has_value());
    end = *found;
  }
  EXPECT_EQ(end, bytes.size() - 5);
}

TEST(RequestHead, DropsHopByHopFieldsAndThoseThatConnectionNames) {
  std::string bytes =
      "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: x-drop, Host, keep-alive\r\nX-Drop: 1\r\nX-Keep: 2\r\nKeep-Alive: 3\r\n"
      "Upgrade: h2c\r\nHTTP2-Settings: x\r\nTE: trailers\r\nProxy-Authorization: y\r\nProxy-Connection: z\r\n\r\n";
  RequestHead head;
  ASSERT_FALSE(ParseRequestHead({bytes.data(), bytes.size()}, &head));
  std::string kept;
  for (const Field& field : head.fields)
    if (field.forward) kept += std::string(field.name) + "=" + std::string(field.value) + ";";
  EXPECT_EQ(kept, "x-keep=2;");
  EXPECT_EQ(head.host, "a.test");
  EXPECT_TRUE(head.te_trailers);
  EXPECT_TRUE(head.persistent());
}

TEST(RequestHead, FramesBodies) {
  Framing framing;
  EXPECT_EQ(RequestStatus(Post(""), &framing), 0);
  EXPECT_EQ(framing.kind, BodyKind::kNone);
  EXPECT_EQ(RequestStatus(Post("Content-Length: 007\r\n"), &framing), 0);
  EXPECT_EQ(framing.length, 7u);
  EXPECT_EQ(RequestStatus(Post("Transfer-Encoding: chunked\r\n"), &framing), 0);
  EXPECT_EQ(framing.kind, BodyKind::kChunked);
  EXPECT_EQ(RequestStatus("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775807\r\n\r\n", &framing), 0);
  EXPECT_EQ(framing.length, 9223372036854775807u);
}

int ResponseStatus(std::string bytes, std::string_view method, Framing* framing) {
  size_t resume = 0;
  const auto end = FindHeadEnd(bytes, &resume);
  if (!end) return 502;
  if (*end == 0) return -1;
  ResponseHead head;
  if (const Fault fault = ParseResponseHead({bytes.data(), *end}, &head)) return fault.status;
  const auto framed = ResponseFraming(head, method);
  if (!framed) return framed.error().status;
  *framing = *framed;
  return 0;
}

TEST(ResponseHead, IsRefusedOrFramedAsRfc9112Says) {
  struct Row {
    const char* name;
    std::string bytes;
    const char* method;
    int status;
    BodyKind kind;
  };
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const Row rows[] = {
      {"length", ok + "Content-Length: 5\r\n\r\n", "GET", 0, BodyKind::kLength},
      {"chunked", ok + "Transfer-Encoding: chunked\r\n\r\n", "GET", 0, BodyKind::kChunked},
      {"until close", ok + "\r\n", "GET", 0, BodyKind::kUntilClose},
      {"no reason", "HTTP/1.1 200\r\n\r\n", "GET", 0, BodyKind::kUntilClose},
      {"HEAD", ok + "Content-Length: 5\r\n\r\n", "HEAD", 0, BodyKind::kNone},
      {"204", "HTTP/1.1 204 No Content\r\n\r\n", "GET", 0, BodyKind::kNone},
      {"304", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "GET", 0, BodyKind::kNone},
      {"100", "HTTP/1.1 100 Continue\r\n\r\n", "POST", 0, BodyKind::kNone},
      {"CL and TE", ok + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", 502, {}},
      {"two CL", ok + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", "GET", 502, {}},
      {"CL and TE to HEAD", ok + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "HEAD", 502, {}},
      {"TE gzip", ok + "Transfer-Encoding: gzip\r\n\r\n", "GET", 502, {}},
      {"TE in 1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", 502, {}},
      {"not HTTP", "SSH-2.0-OpenSSH\r\n\r\n", "GET", 502, {}},
      {"HTTP/2", "HTTP/2.0 200 OK\r\n\r\n", "GET", 502, {}},
      {"status 99", "HTTP/1.1 099 X\r\n\r\n", "GET", 502, {}},
      {"status 2x0", "HTTP/1.1 2x0 X\r\n\r\n", "GET", 502, {}},
      {"four digits", "HTTP/1.1 2000 X\r\n\r\n", "GET", 502, {}},
      {"bare LF", "HTTP/1.1 200 OK\nContent-Length: 5\n\n", "GET", 502, {}},
      {"fold", ok + "X: 1\r\n 2\r\n\r\n", "GET", 502, {}},
      {"space before colon", ok + "X : 1\r\n\r\n", "GET", 502, {}},
      {"control in reason", "HTTP/1.1 200 O\x01K\r\n\r\n", "GET", 502, {}},
  };
  for (const auto& row : rows) {
    Framing framing;
    EXPECT_EQ(ResponseStatus(row.bytes, row.method, &framing), row.status) << row.name;
    if (row.status == 0) {
      EXPECT_EQ(framing.kind, row.kind) << row.name;
    }
  }
}

}  // namespace
}  // namespace sluice::proxy
