#include "proxy/websocket.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace sluice::proxy {
namespace {

using Opcode = WebSocketOpcode;

struct Seen {
  std::string text;  ///< "text+ abc|cont abc|ping x|close 1000 bye", a '+' where more frames follow
  uint16_t fault = 0;
  size_t used = 0;
  bool operator==(const Seen&) const = default;
};

std::string_view Name(Opcode opcode) {
  switch (opcode) {
    case Opcode::kContinuation:
      return "cont";
    case Opcode::kText:
      return "text";
    case Opcode::kBinary:
      return "bin";
    case Opcode::kClose:
      return "close";
    case Opcode::kPing:
      return "ping";
    case Opcode::kPong:
      return "pong";
  }
  return "?";
}

Seen Read(std::string bytes, size_t piece, WebSocketSide side = WebSocketSide::kServer,
          WebSocketCompression compression = WebSocketCompression::kNone, uint64_t max_message = kMaxWebSocketMessage) {
  WebSocketReader reader(side, compression, max_message);
  Seen seen;
  size_t end = std::min(piece, bytes.size());
  while (!reader.closed()) {
    const auto step = reader.Next({bytes.data() + seen.used, end - seen.used});
    if (!step) {
      seen.fault = step.error().code;
      return seen;
    }
    if (step->what == WebSocketReader::What::kNeedMore) {
      if (end == bytes.size()) break;
      end = std::min(end + piece, bytes.size());
      continue;
    }
    seen.used += step->consumed;
    const std::string_view data(step->data.data(), step->data.size());
    if (step->what == WebSocketReader::What::kControl && step->frame.opcode == Opcode::kClose) {
      seen.text += fmt::format("close {} {}|", reader.close_code(), data.size() > 2 ? data.substr(2) : "");
      continue;
    }
    if (step->what != WebSocketReader::What::kPayload)
      seen.text +=
          fmt::format("{}{}{} ", Name(step->frame.opcode), step->frame.compressed ? "z" : "", step->frame.fin ? "" : "+");
    seen.text += data;
    if (step->frame_end || step->what == WebSocketReader::What::kControl) seen.text += "|";
  }
  return seen;
}

std::string Frame(unsigned first, std::string_view payload) {
  std::string out(1, static_cast<char>(first));
  if (payload.size() < 126) {
    out += static_cast<char>(payload.size());
  } else if (payload.size() < 65536) {
    out += {126, static_cast<char>(payload.size() >> 8), static_cast<char>(payload.size() & 0xff)};
  } else {
    out += {127, 0, 0, 0, 0};
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(payload.size() >> shift & 0xff);
  }
  return out.append(payload);
}

std::string Close(uint16_t code, std::string_view reason = "") {
  return Frame(0x88, std::string{static_cast<char>(code >> 8), static_cast<char>(code & 0xff)}.append(reason));
}

TEST(WebSocket, ReadsWhatRfc6455Shows) {
  const struct {
    std::string bytes;
    WebSocketSide side;
    std::string text;
  } rows[] = {
      {"\x81\x05Hello", WebSocketSide::kServer, "text Hello|"},
      {"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", WebSocketSide::kClient, "text Hello|"},
      {std::string("\x01\x03Hel\x80\x02lo", 9), WebSocketSide::kServer, "text+ Hel|cont lo|"},
      {"\x89\x05Hello", WebSocketSide::kServer, "ping Hello|"},
      {"\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", WebSocketSide::kClient, "pong Hello|"},
      {Frame(0x82, std::string(256, 'x')), WebSocketSide::kServer, "bin " + std::string(256, 'x') + "|"},
      {Frame(0x82, std::string(65536, 'x')), WebSocketSide::kServer, "bin " + std::string(65536, 'x') + "|"},
  };
  for (const auto& row : rows)
    for (const size_t piece : {size_t{1}, size_t{3}, row.bytes.size()}) {
      const Seen seen = Read(row.bytes, piece, row.side);
      EXPECT_EQ(seen.text, row.text);
      EXPECT_EQ(seen.fault, 0);
      EXPECT_EQ(seen.used, row.bytes.size());
    }
}

TEST(WebSocket, KeepsTheOrderOfFragmentsWithControlFramesBetween) {
  const std::string good = Frame(0x01, "a") + Frame(0x89, "p") + Frame(0x00, "b") + Frame(0x8a, "") + Frame(0x80, "c");
  EXPECT_EQ(Read(good, 2).text, "text+ a|ping p|cont+ b|pong |cont c|");
  const struct {
    const char* what;
    std::string bytes;
  } rows[] = {
      {"a continuation of nothing", Frame(0x80, "a")},
      {"an unfinished continuation of nothing", Frame(0x00, "a")},
      {"a continuation after the end", Frame(0x81, "a") + Frame(0x80, "b")},
      {"text within text", Frame(0x01, "a") + Frame(0x81, "b")},
      {"binary within text", Frame(0x01, "a") + Frame(0x82, "b")},
      {"a control frame in fragments", Frame(0x09, "a")},
      {"a close in fragments", Frame(0x08, "")},
  };
  for (const auto& row : rows) EXPECT_EQ(Read(row.bytes, 1).fault, 1002) << row.what;
}

TEST(WebSocket, RefusesWhatIsNotWellFormed) {
  struct Row {
    std::string what;
    std::string bytes;
  };
  std::vector<Row> rows = {
      {"RSV2", Frame(0xa1, "a")},
      {"RSV3", Frame(0x91, "a")},
      {"RSV1 that was not negotiated", Frame(0xc1, "a")},
      {"RSV1 of a control frame", Frame(0xc9, "a")},
      {"masked by a server",
       "\x81\x81"
       "abcdx"},
      {"a length of 16 bits that fits in 7", std::string("\x81\x7e\x00\x7d", 4)},
      {"a length of 64 bits that fits in 16", std::string("\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff", 10)},
      {"a length with the highest bit", std::string("\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x01", 10)},
      {"a ping of 126 bytes", Frame(0x89, std::string(126, 'x'))},
      {"a close of 126 bytes", Frame(0x88, std::string("\x03\xe8", 2) + std::string(124, 'x'))},
      {"half a close code", Frame(0x88, "\x03")},
  };
  for (const unsigned opcode : {3u, 4u, 5u, 6u, 7u, 11u, 12u, 13u, 14u, 15u})
    rows.push_back({fmt::format("opcode {}", opcode), Frame(0x80 | opcode, "")});
  for (const auto& row : rows)
    for (const size_t piece : {size_t{1}, row.bytes.size()}) EXPECT_EQ(Read(row.bytes, piece).fault, 1002) << row.what;
  EXPECT_EQ(Read(Frame(0x81, "a"), 9, WebSocketSide::kClient).fault, 1002) << "a client that does not mask";
}

TEST(WebSocket, TakesOnlyCloseCodesThatMayBeSent) {
  for (const unsigned code :
       {1000u, 1001u, 1002u, 1003u, 1007u, 1008u, 1009u, 1010u, 1011u, 1012u, 1013u, 1014u, 3000u, 3999u, 4000u, 4999u})
    EXPECT_EQ(Read(Close(static_cast<uint16_t>(code), "bye"), 1).text, fmt::format("close {} bye|", code));
  for (const unsigned code : {0u, 1u, 999u, 1004u, 1005u, 1006u, 1015u, 1016u, 1100u, 2000u, 2999u, 5000u, 65535u})
    EXPECT_EQ(Read(Close(static_cast<uint16_t>(code)), 1).fault, 1002) << code;
  EXPECT_EQ(Read(Frame(0x88, ""), 1).text, "close 1005 |");
  EXPECT_EQ(Read(Close(1000, "\xff"), 1).fault, 1007);
  EXPECT_EQ(Read(Close(1000, "\xc3"), 1).fault, 1007);
  // What follows a close frame is not read.
  EXPECT_EQ(Read(Close(1000) + Frame(0x81, "x"), 100).text, "close 1000 |");
}

TEST(WebSocket, ChecksTextAcrossFramesAndNothingElse) {
  const std::string euro = "\xe2\x82\xac";
  EXPECT_EQ(Read(Frame(0x01, euro.substr(0, 1)) + Frame(0x89, "") + Frame(0x80, euro.substr(1)), 1).fault, 0);
  EXPECT_EQ(Read(Frame(0x01, euro.substr(0, 2)) + Frame(0x80, ""), 1).fault, 1007) << "ends within a character";
  EXPECT_EQ(Read(Frame(0x01, euro.substr(0, 2)) + Frame(0x80, "a"), 1).fault, 1007);
  EXPECT_EQ(Read(Frame(0x82, "\xff\xfe"), 1).fault, 0) << "binary";
  EXPECT_EQ(Read(Frame(0xc1, "\xff\xfe"), 1, WebSocketSide::kServer, WebSocketCompression::kDeflate).text, "textz \xff\xfe|");
  EXPECT_EQ(Read(Frame(0x41, "\xff") + Frame(0xc0, "x"), 1, WebSocketSide::kServer, WebSocketCompression::kDeflate).fault, 1002)
      << "RSV1 belongs to the first frame";
  // A new message starts afresh.
  EXPECT_EQ(Read(Frame(0x81, "a") + Frame(0x81, "\x82\xac"), 1).fault, 1007);
}

TEST(WebSocket, KnowsUtf8) {
  const struct {
    std::string text;
    bool good;
  } rows[] = {
      {"", true},
      {"ascii that is longer than a word", true},
      {"eight..\xc3\xa9.and.more..\xf0\x9f\x98\x80 end", true},
      {std::string("\0", 1), true},
      {"\x7f", true},
      {"\xc2\x80", true},
      {"\xdf\xbf", true},
      {"\xe0\xa0\x80", true},
      {"\xed\x9f\xbf", true},
      {"\xee\x80\x80", true},
      {"\xef\xbf\xbf", true},
      {"\xf0\x90\x80\x80", true},
      {"\xf4\x8f\xbf\xbf", true},
      {"\x80", false},
      {"\xbf", false},
      {"\xc0\xaf", false},
      {"\xc1\xbf", false},
      {"\xc2", false},
      {"\xc2\x41", false},
      {"\xe0\x9f\xbf", false},
      {"\xed\xa0\x80", false},
      {"\xed\xbf\xbf", false},
      {"\xe2\x82", false},
      {"\xf0\x8f\xbf\xbf", false},
      {"\xf4\x90\x80\x80", false},
      {"\xf5\x80\x80\x80", false},
      {"\xf8\x88\x80\x80\x80", false},
      {"\xfe", false},
      {"\xff", false},
  };
  for (const auto& row : rows)
    for (const size_t piece : {size_t{1}, size_t{2}, size_t{5}, size_t{64}}) {
      Utf8Checker checker;
      bool good = true;
      for (size_t at = 0; good && at < row.text.size(); at += piece)
        good = checker.Take(std::string_view(row.text).substr(at, piece));
      EXPECT_EQ(good && checker.complete(), row.good) << row.text << " " << piece;
    }
}

TEST(WebSocket, BoundsAMessageOverItsFrames) {
  const auto fault = [](const std::string& bytes) {
    return Read(bytes, 1, WebSocketSide::kServer, WebSocketCompression::kNone, 10).fault;
  };
  EXPECT_EQ(fault(Frame(0x82, "0123456789")), 0);
  EXPECT_EQ(fault(Frame(0x82, "0123456789a")), 1009);
  EXPECT_EQ(fault(Frame(0x02, "01234") + Frame(0x80, "56789")), 0);
  EXPECT_EQ(fault(Frame(0x02, "01234") + Frame(0x80, "56789a")), 1009);
  EXPECT_EQ(fault(Frame(0x82, "0123456789") + Frame(0x82, "0123456789")), 0) << "each message of its own";
  // Before any of it is sent on.
  EXPECT_EQ(fault(std::string("\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff", 10)), 1009);
}

TEST(WebSocket, WritesFramesThatAreReadAsTheSame) {
  for (const size_t size : {0ul, 1ul, 125ul, 126ul, 127ul, 65535ul, 65536ul, 70001ul}) {
    const std::string payload(size, 'x');
    for (const bool masked : {false, true}) {
      std::optional<WebSocketMask> mask;
      if (masked) mask = WebSocketMask{1, 2, 0xfe, 0x80};
      Buffer out;
      AppendWebSocketHead(&out, {Opcode::kBinary, true, false, size}, mask);
      for (size_t at = 0; at < size; at += 4999)
        AppendWebSocketPayload(&out, std::string_view(payload).substr(at, 4999), mask, at);
      EXPECT_EQ(Read(std::string(out.view()), 8191, masked ? WebSocketSide::kClient : WebSocketSide::kServer).text,
                "bin " + payload + "|");
    }
  }
  Buffer out;
  AppendWebSocketClose(&out, 1008, "the policy", std::nullopt);
  EXPECT_EQ(Read(std::string(out.view()), 1).text, "close 1008 the policy|");
  out.Clear();
  // Cut between characters.
  std::string reason;
  for (int i = 0; i < 60; ++i) reason += "\xe2\x82\xac";
  AppendWebSocketClose(&out, 1008, reason, WebSocketMask{9, 9, 9, 9});
  const Seen seen = Read(std::string(out.view()), 7, WebSocketSide::kClient);
  EXPECT_EQ(seen.fault, 0);
  EXPECT_EQ(seen.text, "close 1008 " + reason.substr(0, 123) + "|");
}

}  // namespace
}  // namespace sluice::proxy
