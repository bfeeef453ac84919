// The HTTP/2 machine alone, frames by hand: the cases of h2spec (RFC 9113 sections 3 to 8, RFC 7541), and abuse.

#include "proxy/h2_session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "tests/proxy/h2_frames.h"

namespace sluice::proxy::testing {
namespace {

constexpr uint32_t kFrameSizeError = 6;
constexpr uint32_t kFlowControlError = 3;
constexpr uint32_t kCompressionError = 9;

/// One end, which remembers what it was told.
class End : public H2Listener {
 public:
  explicit End(H2Role role) : session(role, *this) {}

  /// Bytes in; what the machine sends is kept.
  void Hear(const std::string& bytes) {
    SteadyTime now{std::chrono::seconds(1)};
    (void)session.Feed(bytes, now + clock);
    Buffer out;
    for (;;) {
      (void)session.Write(&out);
      if (out.empty()) break;
      sent_ += out.view();
      out.Clear();
    }
    if (sent_.starts_with(kH2Preface)) sent_.erase(0, kH2Preface.size());
    for (SeenFrame& frame : TakeFrames(&sent_)) {
      if (frame.type == kGoaway) goaway = frame.Number(4);
      if (frame.type == kRstStream) resets[frame.stream] = frame.Number();
      if (frame.type == kHeaders && resets.count(frame.stream) == 0) answered.insert(frame.stream);
      if (frame.type == kData) body[frame.stream] += frame.payload;
      if (frame.type == kPing && (frame.flags & kAck) != 0) pong = frame.payload;
      if (frame.type == kSettings && (frame.flags & kAck) != 0) ++settings_acks;
      frames.push_back(std::move(frame));
    }
  }

  void OnHead(int32_t id, H2Section& section, H2End end) override {
    heads.push_back(id);
    overflowed |= section.overflowed();
    if (end == H2End::kEndStream) return;
    open.insert(static_cast<uint32_t>(id));
  }
  void OnTrailers(int32_t id, H2Section& section) override { trailers[id] = ReadTrailerSection(section); }
  void OnData(int32_t id, std::string_view bytes) override {
    received[id] += bytes;
    if (consume) session.Consume(id, bytes.size());
  }
  void OnEnd(int32_t /*id*/) override {}
  void OnClosed(int32_t id, uint32_t code) override { closed[id] = code; }
  Piece ReadBody(int32_t /*id*/, std::span<char> /*room*/) override { return {}; }

  H2Session session;
  std::chrono::seconds clock{0};
  bool consume = true;
  bool overflowed = false;
  std::vector<int32_t> heads;
  std::set<uint32_t> open;
  std::set<uint32_t> answered;
  std::map<int32_t, std::string> received;
  std::map<int32_t, std::string> trailers;
  std::map<int32_t, uint32_t> closed;
  std::map<uint32_t, std::string> body;
  std::map<uint32_t, uint32_t> resets;
  std::optional<uint32_t> goaway;
  std::string pong;
  int settings_acks = 0;
  std::vector<SeenFrame> frames;

 private:
  std::string sent_;
};

/// Answers every whole request with 200 and a body.
class Server final : public End {
 public:
  Server() : End(H2Role::kServer) { Hear(""); }
  void OnEnd(int32_t id) override {
    H2Output section;
    section.Reset(0);
    section.Add(":status", "200");
    session.Respond(id, section, response_size == 0 ? H2End::kEndStream : H2End::kOpen);
    left[id] = response_size;
  }
  Piece ReadBody(int32_t id, std::span<char> room) override {
    const size_t n = std::min(room.size(), left[id]);
    std::fill_n(room.data(), n, 'x');
    left[id] -= n;
    return {n, left[id] == 0, nullptr};
  }

  size_t response_size = 5;
  std::map<int32_t, size_t> left;
};

/// What Sluice is toward an upstream: it asks, and takes what comes.
class Client final : public End {
 public:
  Client() : End(H2Role::kClient) { Hear(SettingsFrame()); }
  void Ask() {
    H2Output section;
    section.Reset(0);
    const FieldList fields = GetFields("a.test");
    for (const auto& [name, value] : fields) section.Add(name, value);
    (void)session.Request(section, H2End::kEndStream);
    Hear("");
  }
};

std::string Start() { return std::string(kH2Preface) + SettingsFrame(); }

std::string Post(uint32_t stream, const FieldList& more = {}, int flags = kEndHeaders) {
  FieldList fields = {{":method", "POST"}, {":scheme", "https"}, {":authority", "a.test"}, {":path", "/"}};
  fields.insert(fields.end(), more.begin(), more.end());
  return HeadersFrame(stream, fields, flags);
}

std::string Request(uint32_t stream, const FieldList& more = {}) {
  FieldList fields = GetFields("a.test");
  fields.insert(fields.end(), more.begin(), more.end());
  return HeadersFrame(stream, fields);
}

struct Case {
  std::string name;
  std::string bytes;
  enum class Outcome : uint8_t { kAnswered, kStreamError, kConnectionError, kEither } outcome;
  uint32_t code = kH2ProtocolError;
  uint32_t stream = 1;
};
using enum Case::Outcome;

std::vector<Case> WellFormed() {
  std::string padded = Hpack(GetFields("a.test"));
  padded = '\x05' + padded + std::string(5, '\0');
  const auto section = [](const std::string& block) { return Frame(kHeaders, kEndHeaders | kEndStream, 1, block); };
  // GET https / of a.test by RFC 7541: fields of the static table, and one whose name is in it, to be kept.
  const std::string indexed =
      "\x82\x87\x84\x41\x06"
      "a.test";
  const auto depends = [](uint32_t on, uint8_t weight) { return Frame(kPriority, 0, 1, U32(on) + static_cast<char>(weight)); };
  constexpr uint32_t kExclusive = 0x80000000;
  constexpr uint32_t kUnknownCode = 0xff;
  return {
      {"3.4 a preface and a request", Request(1), kAnswered},
      {"5.1 a half-closed stream takes PRIORITY", Request(1) + depends(0, 16), kAnswered},
      {"5.1 a closed stream takes PRIORITY", Request(1) + depends(0, 16) + Request(3), kAnswered, 0, 3},
      {"5.3.2 priorities are deprecated, so that one which depends on itself is ignored too", depends(1, 16) + Request(1),
       kAnswered},
      {"6.3 the least weight", depends(0, 0) + Request(1), kAnswered},
      {"6.3 the most weight", depends(0, 255) + Request(1), kAnswered},
      {"6.3 a dependency", Request(1) + Frame(kPriority, 0, 3, U32(1) + '\x10') + Request(3), kAnswered, 0, 3},
      {"6.3 an exclusive dependency", Request(1) + Frame(kPriority, 0, 3, U32(1 | kExclusive) + '\x10') + Request(3), kAnswered,
       0, 3},
      {"6.4 RST_STREAM closes its stream alone", Post(1) + Frame(kRstStream, 0, 1, U32(8)) + Request(3), kAnswered, 0, 3},
      {"6.4 RST_STREAM on a half-closed stream", Request(1) + Frame(kRstStream, 0, 1, U32(8)) + Request(3), kAnswered, 0, 3},
      {"6.9 WINDOW_UPDATE on the connection", Frame(kWindowUpdate, 0, 0, U32(100)) + Request(1), kAnswered},
      {"7 RST_STREAM with an unknown code", Post(1) + Frame(kRstStream, 0, 1, U32(kUnknownCode)) + Request(3), kAnswered, 0, 3},
      {"8.1 HEAD", HeadersFrame(1, {{":method", "HEAD"}, {":scheme", "https"}, {":authority", "a.test"}, {":path", "/"}}),
       kAnswered},
      {"8.1 a POST of several DATA frames", Post(1) + Frame(kData, 0, 1, "te") + Frame(kData, kEndStream, 1, "st"), kAnswered},
      {"RFC 7541 6.1 and 6.2.1, indexed fields and one to be kept", section(indexed), kAnswered},
      {"6.2.1 a new name to be kept, then both by their index",
       section(indexed + std::string("\x40\x01x\x01y")) + Frame(kHeaders, kEndHeaders | kEndStream, 3, "\x82\x87\x84\xbf\xbe"),
       kAnswered, 0, 3},
      {"6.2.2 a name of the table, not to be kept", section(indexed + "\x0f\x2b\x02xy"), kAnswered},
      {"6.2.3 a new name, never to be kept", section(indexed + "\x10\x01x\x01y"), kAnswered},
      {"6.2.3 a name of the table, never to be kept", section(indexed + "\x1f\x2b\x02xy"), kAnswered},
      {"6.3 table sizes within the limit", section("\x20\x3f\xe1\x1f" + indexed), kAnswered},
      {"5.2 a Huffman code", section(indexed + "\x10\x01x\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"), kAnswered},
      {"4.1 an unknown frame type is ignored", Frame(0xf7, 0, 0, "12345678") + Request(1), kAnswered},
      {"4.1 unknown flags are ignored", Frame(kPing, 0x16, 0, "12345678") + Request(1), kAnswered},
      {"4.1 the reserved bit is ignored", Frame(kPing, 0, 0x80000000, "12345678") + Request(1), kAnswered},
      {"4.2 a DATA frame of the largest size", Post(1) + Frame(kData, kEndStream, 1, std::string(16384, 'x')), kAnswered},
      {"5.1 HEADERS on an idle stream", Request(1), kAnswered},
      {"5.1 PRIORITY on an idle stream", Frame(kPriority, 0, 3, U32(0) + '\x10') + Request(1), kAnswered},
      {"5.1 a half-closed stream takes WINDOW_UPDATE", Request(1) + Frame(kWindowUpdate, 0, 1, U32(100)), kAnswered},
      {"5.3 HEADERS with PRIORITY",
       Frame(kHeaders, kEndHeaders | kEndStream | kPriorityFlag, 1, U32(0) + '\x10' + Hpack(GetFields("a.test"))), kAnswered},
      {"6.1 padded DATA",
       Post(1) + Frame(kData, kEndStream | kPadded, 1,
                       "\x03"
                       "abc" +
                           std::string(3, '\0')),
       kAnswered},
      {"6.2 padded HEADERS", Frame(kHeaders, kEndHeaders | kEndStream | kPadded, 1, padded), kAnswered},
      {"6.5 several SETTINGS", SettingsFrame({{4, 100}, {4, 200}}) + Request(1), kAnswered},
      {"6.5.2 an unknown setting is ignored", SettingsFrame({{0xf0f0, 1}}) + Request(1), kAnswered},
      {"6.10 HEADERS and CONTINUATION",
       Frame(kHeaders, kEndStream, 1, Hpack(GetFields("a.test"))) + Frame(kContinuation, 0, 1, Hpack({{"x", "1"}})) +
           Frame(kContinuation, kEndHeaders, 1, Hpack({{"y", "2"}})),
       kAnswered},
      {"8.1 a POST with trailers",
       Post(1) + Frame(kData, 0, 1, "test") + HeadersFrame(1, {{"x-sum", "1"}}, kEndHeaders | kEndStream), kAnswered},
      {"8.1.1 a content-length that is right", Post(1, {{"content-length", "4"}}) + Frame(kData, kEndStream, 1, "test"),
       kAnswered},
      {"8.1.1 a content-length over two DATA frames",
       Post(1, {{"content-length", "8"}}) + Frame(kData, 0, 1, "test") + Frame(kData, kEndStream, 1, "test"), kAnswered},
      {"8.2.2 TE: trailers", Request(1, {{"te", "trailers"}}), kAnswered},
  };
}

std::vector<Case> BadFrames() {
  return {
      {"4.2 a frame that is too large", Post(1) + Frame(kData, kEndStream, 1, std::string(16385, 'x')), kEither, kFrameSizeError},
      {"4.2 HEADERS that are too large", Frame(kHeaders, kEndHeaders | kEndStream, 1, std::string(16385, '\0')), kConnectionError,
       kFrameSizeError},
      {"4.3 a section that cannot be decoded", Frame(kHeaders, kEndHeaders | kEndStream, 1, "\x40\x81\x09\xff\xff\xff\xff\x3f"),
       kConnectionError, kCompressionError},
      {"4.3 PRIORITY between HEADERS and CONTINUATION",
       Frame(kHeaders, 0, 1, Hpack(GetFields("a.test"))) + Frame(kPriority, 0, 1, U32(0) + '\x01'), kConnectionError},
      {"4.3 HEADERS of another stream before CONTINUATION", Frame(kHeaders, 0, 1, Hpack(GetFields("a.test"))) + Request(3),
       kConnectionError},
      {"5.1 DATA on an idle stream", Frame(kData, kEndStream, 1, "test"), kConnectionError},
      {"5.1 RST_STREAM on an idle stream", Frame(kRstStream, 0, 1, U32(8)), kConnectionError},
      {"5.1 WINDOW_UPDATE on an idle stream", Frame(kWindowUpdate, 0, 1, U32(100)), kConnectionError},
      {"5.1 CONTINUATION on an idle stream", Frame(kContinuation, kEndHeaders, 1, Hpack({{"x", "1"}})), kConnectionError},
      {"5.3.1 HEADERS of a stream that depends on itself",
       Frame(kHeaders, kEndHeaders | kEndStream | kPriorityFlag, 1, U32(1) + '\x10' + Hpack(GetFields("a.test"))), kEither},
      {"5.1 CONTINUATION on a half-closed stream", Request(1) + Frame(kContinuation, kEndHeaders, 1, Hpack({{"x", "1"}})),
       kConnectionError},
      {"5.1 CONTINUATION after RST_STREAM",
       Post(1) + Frame(kRstStream, 0, 1, U32(8)) + Frame(kContinuation, kEndHeaders, 1, Hpack({{"x", "1"}})), kConnectionError},
      {"5.1.1 a stream with an even number", HeadersFrame(2, GetFields("a.test")), kConnectionError},
      {"5.1.1 a stream number that goes back", Request(5) + Request(3), kConnectionError},
      {"5.5 an unknown frame inside a section", Frame(kHeaders, 0, 1, Hpack(GetFields("a.test"))) + Frame(0xf7, 0, 0, "12345678"),
       kConnectionError},
      {"6.1 DATA on stream 0", Frame(kData, kEndStream, 0, "test"), kConnectionError},
      {"6.1 padding longer than the payload",
       Post(1) + Frame(kData, kEndStream | kPadded, 1,
                       "\x09"
                       "abc"),
       kConnectionError},
      {"6.2 HEADERS on stream 0", HeadersFrame(0, GetFields("a.test")), kConnectionError},
      {"6.2 HEADERS padding longer than the payload",
       Frame(kHeaders, kEndHeaders | kEndStream | kPadded, 1, '\xff' + Hpack(GetFields("a.test"))), kConnectionError},
      {"6.3 PRIORITY on stream 0", Frame(kPriority, 0, 0, U32(0) + '\x01'), kConnectionError},
      {"6.3 PRIORITY of another length", Post(1) + Frame(kPriority, 0, 1, U32(0)), kEither, kFrameSizeError},
      {"6.4 RST_STREAM on stream 0", Frame(kRstStream, 0, 0, U32(8)), kConnectionError},
      {"6.4 RST_STREAM of another length", Post(1) + Frame(kRstStream, 0, 1, "\0\0\0"), kConnectionError, kFrameSizeError},
      {"6.5 SETTINGS ACK with a payload", Frame(kSettings, kAck, 0, std::string(6, '\0')), kConnectionError, kFrameSizeError},
      {"6.5 SETTINGS on a stream", Frame(kSettings, 0, 1, std::string("\0\3\0\0\0\x64", 6)), kConnectionError},
      {"6.5 SETTINGS of another length", Frame(kSettings, 0, 0, std::string("\0\3\0\0\0", 5)), kConnectionError, kFrameSizeError},
      {"6.5.2 ENABLE_PUSH other than 0 or 1", SettingsFrame({{2, 2}}), kConnectionError},
      {"6.5.2 INITIAL_WINDOW_SIZE too large", SettingsFrame({{4, 0x80000000}}), kConnectionError, kFlowControlError},
      {"6.5.2 MAX_FRAME_SIZE too small", SettingsFrame({{5, 16383}}), kConnectionError},
      {"6.5.2 MAX_FRAME_SIZE too large", SettingsFrame({{5, 16777216}}), kConnectionError},
      {"6.6 PUSH_PROMISE from a client", Frame(kPushPromise, kEndHeaders, 1, U32(2) + Hpack(GetFields("a.test"))),
       kConnectionError},
      {"6.7 PING on a stream", Frame(kPing, 0, 1, "12345678"), kConnectionError},
      {"6.7 PING of another length", Frame(kPing, 0, 0, "123456"), kConnectionError, kFrameSizeError},
      {"6.8 GOAWAY on a stream", Frame(kGoaway, 0, 1, U32(0) + U32(0)), kConnectionError},
      {"6.9 WINDOW_UPDATE of 0 on the connection", Frame(kWindowUpdate, 0, 0, U32(0)), kConnectionError},
      {"6.9 WINDOW_UPDATE of 0 on a stream", Post(1) + Frame(kWindowUpdate, 0, 1, U32(0)), kEither},
      {"6.9 WINDOW_UPDATE of another length", Frame(kWindowUpdate, 0, 0, "\0\0\1"), kConnectionError, kFrameSizeError},
      {"6.9.1 a connection window over 2^31-1", Frame(kWindowUpdate, 0, 0, U32(0x7fffffff)), kConnectionError, kFlowControlError},
      {"6.9.1 a stream window over 2^31-1", Post(1) + Frame(kWindowUpdate, 0, 1, U32(0x7fffffff)), kEither, kFlowControlError},
      {"6.9.2 INITIAL_WINDOW_SIZE that overflows a window",
       Post(1) + Frame(kWindowUpdate, 0, 1, U32(0x70000000)) + SettingsFrame({{4, 0x7fffffff}}), kEither, kFlowControlError},
      {"6.10 CONTINUATION on stream 0",
       Frame(kHeaders, kEndStream, 1, Hpack(GetFields("a.test"))) + Frame(kContinuation, kEndHeaders, 0, Hpack({{"x", "1"}})),
       kConnectionError},
      {"6.10 CONTINUATION after END_HEADERS", Post(1) + Frame(kContinuation, kEndHeaders, 1, Hpack({{"x", "1"}})),
       kConnectionError},
      {"6.10 CONTINUATION after a CONTINUATION with END_HEADERS",
       Frame(kHeaders, 0, 1, Hpack(GetFields("a.test"))) + Frame(kContinuation, kEndHeaders, 1, Hpack({{"x", "1"}})) +
           Frame(kContinuation, kEndHeaders, 1, Hpack({{"y", "2"}})),
       kConnectionError},
      {"6.10 CONTINUATION after DATA",
       Post(1) + Frame(kData, 0, 1, "x") + Frame(kContinuation, kEndHeaders, 1, Hpack({{"x", "1"}})), kConnectionError},
  };
}

std::vector<Case> BadMessages() {
  const std::string a = "a.test";
  const auto fields = [](FieldList list) { return HeadersFrame(1, list); };
  return {
      {"5.1 DATA on a half-closed stream", Request(1) + Frame(kData, kEndStream, 1, "test"), kEither, kH2StreamClosed},
      {"5.1 HEADERS on a half-closed stream", Request(1) + Request(1), kEither, kH2StreamClosed},
      {"5.1 HEADERS after RST_STREAM", Post(1) + Frame(kRstStream, 0, 1, U32(8)) + Request(1), kStreamError, kH2StreamClosed},
      {"8.1 a second HEADERS without END_STREAM", Post(1) + HeadersFrame(1, {{"x-test", "ok"}}, kEndHeaders), kStreamError},
      {"8.1 a pseudo-header in trailers",
       Post(1) + Frame(kData, 0, 1, "x") + HeadersFrame(1, {{":method", "GET"}}, kEndHeaders | kEndStream), kStreamError},
      {"8.1.1 a content-length that is too large", Post(1, {{"content-length", "9"}}) + Frame(kData, kEndStream, 1, "test"),
       kStreamError},
      {"8.1.1 a content-length that is too small", Post(1, {{"content-length", "1"}}) + Frame(kData, kEndStream, 1, "test"),
       kStreamError},
      {"8.1.1 a content-length over two DATA frames that is wrong",
       Post(1, {{"content-length", "1"}}) + Frame(kData, 0, 1, "test") + Frame(kData, kEndStream, 1, "test"), kStreamError},
      {"8.1.1 a content-length that is no number", Post(1, {{"content-length", "+4"}}) + Frame(kData, kEndStream, 1, "test"),
       kStreamError},
      {"8.1.1 two content-lengths",
       Post(1, {{"content-length", "4"}, {"content-length", "4"}}) + Frame(kData, kEndStream, 1, "test"), kStreamError},
      {"8.2 an upper-case name", Request(1, {{"X-Test", "ok"}}), kStreamError},
      {"8.2.1 a name with a space", Request(1, {{"x test", "ok"}}), kStreamError},
      {"8.2.1 an empty name", Request(1, {{"", "ok"}}), kStreamError},
      {"8.2.1 a value with a line feed", Request(1, {{"x-test", "a\nb"}}), kStreamError},
      {"8.2.1 a value with a carriage return", Request(1, {{"x-test", "a\rb"}}), kStreamError},
      {"8.2.1 a value with a NUL", Request(1, {{"x-test", std::string("a\0b", 3)}}), kStreamError},
      {"8.2.1 a value with a space before it", Request(1, {{"x-test", " a"}}), kStreamError},
      {"8.2.1 a value with a tab behind it", Request(1, {{"x-test", "a\t"}}), kStreamError},
      {"8.2.2 a Connection field", Request(1, {{"connection", "keep-alive"}}), kStreamError},
      {"8.2.2 a Keep-Alive field", Request(1, {{"keep-alive", "5"}}), kStreamError},
      {"8.2.2 a Proxy-Connection field", Request(1, {{"proxy-connection", "x"}}), kStreamError},
      {"8.2.2 a Transfer-Encoding field", Request(1, {{"transfer-encoding", "chunked"}}), kStreamError},
      {"8.2.2 an Upgrade field", Request(1, {{"upgrade", "h2c"}}), kStreamError},
      {"8.2.2 TE other than trailers", Request(1, {{"te", "trailers, deflate"}}), kStreamError},
      {"8.3 an unknown pseudo-header", Request(1, {{":test", "ok"}}), kStreamError},
      {"8.3 a response's pseudo-header", Request(1, {{":status", "200"}}), kStreamError},
      {"8.3 a pseudo-header after a field",
       fields({{":method", "GET"}, {":scheme", "https"}, {":authority", a}, {"x-test", "ok"}, {":path", "/"}}), kStreamError},
      {"8.3.1 an empty :path", fields({{":method", "GET"}, {":scheme", "https"}, {":authority", a}, {":path", ""}}),
       kStreamError},
      {"8.3.1 no :method", fields({{":scheme", "https"}, {":authority", a}, {":path", "/"}}), kStreamError},
      {"8.3.1 no :scheme", fields({{":method", "GET"}, {":authority", a}, {":path", "/"}}), kStreamError},
      {"8.3.1 no :path", fields({{":method", "GET"}, {":scheme", "https"}, {":authority", a}}), kStreamError},
      {"8.3.1 :method twice", Request(1, {{":method", "GET"}}), kStreamError},
      {"8.3.1 :scheme twice",
       fields({{":method", "GET"}, {":scheme", "https"}, {":scheme", "https"}, {":authority", a}, {":path", "/"}}), kStreamError},
      {"8.3.1 :path twice",
       fields({{":method", "GET"}, {":scheme", "https"}, {":authority", a}, {":path", "/"}, {":path", "/x"}}), kStreamError},
      {"8.3.1 :authority twice",
       fields({{":method", "GET"}, {":scheme", "https"}, {":authority", a}, {":authority", a}, {":path", "/"}}), kStreamError},
      {"8.5 CONNECT with :path", fields({{":method", "CONNECT"}, {":authority", a}, {":path", "/"}}), kStreamError},
      {"RFC 8441 :protocol beside another method than CONNECT",
       fields({{":method", "GET"}, {":protocol", "websocket"}, {":scheme", "https"}, {":authority", a}, {":path", "/"}}),
       kStreamError},
  };
}

std::vector<Case> BadCompression() {
  const std::string good = Hpack(GetFields("a.test"));
  const auto section = [](const std::string& block) { return Frame(kHeaders, kEndHeaders | kEndStream, 1, block); };
  return {
      {"2.3.3 an index beyond the tables", section(good + HpackInteger(0x80, 7, 70)), kConnectionError, kCompressionError},
      {"2.3.3 an index of 0", section(good + '\x80'), kConnectionError, kCompressionError},
      {"4.2 a table size update at the end", section(good + '\x21'), kConnectionError, kCompressionError},
      {"5.1 an integer that never ends", section('\x7f' + std::string(12, '\xff') + good), kConnectionError, kCompressionError},
      {"5.2 padding of a Huffman code over 7 bits",
       section(good + std::string("\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff", 12)), kConnectionError, kCompressionError},
      {"5.2 padding of a Huffman code with zeros",
       section(good + std::string("\x00\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x90", 11)), kConnectionError, kCompressionError},
      {"5.2 a Huffman code that holds the end of strings", section(good + std::string("\x00\x01x\x84\xff\xff\xff\xff", 8)),
       kConnectionError, kCompressionError},
      {"6.3 a table size over the limit", section("\x3f\xe1\xff\x03" + good), kConnectionError, kCompressionError},
      {"a string longer than its frame", section(good + std::string("\x00\x05x", 3)), kConnectionError, kCompressionError},
  };
}

void Try(const Case& c) {
  SCOPED_TRACE(c.name);
  Server server;
  server.Hear(Start());
  server.Hear(c.bytes);
  const bool reset = server.resets.count(c.stream) != 0;
  switch (c.outcome) {
    case kAnswered:
      EXPECT_TRUE(server.answered.count(c.stream)) << server.session.failure();
      EXPECT_FALSE(server.goaway && *server.goaway != 0) << server.session.failure();
      break;
    case kStreamError:
      ASSERT_TRUE(reset) << server.session.failure();
      EXPECT_EQ(server.resets[c.stream], c.code);
      EXPECT_FALSE(server.goaway && *server.goaway != 0) << server.session.failure();
      EXPECT_FALSE(server.answered.count(c.stream) && server.body[c.stream] == "xxxxx");
      break;
    case kConnectionError:
      ASSERT_TRUE(server.goaway);
      EXPECT_EQ(*server.goaway, c.code) << server.session.failure();
      EXPECT_FALSE(server.session.failure().empty());
      EXPECT_TRUE(server.session.done());
      break;
    case kEither:
      ASSERT_TRUE(reset || server.goaway);
      EXPECT_EQ(reset ? server.resets[c.stream] : *server.goaway, c.code) << server.session.failure();
      break;
  }
}

TEST(H2Spec, LetsWhatIsOpenEndAfterGoaway) {
  Server server;
  // With a code that nobody knows (section 7).
  server.Hear(Start() + Post(1) + Frame(kGoaway, 0, 0, U32(0) + U32(0xff)) + Frame(kData, kEndStream, 1, "test"));
  EXPECT_TRUE(server.answered.count(1)) << server.session.failure();
  EXPECT_EQ(server.received[1], "test");
}

TEST(H2Spec, ASectionOnAStreamThatHasEndedEndsTheConnection) {
  for (const bool continuation : {false, true}) {
    Server server;
    server.Hear(Start() + Request(1));
    ASSERT_TRUE(server.closed.count(1));
    server.Hear(continuation ? Frame(kContinuation, kEndHeaders, 1, Hpack({{"x", "1"}})) : Request(1));
    EXPECT_EQ(server.heads.size(), 1u);
    ASSERT_TRUE(server.goaway);
    EXPECT_EQ(*server.goaway, continuation ? uint32_t{kH2ProtocolError} : uint32_t{kH2StreamClosed});
  }
}

// Section 5.1 asks for STREAM_CLOSED, but nghttp2 lets such DATA go by without a word: it reaches nobody, and its neighbours
// live.
TEST(H2Spec, DataOfAStreamThatIsGoneIsLetGoBy) {
  for (const std::string& gone : {Request(1), Post(1) + Frame(kRstStream, 0, 1, U32(8))}) {
    Server server;
    server.Hear(Start() + gone);
    ASSERT_TRUE(server.closed.count(1));
    server.Hear(Frame(kData, kEndStream, 1, "test") + Request(3));
    EXPECT_EQ(server.received[1], "");
    EXPECT_TRUE(server.answered.count(3)) << server.session.failure();
  }
}

// What the client sent before it knew.
TEST(H2Spec, FramesThatCrossAResetAreLetGoBy) {
  Server server;
  server.Hear(Start() + Post(1) + Post(3));
  server.session.Reset(1, kH2NoError);
  server.Hear("");
  ASSERT_TRUE(server.closed.count(1));
  server.Hear(Frame(kData, 0, 1, "late") + HeadersFrame(1, {{"x-late", "1"}}));
  server.Hear(Frame(kData, kEndStream, 3, "test"));
  EXPECT_EQ(server.resets[1], uint32_t{kH2NoError});
  EXPECT_TRUE(server.answered.count(3)) << server.session.failure();
}

TEST(H2Spec, FramesOfARefusedStreamAreLetGoBy) {
  Server server;
  std::string many = Start();
  // Before the client can know how many it may open.
  for (uint32_t i = 0; i <= kH2MaxStreams; ++i) many += Post(2 * i + 1) + Frame(kData, 0, 2 * i + 1, "x");
  server.Hear(many);
  EXPECT_EQ(server.resets[2 * kH2MaxStreams + 1], uint32_t{kH2RefusedStream});
  server.Hear(Frame(kData, kEndStream, 2 * kH2MaxStreams + 1, "x") + Frame(kData, kEndStream, 1, "x"));
  EXPECT_TRUE(server.answered.count(1)) << server.session.failure();
}

TEST(H2Spec, OfStreamsLongGoneTheConnectionStillEnds) {
  Server server;
  server.Hear(Start());
  for (uint32_t i = 0; i < 2 * kH2MaxPastStreams; ++i) server.Hear(Request(2 * i + 1));
  server.Hear(Request(1));
  ASSERT_TRUE(server.goaway);
  EXPECT_EQ(*server.goaway, uint32_t{kH2ProtocolError});
}

TEST(H2Spec, TakesWhatIsWellFormed) {
  for (const Case& c : WellFormed()) Try(c);
}

TEST(H2Spec, RefusesBadFrames) {
  for (const Case& c : BadFrames()) Try(c);
}

TEST(H2Spec, RefusesBadMessages) {
  for (const Case& c : BadMessages()) Try(c);
}

TEST(H2Spec, RefusesBadCompression) {
  for (const Case& c : BadCompression()) Try(c);
}

TEST(H2Spec, RefusesWhatIsNoPreface) {
  Server server;
  server.Hear("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
  EXPECT_FALSE(server.session.failure().empty());
}

TEST(H2Spec, RefusesAPrefaceWithoutSettings) {
  Server server;
  server.Hear(std::string(kH2Preface) + Frame(kPing, 0, 0, "12345678"));
  ASSERT_TRUE(server.goaway);
  EXPECT_EQ(*server.goaway, uint32_t{kH2ProtocolError});
}

TEST(H2Spec, AnswersPingAndSettings) {
  Server server;
  server.Hear(Start() + Frame(kPing, 0, 0, "sluice!!"));
  EXPECT_EQ(server.pong, "sluice!!");
  EXPECT_EQ(server.settings_acks, 1);
  server.pong.clear();
  server.Hear(Frame(kPing, kAck, 0, "12345678"));
  EXPECT_EQ(server.pong, "");
}

TEST(H2Spec, NeverSendsMoreThanTheWindows) {
  Server server;
  server.response_size = 100;
  server.Hear(Start() + SettingsFrame({{4, 1}}) + Request(1));
  EXPECT_EQ(server.body[1].size(), 1u);
  server.Hear(Frame(kWindowUpdate, 0, 1, U32(10)));
  EXPECT_EQ(server.body[1].size(), 11u);
  server.Hear(SettingsFrame({{4, 20}}));
  EXPECT_EQ(server.body[1].size(), 30u);
  // A window may become negative (section 6.9.2).
  server.Hear(SettingsFrame({{4, 0}}) + Frame(kWindowUpdate, 0, 1, U32(25)));
  EXPECT_EQ(server.body[1].size(), 35u);
  server.Hear(Frame(kWindowUpdate, 0, 1, U32(1000)));
  EXPECT_EQ(server.body[1].size(), 100u);
}

TEST(H2Spec, OpensAWindowOnlyAsBytesAreConsumed) {
  Server server;
  server.consume = false;
  server.Hear(Start() + Frame(kSettings, kAck, 0, "") + Post(1));
  const std::string piece(16384, 'x');
  for (int i = 0; i < 4; ++i) server.Hear(Frame(kData, 0, 1, piece));
  for (const SeenFrame& frame : server.frames) EXPECT_FALSE(frame.type == kWindowUpdate && frame.stream == 1);
  server.session.Consume(1, 65536);
  server.Hear("");
  EXPECT_TRUE(std::ranges::any_of(server.frames, [](const SeenFrame& f) { return f.type == kWindowUpdate && f.stream == 1; }));
  EXPECT_TRUE(server.session.failure().empty());
}

TEST(H2Spec, RefusesMoreThanTheWindow) {
  Server server;
  server.consume = false;
  server.Hear(Start() + Post(1));
  const std::string piece(16384, 'x');
  for (int i = 0; i < 5; ++i) server.Hear(Frame(kData, 0, 1, piece));
  EXPECT_TRUE(server.resets.count(1) != 0 || server.goaway);
}

TEST(H2Spec, RefusesMoreStreamsThanItAllows) {
  Server server;
  server.Hear(Start() + Frame(kSettings, kAck, 0, ""));
  std::string many;
  for (uint32_t i = 0; i <= kH2MaxStreams; ++i) many += Post(2 * i + 1);
  server.Hear(many);
  EXPECT_EQ(server.heads.size(), size_t{kH2MaxStreams});
  EXPECT_TRUE(server.resets.count(2 * kH2MaxStreams + 1) != 0 || (server.goaway && *server.goaway != 0));
}

TEST(H2Spec, PassesTrailersButNoFramingInThem) {
  Server server;
  server.Hear(Start() + Post(1) + Frame(kData, 0, 1, "x") +
              HeadersFrame(1, {{"grpc-status", "0"}, {"authorization", "x"}, {"x-sluice-denied", "d-1"}}));
  EXPECT_EQ(server.trailers[1], "grpc-status: 0\r\n");
}

// Abuse, of either end: of a client, and of an upstream.
struct Flood {
  std::string name;
  std::function<std::string(uint32_t)> piece;
};

void ExpectCalm(End& end) {
  EXPECT_EQ(end.session.failure_code(), uint32_t{kH2EnhanceYourCalm}) << end.session.failure();
  ASSERT_TRUE(end.goaway);
  EXPECT_EQ(*end.goaway, uint32_t{kH2EnhanceYourCalm});
  EXPECT_TRUE(end.session.done());
}

/// Sends pieces of it until the other end gives up.
void Drown(End& end, const Flood& flood) {
  uint32_t i = 0;
  for (; i < 20000 && end.session.failure().empty(); ++i) end.Hear(flood.piece(i));
  EXPECT_LT(i, 3000u);
  ExpectCalm(end);
}

const std::vector<Flood>& FloodsOfEitherEnd() {
  static const std::vector<Flood> floods = {
      {"settings", [](uint32_t /*i*/) { return SettingsFrame({{4, 65535}}); }},
      {"pings", [](uint32_t /*i*/) { return Frame(kPing, 0, 0, "12345678"); }},
      {"ping answers", [](uint32_t /*i*/) { return Frame(kPing, kAck, 0, "12345678"); }},
      {"priorities", [](uint32_t i) { return Frame(kPriority, 0, 2 * i + 1, U32(0) + '\x10'); }},
      {"window updates", [](uint32_t /*i*/) { return Frame(kWindowUpdate, 0, 0, U32(1)); }},
  };
  return floods;
}

TEST(H2Abuse, EndsAClientsFloodsAndSaysSo) {
  const std::vector<Flood> floods = {
      {"rapid reset", [](uint32_t i) { return Request(2 * i + 1) + Frame(kRstStream, 0, 2 * i + 1, U32(8)); }},
      {"streams that this side must reset", [](uint32_t i) { return Request(2 * i + 1, {{"Bad", "x"}}); }},
      {"empty data", [](uint32_t i) { return (i == 0 ? Post(1) : std::string()) + Frame(kData, 0, 1, ""); }},
  };
  for (const std::vector<Flood>& all : {floods, FloodsOfEitherEnd()}) {
    for (const Flood& flood : all) {
      SCOPED_TRACE(flood.name);
      Server server;
      server.Hear(Start());
      Drown(server, flood);
    }
  }
}

TEST(H2Abuse, EndsAnUpstreamsFloodsAndSaysSo) {
  Client* asking = nullptr;
  const auto answer = [&](uint32_t i, const FieldList& more, int flags) {
    asking->Ask();
    FieldList fields = {{":status", "200"}};
    fields.insert(fields.end(), more.begin(), more.end());
    return HeadersFrame(2 * i + 1, fields, flags);
  };
  const std::vector<Flood> answers = {
      {"resets", [&](uint32_t i) { return answer(i, {}, kEndHeaders) + Frame(kRstStream, 0, 2 * i + 1, U32(8)); }},
      {"streams that this side must reset", [&](uint32_t i) { return answer(i, {{"Bad", "x"}}, kEndHeaders); }},
      {"empty data", [&](uint32_t i) { return (i == 0 ? answer(i, {}, kEndHeaders) : std::string()) + Frame(kData, 0, 1, ""); }},
  };
  for (const std::vector<Flood>& all : {answers, FloodsOfEitherEnd()}) {
    for (const Flood& flood : all) {
      SCOPED_TRACE(flood.name);
      Client client;
      asking = &client;
      Drown(client, flood);
    }
  }
}

TEST(H2Abuse, LetsAPatientClientPing) {
  Server server;
  server.Hear(Start());
  for (int i = 0; i < 5000; ++i) {
    server.clock += std::chrono::seconds(1);
    server.Hear(Frame(kPing, 0, 0, "12345678"));
  }
  EXPECT_TRUE(server.session.failure().empty()) << server.session.failure();
}

TEST(H2Abuse, LetsDataEarnWindowUpdates) {
  Server server;
  server.response_size = 8 << 20;
  server.Hear(Start() + Request(1));
  for (int i = 0; i < 5000 && server.left[1] != 0; ++i)
    server.Hear(Frame(kWindowUpdate, 0, 1, U32(4096)) + Frame(kWindowUpdate, 0, 0, U32(4096)));
  EXPECT_TRUE(server.session.failure().empty()) << server.session.failure();
  EXPECT_EQ(server.left[1], 0u);
}

/// After a section of stream 1 has begun.
void FloodWithContinuations(End& end) {
  int i = 0;
  for (; i < 1000 && end.session.failure().empty() && !end.goaway; ++i) end.Hear(Frame(kContinuation, 0, 1, Hpack({{"x", "y"}})));
  EXPECT_LE(i, 16);
  EXPECT_FALSE(end.session.failure().empty());
}

TEST(H2Abuse, EndsAContinuationFloodOfEitherEnd) {
  Server server;
  server.Hear(Start() + Frame(kHeaders, kEndStream, 1, Hpack(GetFields("a.test"))));
  FloodWithContinuations(server);
  Client client;
  client.Ask();
  client.Hear(Frame(kHeaders, kEndStream, 1, Hpack({{":status", "200"}})));
  FloodWithContinuations(client);
}

TEST(H2Abuse, KeepsLittleOfALargeSectionAndAnswersIt) {
  Server server;
  FieldList fields = GetFields("a.test");
  fields.emplace_back("x-large", std::string(kMaxHeadBytes, 'x'));
  const std::string block = Hpack(fields);
  server.Hear(Start() + Frame(kHeaders, kEndStream, 1, block.substr(0, 16000)) +
              Frame(kContinuation, 0, 1, block.substr(16000, 16000)) + Frame(kContinuation, kEndHeaders, 1, block.substr(32000)));
  EXPECT_TRUE(server.overflowed);
  EXPECT_TRUE(server.session.failure().empty()) << server.session.failure();
}

/// One entry of almost 4 KiB in the dynamic table, then referred to by one octet each.
std::string Bomb(const FieldList& fields) {
  const std::string entry = '\x40' + HpackString("x-bomb") + HpackString(std::string(3900, 'b'));
  return Frame(kHeaders, kEndHeaders | kEndStream, 1, Hpack(fields) + entry + std::string(8000, '\xbe'));
}

TEST(H2Abuse, EndsACompressionBombOfEitherEnd) {
  Server server;
  server.Hear(Start() + Bomb(GetFields("a.test")));
  ExpectCalm(server);
  Client client;
  client.Ask();
  client.Hear(Bomb({{":status", "200"}}));
  ExpectCalm(client);
}

// A section is under way as long as its frames are, whatever became of its stream meanwhile.
TEST(H2Sections, EndWithTheirLastFrameWhereTheStreamWasGivenUpBefore) {
  const std::string whole = Frame(kHeaders, kEndHeaders, 1, Hpack({{":status", "200"}, {"x-words", std::string(200, 'w')}}));
  Client cut;  // one frame in two reads
  cut.Ask();
  cut.Hear(whole.substr(0, 60));
  EXPECT_TRUE(cut.session.section_since());
  cut.session.Reset(1, kH2Cancel);
  cut.Hear(whole.substr(60));
  EXPECT_FALSE(cut.session.section_since());
  Client continued;  // two frames
  continued.Ask();
  continued.Hear(Frame(kHeaders, 0, 1, Hpack({{":status", "200"}})));
  continued.session.Reset(1, kH2Cancel);
  continued.Hear("");
  EXPECT_TRUE(continued.session.section_since());
  continued.Hear(Frame(kContinuation, kEndHeaders, 1, Hpack({{"x", "y"}})));
  EXPECT_FALSE(continued.session.section_since());
  EXPECT_TRUE(continued.session.failure().empty()) << continued.session.failure();
}

}  // namespace
}  // namespace sluice::proxy::testing
