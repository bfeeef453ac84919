#pragma once

// Inputs that keep their shape. A target's bytes are taken apart into the records of its protocol, and one of them is changed,
// doubled, dropped, moved, or one of a few known ones put in; lengths are then made right, most of the time. What is left of the
// time the bytes are changed as libFuzzer would by itself.
//
//   extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
//     return sluice::fuzz::Mutate(sluice::fuzz::kHttp2Frames, data, size, most, seed);
//   }

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// libFuzzer's own, or replay_main.cc's.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace sluice::fuzz {

using std::string_view_literals::operator""sv;

struct Shape {
  size_t ahead = 0;                      ///< octets before the first record: how the target is to read the rest
  size_t (*length)(std::string_view);    ///< of the first record in what is left; 0: all of it
  void (*mend)(std::string*) = nullptr;  ///< writes the record's length into it; null: it has none
  std::span<const std::string_view> words{};
  /// Writes what the octets ahead say of the records; null: nothing.
  void (*finish)(std::string* ahead, std::span<const std::string> records) = nullptr;
  /// Whether a record may be changed inside; null: any may.
  bool (*open)(std::string_view) = nullptr;
};

namespace detail {

inline size_t Big(std::string_view bytes, size_t at, size_t size) {
  size_t value = 0;
  for (size_t i = at; i < at + size; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

inline void PutBig(std::string* bytes, size_t at, size_t size, size_t value) {
  for (size_t i = 0; i < size; ++i) (*bytes)[at + i] = static_cast<char>(value >> 8 * (size - 1 - i));
}

inline size_t Hex(std::string_view digits) {
  size_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

inline std::string HexText(size_t value, size_t width) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr;
  std::string text(digits.data(), end);
  return text.size() < width ? std::string(width - text.size(), '0') + text : text;
}

inline std::vector<std::string> Split(const Shape& shape, std::string_view bytes) {
  std::vector<std::string> records;
  while (!bytes.empty()) {
    const size_t length = shape.length(bytes);
    const size_t size = length == 0 ? bytes.size() : std::min(length, bytes.size());
    records.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return records;
}

inline void ChangeOne(const Shape& shape, std::vector<std::string>* records, std::minstd_rand& random) {
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const auto place = [&](size_t i) { return records->begin() + static_cast<std::ptrdiff_t>(i); };
  if (records->empty() || (!shape.words.empty() && below(4) == 0)) {
    const std::string word(shape.words.empty() ? "x" : shape.words[below(shape.words.size())]);
    records->insert(place(below(records->size() + 1)), word);
    return;
  }
  const size_t i = below(records->size());
  switch (below(5)) {
    case 0:
      records->insert(place(below(records->size() + 1)), std::string((*records)[i]));
      return;
    case 1:
      records->erase(place(i));
      return;
    case 2:
      std::swap((*records)[i], (*records)[below(records->size())]);
      return;
    default:
      break;
  }
  std::string& record = (*records)[i];
  if (shape.open != nullptr && !shape.open(record)) return;
  const std::string before = record;
  const size_t was = record.size();
  record.resize(was + 64);
  record.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(record.data()), was, record.size()));
  if (shape.mend != nullptr && (shape.open != nullptr || below(8) != 0)) shape.mend(&record);
  if (shape.open != nullptr && !shape.open(record)) record = before;
}

}  // namespace detail

inline size_t Mutate(const Shape& shape, uint8_t* data, size_t size, size_t most, unsigned seed) {
  std::minstd_rand random(seed + 1);
  if (shape.open == nullptr && (random() % 8 == 0 || size < shape.ahead)) return LLVMFuzzerMutate(data, size, most);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> records = detail::Split(shape, bytes.substr(shape.ahead));
  for (size_t changes = 1 + random() % 3; changes != 0; --changes) detail::ChangeOne(shape, &records, random);
  std::string out(bytes.substr(0, shape.ahead));
  if (shape.finish != nullptr && random() % 8 != 0) shape.finish(&out, records);
  for (const std::string& record : records) out += record;
  out.resize(std::min(out.size(), most));
  std::memcpy(data, out.data(), out.size());
  return out.size();
}

// Lines: heads, and what else ends in a line feed.

inline size_t LineLength(std::string_view rest) { return rest.find('\n') + 1; }

inline constexpr std::string_view kRequestLines[] = {"GET /a/../b HTTP/1.1\r\n"sv,
                                                     "POST http://a.test/ HTTP/1.0\r\n"sv,
                                                     "Host: a.test\r\n"sv,
                                                     "Content-Length: 5\r\n"sv,
                                                     "Content-Length: 05\r\n"sv,
                                                     "Transfer-Encoding: chunked\r\n"sv,
                                                     "Transfer-Encoding: gzip, chunked\r\n"sv,
                                                     "Connection: close, x\r\n"sv,
                                                     "Expect: 100-continue\r\n"sv,
                                                     "Upgrade: websocket\r\n"sv,
                                                     "TE: trailers\r\n"sv,
                                                     " folded\r\n"sv,
                                                     "x : y\r\n"sv,
                                                     "X: a\rb\n"sv,
                                                     "\r\n"sv};
inline constexpr std::string_view kResponseLines[] = {"HTTP/1.1 200 OK\r\n"sv,
                                                      "HTTP/1.1 100 Continue\r\n"sv,
                                                      "HTTP/1.0 204\r\n"sv,
                                                      "HTTP/1.1 101 x\r\n"sv,
                                                      "Content-Length: 5\r\n"sv,
                                                      "Content-Length: 6\r\n"sv,
                                                      "Transfer-Encoding: chunked\r\n"sv,
                                                      "X-Sluice-Denied: d-1\r\n"sv,
                                                      "Proxy-Status: sluice\r\n"sv,
                                                      "Connection: x\r\n"sv,
                                                      "Trailer: x-sum\r\n"sv,
                                                      " folded\r\n"sv,
                                                      "\r\n"sv};
inline constexpr Shape kRequestHead{0, LineLength, nullptr, kRequestLines};
inline constexpr Shape kResponseHead{0, LineLength, nullptr, kResponseLines};

// Chunks (RFC 9112 section 7.1): a line with the size, that many octets, a line end.

inline size_t ChunkLength(std::string_view rest) {
  const size_t line = rest.find('\n');
  if (line == std::string_view::npos) return 0;
  const size_t size = detail::Hex(rest.substr(0, line));
  return size > rest.size() ? 0 : line + 1 + size + (size == 0 ? 0 : 2);
}

inline void MendChunk(std::string* record) {
  const size_t line = record->find('\n');
  if (line == std::string::npos || record->size() < line + 3) return;
  const std::string payload = record->substr(line + 1, record->size() - line - 3);
  *record = detail::HexText(payload.size(), 1) + "\r\n" + payload + "\r\n";
}

inline constexpr std::string_view kChunkWords[] = {
    "0\r\n"sv,     "5\r\nhello\r\n"sv,   "5;a=\"b\r\nc\"\r\nhello\r\n"sv, "x-sum: 1\r\n"sv,
    "\r\n"sv,      "0x5\r\nhello\r\n"sv, "ffffffffffffffff\r\n"sv,        "5 \r\nhello\r\n"sv,
    "5\nhello\n"sv};
inline constexpr Shape kChunks{0, ChunkLength, MendChunk, kChunkWords};

// HTTP/2 frames (RFC 9113 section 4.1).

inline size_t FrameLength(std::string_view rest) { return rest.size() < 9 ? 0 : 9 + detail::Big(rest, 0, 3); }
inline void MendFrame(std::string* record) {
  if (record->size() >= 9) detail::PutBig(record, 0, 3, record->size() - 9);
}
inline constexpr std::string_view kFrames[] = {
    "\0\0\0\x04\0\0\0\0\0"sv,                                     // SETTINGS
    "\0\0\0\x04\x01\0\0\0\0"sv,                                   // its acknowledgement
    "\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0"sv,                     // a window of nothing
    "\0\0\x08\x06\0\0\0\0\0pingpong"sv,                           // PING
    "\0\0\x04\x08\0\0\0\0\0\0\0\0\x01"sv,                         // WINDOW_UPDATE of the connection
    "\0\0\x04\x08\0\0\0\0\x01\x7f\xff\xff\xff"sv,                 // and of a stream, as large as it may be
    "\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08"sv,                       // RST_STREAM
    "\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0"sv,                   // GOAWAY
    "\0\0\x05\x02\0\0\0\0\x03\0\0\0\0\x10"sv,                     // PRIORITY
    "\0\0\x0b\x01\x05\0\0\0\x01\x82\x87\x84\x41\x06\x61.test"sv,  // HEADERS: GET https://a.test/
    "\0\0\x0b\x01\x04\0\0\0\x03\x83\x87\x84\x41\x06\x61.test"sv,  // POST, which goes on
    "\0\0\x0b\x01\x01\0\0\0\x05\x82\x87\x84\x41\x06\x61.test"sv,  // GET, whose section goes on
    "\0\0\x05\x09\x04\0\0\0\x05\x10\x01x\x01y"sv,                 // CONTINUATION
    "\0\0\x05\x01\x05\0\0\0\x03\x10\x01x\x01y"sv,                 // trailers
    "\0\0\x01\x01\x04\0\0\0\x01\x88"sv,                           // HEADERS: status 200
    "\0\0\x04\0\0\0\0\0\x03test"sv,                               // DATA
    "\0\0\x06\0\x09\0\0\0\x03\x01test\0"sv,                       // padded, the last
    "\0\0\0\xfa\0\0\0\0\0"sv,                                     // of a type that nobody knows
};
inline constexpr Shape kHttp2Frames{0, FrameLength, MendFrame, kFrames};

// WebSocket frames (RFC 6455 section 5.2), behind one octet that tells whose they are.

struct WebSocketParts {
  size_t head = 0;
  size_t payload = 0;
};

inline WebSocketParts WebSocketPartsOf(std::string_view bytes) {
  if (bytes.size() < 2) return {};
  const auto second = static_cast<unsigned char>(bytes[1]);
  const size_t mask = (second & 0x80) != 0 ? 4 : 0;
  const size_t wide = (second & 0x7f) == 126 ? 2 : (second & 0x7f) == 127 ? 8 : 0;
  if (bytes.size() < 2 + wide + mask) return {};
  return {2 + wide + mask, wide == 0 ? size_t{second} & 0x7f : detail::Big(bytes, 2, wide)};
}

inline size_t WebSocketLength(std::string_view rest) {
  const WebSocketParts parts = WebSocketPartsOf(rest);
  return parts.head == 0 || parts.payload > rest.size() ? 0 : parts.head + parts.payload;
}

inline void MendWebSocket(std::string* record) {
  const WebSocketParts parts = WebSocketPartsOf(*record);
  if (parts.head == 0) return;
  const bool masked = (static_cast<unsigned char>((*record)[1]) & 0x80) != 0;
  const std::string rest = record->substr(parts.head - (masked ? 4 : 0));
  const size_t payload = rest.size() - (masked ? 4 : 0);
  std::string head = record->substr(0, 1);
  head += static_cast<char>((masked ? 0x80 : 0) | (payload < 126 ? payload : payload < 65536 ? 126 : 127));
  if (payload >= 126) {
    const size_t wide = payload < 65536 ? 2 : 8;
    head.append(wide, '\0');
    detail::PutBig(&head, 2, wide, payload);
  }
  *record = head + rest;
}

inline constexpr std::string_view kWebSocketFrames[] = {"\x81\x84\0\0\0\0text"sv,
                                                        "\x81\x04text"sv,
                                                        "\x01\x82\x01\x02\x03\x04\x69\x6a"sv,
                                                        "\x80\x80\0\0\0\0"sv,
                                                        "\x82\x84\x01\0\0\0\x01\x02\x03\x04"sv,
                                                        "\x89\x80\0\0\0\0"sv,
                                                        "\x8a\x84\0\0\0\0pong"sv,
                                                        "\x88\x82\0\0\0\0\x03\xe8"sv,
                                                        "\x88\x80\0\0\0\0"sv,
                                                        "\xc1\x84\0\0\0\0text"sv,
                                                        "\x81\xfe\0\x04\0\0\0\0text"sv};
inline constexpr Shape kWebSocket{1, WebSocketLength, MendWebSocket, kWebSocketFrames};

// pkt-lines (gitprotocol-common(5)): four digits that count themselves.

inline size_t PktLineLength(std::string_view rest) {
  if (rest.size() < 4) return 0;
  return std::max<size_t>(detail::Hex(rest.substr(0, 4)), 4);
}
inline void MendPktLine(std::string* record) {
  if (record->size() > 4) record->replace(0, 4, detail::HexText(record->size() & 0xffff, 4));
}
inline constexpr std::string_view kPktLines[] = {
    "0000"sv,
    "0001"sv,
    "0004"sv,
    "0008shal"sv,
    "00660000000000000000000000000000000000000000 1111111111111111111111111111111111111111 refs/heads/agent"sv,
    "0071"
    "1111111111111111111111111111111111111111 0000000000000000000000000000000000000000 refs/heads/x\0report-status"sv,
    "0035shallow 1111111111111111111111111111111111111111\n"sv,
    "000fpush-cert\0x"sv};
inline constexpr Shape kPkt{0, PktLineLength, MendPktLine, kPktLines};

// SOCKS5 (RFC 1928, RFC 1929): greetings, logins and requests one after the other.

inline size_t SocksLength(std::string_view rest) {
  if (rest.size() < 4) return 0;
  if (rest[0] == 1) {
    const size_t name = static_cast<unsigned char>(rest[1]);
    return rest.size() < 3 + name ? 0 : 3 + name + static_cast<unsigned char>(rest[2 + name]);
  }
  if (rest[2] != 0 || rest[1] == 0) return 2 + size_t{static_cast<unsigned char>(rest[1])};
  switch (rest[3]) {
    case 1:
      return 10;
    case 4:
      return 22;
    case 3:
      return rest.size() < 5 ? 0 : 7 + size_t{static_cast<unsigned char>(rest[4])};
    default:
      return 0;
  }
}

inline void MendSocks(std::string* record) {
  if (record->size() > 7 && (*record)[2] == 0 && (*record)[3] == 3) {
    (*record)[4] = static_cast<char>(record->size() - 7);
  } else if (record->size() > 2 && (*record)[0] == 5 && (*record)[2] != 0) {
    (*record)[1] = static_cast<char>(record->size() - 2);
  }
}

inline constexpr std::string_view kSocksMessages[] = {"\x05\x01\0"sv,
                                                      "\x05\x02\0\x02"sv,
                                                      "\x01\x02"
                                                      "ci\x03"
                                                      "foo"sv,
                                                      "\x05\x01\0\x03\x06"
                                                      "a.test\x01\xbb"sv,
                                                      "\x05\x01\0\x01\x7f\0\0\x01\0\x50"sv,
                                                      "\x05\x01\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x01\xbb"sv,
                                                      "\x05\x03\0\x01\0\0\0\0\0\0"sv,
                                                      "\x05\x01\0\x03\x09"
                                                      "127.0.0.1\0\x50"sv};
inline constexpr Shape kSocks{0, SocksLength, MendSocks, kSocksMessages};

// The PROXY protocol: a line, or a signature and a length.

inline constexpr std::string_view kProxySignature = "\r\n\r\n\0\r\nQUIT\n"sv;

inline size_t ProxyHeaderLength(std::string_view rest) {
  if (!rest.starts_with(kProxySignature)) return rest.find('\n') + 1;
  return rest.size() < 16 ? 0 : 16 + detail::Big(rest, 14, 2);
}
inline void MendProxyHeader(std::string* record) {
  if (record->starts_with(kProxySignature) && record->size() >= 16) detail::PutBig(record, 14, 2, record->size() - 16);
}
inline constexpr std::string_view kProxyHeaders[] = {
    "PROXY TCP4 203.0.113.7 203.0.113.8 5000 3128\r\n"sv,
    "PROXY TCP6 2001:db8::1 2001:db8::2 5000 3128\r\n"sv,
    "PROXY UNKNOWN\r\n"sv,
    "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x07\xcb\0\x71\x08\x13\x88\x0c\x38"sv,
    "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"sv,
    "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x10\xcb\0\x71\x07\xcb\0\x71\x08\x13\x88\x0c\x38\x04\0\x01x"sv};
inline constexpr Shape kProxyHeader{0, ProxyHeaderLength, MendProxyHeader, kProxyHeaders};

// Words of GraphQL and JSON: a name or number, a quoted text, blanks, or one character.

inline size_t WordLength(std::string_view rest) {
  const auto is_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  size_t n = 1;
  if (rest[0] == '"') {
    while (n < rest.size() && rest[n] != '"') n += rest[n] == '\\' ? 2 : 1;
    return n + 1;
  }
  if (is_name(rest[0])) {
    while (n < rest.size() && is_name(rest[n])) ++n;
  } else if (is_blank(rest[0])) {
    while (n < rest.size() && is_blank(rest[n])) ++n;
  }
  return n;
}

inline constexpr std::string_view kGraphqlWords[] = {"{"sv,
                                                     "}"sv,
                                                     "("sv,
                                                     ")"sv,
                                                     "["sv,
                                                     "]"sv,
                                                     ":"sv,
                                                     "!"sv,
                                                     "$v"sv,
                                                     "@include(if:true)"sv,
                                                     "query "sv,
                                                     "mutation M "sv,
                                                     "subscription "sv,
                                                     "fragment f on Query{a}"sv,
                                                     "...f "sv,
                                                     "...on Query{b}"sv,
                                                     "alias:"sv,
                                                     "viewer "sv,
                                                     "{viewer{login}}"sv,
                                                     "\"text\""sv,
                                                     "\"\"\"block\"\"\""sv,
                                                     "#comment\n"sv,
                                                     "\"query\":\"{a}\""sv,
                                                     "\"operationName\":\"M\""sv,
                                                     "\"variables\":{}"sv,
                                                     ","sv,
                                                     "&operationName=M"sv,
                                                     "%7Ba%7D"sv};
inline constexpr std::string_view kJsonWords[] = {"{"sv,
                                                  "}"sv,
                                                  "["sv,
                                                  "]"sv,
                                                  ":"sv,
                                                  ","sv,
                                                  "null"sv,
                                                  "true"sv,
                                                  "-0"sv,
                                                  "1e400"sv,
                                                  "\"\\ud800\""sv,
                                                  "\"\\u0000\""sv,
                                                  "\"jsonrpc\":\"2.0\","sv,
                                                  "\"method\":\"tools/call\","sv,
                                                  "\"method\":\"x\","sv,
                                                  "\"METHOD\":\"x\","sv,
                                                  "\"params\":{\"name\":\"read\"},"sv,
                                                  "\"id\":1"sv,
                                                  "{\"jsonrpc\":\"2.0\",\"method\":\"ping\",\"id\":1}"sv,
                                                  "\"operation\":\"upload\""sv,
                                                  "\"objects\":[]"sv,
                                                  "[[[[[[[[[["sv,
                                                  "\xef\xbb\xbf"sv};
inline constexpr Shape kGraphql{1, WordLength, nullptr, kGraphqlWords};
inline constexpr Shape kJson{0, WordLength, nullptr, kJsonWords};

}  // namespace sluice::fuzz
