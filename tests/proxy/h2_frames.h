#pragma once

// HTTP/2 frames by hand, for tests that say what no library would: an encoder without any opinion, and a reader of what comes
// back. Header sections are literals without indexing and without Huffman codes (RFC 7541 section 6.2.2).

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::proxy::testing {

inline constexpr std::string_view kH2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kRstStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoaway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};
enum FrameFlag : uint8_t { kEndStream = 1, kAck = 1, kEndHeaders = 4, kPadded = 8, kPriorityFlag = 32 };

inline std::string U16(uint32_t v) { return {static_cast<char>(v >> 8), static_cast<char>(v)}; }
inline std::string U24(uint32_t v) { return static_cast<char>(v >> 16) + U16(v & 0xffff); }
inline std::string U32(uint32_t v) { return U16(v >> 16) + U16(v & 0xffff); }

inline std::string Frame(int type, int flags, uint32_t stream, std::string_view payload) {
  std::string out = U24(static_cast<uint32_t>(payload.size()));
  out += static_cast<char>(type);
  out += static_cast<char>(flags);
  out += U32(stream);
  out += payload;
  return out;
}

using FieldList = std::vector<std::pair<std::string, std::string>>;

inline std::string HpackInteger(uint8_t first, int prefix, size_t value) {
  const size_t most = (size_t{1} << prefix) - 1;
  if (value < most) return {static_cast<char>(first | value)};
  std::string out(1, static_cast<char>(first | most));
  for (value -= most; value >= 128; value >>= 7) out += static_cast<char>(value % 128 + 128);
  return out + static_cast<char>(value);
}

inline std::string HpackString(std::string_view text) { return HpackInteger(0, 7, text.size()).append(text); }

inline std::string Hpack(const FieldList& fields) {
  std::string out;
  for (const auto& [name, value] : fields) out += '\0' + HpackString(name) + HpackString(value);
  return out;
}

inline FieldList GetFields(const std::string& authority, const std::string& path = "/") {
  return {{":method", "GET"}, {":scheme", "https"}, {":authority", authority}, {":path", path}};
}

inline std::string HeadersFrame(uint32_t stream, const FieldList& fields, int flags = kEndHeaders | kEndStream) {
  return Frame(kHeaders, flags, stream, Hpack(fields));
}

inline std::string SettingsFrame(const std::vector<std::pair<uint16_t, uint32_t>>& entries = {}) {
  std::string payload;
  for (const auto& [id, value] : entries) payload += U16(id) + U32(value);
  return Frame(kSettings, 0, 0, payload);
}

struct SeenFrame {
  int type = 0;
  int flags = 0;
  uint32_t stream = 0;
  std::string payload;
  [[nodiscard]] uint32_t Number(size_t at = 0) const {
    uint32_t v = 0;
    for (size_t i = at; i < at + 4 && i < payload.size(); ++i) v = v << 8 | static_cast<unsigned char>(payload[i]);
    return v;
  }
};

/// Whole frames at the beginning of `bytes`; what is left over stays.
inline std::vector<SeenFrame> TakeFrames(std::string* bytes) {
  std::vector<SeenFrame> frames;
  for (;;) {
    if (bytes->size() < 9) return frames;
    const auto octet = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>((*bytes)[i])); };
    const size_t size = octet(0) << 16 | octet(1) << 8 | octet(2);
    if (bytes->size() < 9 + size) return frames;
    frames.push_back({static_cast<int>(octet(3)), static_cast<int>(octet(4)),
                      (octet(5) & 0x7f) << 24 | octet(6) << 16 | octet(7) << 8 | octet(8), bytes->substr(9, size)});
    bytes->erase(0, 9 + size);
  }
}

}  // namespace sluice::proxy::testing
