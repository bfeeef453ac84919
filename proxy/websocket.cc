#include "proxy/websocket.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace sluice::proxy {
namespace {

uint8_t Byte(std::string_view in, size_t at) { return static_cast<uint8_t>(in[at]); }

uint64_t BigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value = value << 8 | Byte(bytes, i);
  return value;
}

bool IsControl(WebSocketOpcode opcode) { return static_cast<uint8_t>(opcode) >= 8; }

std::unexpected<WebSocketFault> Protocol(std::string_view why) {
  return std::unexpected(WebSocketFault{websocket_close::kProtocol, why});
}

// Length of the prefix that is ASCII, by words.
size_t AsciiPrefix(std::string_view bytes) {
  constexpr uint64_t kHighs = 0x8080808080808080;
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    if ((word & kHighs) != 0) break;
  }
  while (at < bytes.size() && Byte(bytes, at) < 0x80) ++at;
  return at;
}

}  // namespace

bool Utf8Checker::Take(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size(); ++at) {
    if (left_ == 0) {
      at += AsciiPrefix(bytes.substr(at));
      if (at == bytes.size()) return true;
    }
    const uint8_t b = Byte(bytes, at);
    if (left_ != 0) {
      if (b < low_ || b > high_) return false;
      low_ = 0x80;
      high_ = 0xbf;
      --left_;
      continue;
    }
    // RFC 3629 section 4: the second byte's bounds keep out overlong forms, surrogates and what is above U+10FFFF.
    if (b >= 0xc2 && b <= 0xdf) {
      left_ = 1;
    } else if (b >= 0xe0 && b <= 0xef) {
      left_ = 2;
      if (b == 0xe0) low_ = 0xa0;
      if (b == 0xed) high_ = 0x9f;
    } else if (b >= 0xf0 && b <= 0xf4) {
      left_ = 3;
      if (b == 0xf0) low_ = 0x90;
      if (b == 0xf4) high_ = 0x8f;
    } else {
      return false;
    }
  }
  return true;
}

bool IsCloseCode(uint16_t code) {
  if (code >= 3000 && code <= 4999) return true;
  return code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006;
}

void MaskWebSocket(std::span<char> data, const WebSocketMask& mask, size_t at) {
  std::array<char, 8> turned;
  for (size_t i = 0; i < turned.size(); ++i) turned[i] = static_cast<char>(mask[(at + i) % 4]);
  uint64_t word = 0;
  std::memcpy(&word, turned.data(), 8);
  size_t i = 0;
  for (; i + 8 <= data.size(); i += 8) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, data.data() + i, 8);
    bytes ^= word;
    std::memcpy(data.data() + i, &bytes, 8);
  }
  for (; i < data.size(); ++i) data[i] = static_cast<char>(data[i] ^ turned[i % 8]);
}

std::expected<std::optional<WebSocketReader::Head>, WebSocketFault> WebSocketReader::ReadHead(std::string_view in) const {
  if (in.size() < 2) return std::nullopt;
  const uint8_t first = Byte(in, 0);
  const uint8_t second = Byte(in, 1);
  const uint8_t opcode = first & 0x0f;
  if ((opcode > 2 && opcode < 8) || opcode > 10) return Protocol("a frame with an unknown opcode");
  if ((first & 0x30) != 0) return Protocol("a frame with a reserved bit that was not negotiated");
  if (((second & 0x80) != 0) != (side_ == WebSocketSide::kClient))
    return Protocol(side_ == WebSocketSide::kClient ? "a frame of a client that is not masked"
                                                    : "a frame of a server that is masked");
  Head head;
  head.frame = {static_cast<WebSocketOpcode>(opcode), (first & 0x80) != 0, (first & 0x40) != 0, second & 0x7fu};
  head.size = 2;
  const size_t extended = head.frame.length == 126 ? 2 : head.frame.length == 127 ? 8 : 0;
  if (IsControl(head.frame.opcode) && extended != 0) return Protocol("a control frame of more than 125 bytes");
  if (extended != 0) {
    if (in.size() < head.size + extended) return std::nullopt;
    head.frame.length = BigEndian(in.substr(head.size, extended));
    head.size += extended;
    if (head.frame.length < (extended == 2 ? 126u : 65536u)) return Protocol("a length that is not in its shortest form");
    if (head.frame.length > uint64_t{std::numeric_limits<int64_t>::max()}) return Protocol("a length of 64 bits");
  }
  if (side_ == WebSocketSide::kClient) {
    if (in.size() < head.size + 4) return std::nullopt;
    for (size_t i = 0; i < 4; ++i) head.mask[i] = Byte(in, head.size + i);
    head.size += 4;
  }
  return head;
}

std::optional<WebSocketFault> WebSocketReader::CheckOrder(const WebSocketFrame& frame) const {
  constexpr uint16_t kCode = websocket_close::kProtocol;
  if (IsControl(frame.opcode)) {
    if (!frame.fin) return WebSocketFault{kCode, "a control frame in fragments"};
    if (frame.compressed) return WebSocketFault{kCode, "a control frame with a reserved bit"};
    return std::nullopt;
  }
  const bool continues = frame.opcode == WebSocketOpcode::kContinuation;
  if (continues && !in_message_) return WebSocketFault{kCode, "a continuation of no message"};
  if (!continues && in_message_) return WebSocketFault{kCode, "a new message within another"};
  if (frame.compressed && (continues || compression_ == WebSocketCompression::kNone))
    return WebSocketFault{kCode, "a frame with a reserved bit that was not negotiated"};
  return std::nullopt;
}

std::expected<WebSocketReader::Step, WebSocketFault> WebSocketReader::Next(std::span<char> in) {
  if (left_ != 0) return Payload(in);
  const auto head = ReadHead({in.data(), in.size()});
  if (!head) return std::unexpected(head.error());
  if (!*head) return Step{};
  if (const auto fault = CheckOrder((*head)->frame)) return std::unexpected(*fault);
  return IsControl((*head)->frame.opcode) ? Control(**head, in) : Data(**head);
}

std::expected<WebSocketReader::Step, WebSocketFault> WebSocketReader::Control(const Head& head, std::span<char> in) {
  const auto length = static_cast<size_t>(head.frame.length);
  if (in.size() - head.size < length) return Step{};
  Step step;
  step.what = What::kControl;
  step.consumed = head.size + length;
  step.frame = head.frame;
  step.data = in.subspan(head.size, length);
  if (side_ == WebSocketSide::kClient) MaskWebSocket(step.data, head.mask, 0);
  if (head.frame.opcode != WebSocketOpcode::kClose) return step;
  const std::string_view payload(step.data.data(), length);
  if (length == 1) return Protocol("a close frame with half a code");
  close_code_ = length == 0 ? websocket_close::kNoCode : static_cast<uint16_t>(BigEndian(payload.substr(0, 2)));
  if (length != 0) {
    if (!IsCloseCode(close_code_)) return Protocol("a close frame with a code that must not be sent");
    Utf8Checker reason;
    if (!reason.Take(payload.substr(2)) || !reason.complete())
      return std::unexpected(WebSocketFault{websocket_close::kBadText, "a close reason that is not UTF-8"});
  }
  closed_ = true;
  return step;
}

std::expected<WebSocketReader::Step, WebSocketFault> WebSocketReader::Data(const Head& head) {
  if (!in_message_) {
    message_bytes_ = 0;
    check_text_ = head.frame.opcode == WebSocketOpcode::kText && !head.frame.compressed;
    utf8_.Reset();
  }
  if (head.frame.length > max_message_ - message_bytes_)
    return std::unexpected(WebSocketFault{websocket_close::kTooBig, "a message that is too large"});
  message_bytes_ += head.frame.length;
  frame_ = head.frame;
  mask_ = head.mask;
  mask_at_ = 0;
  left_ = head.frame.length;
  in_message_ = true;
  Step step;
  step.what = What::kFrame;
  step.consumed = head.size;
  step.frame = frame_;
  if (left_ == 0) {
    if (const auto fault = EndFrame(&step)) return std::unexpected(*fault);
  }
  return step;
}

std::expected<WebSocketReader::Step, WebSocketFault> WebSocketReader::Payload(std::span<char> in) {
  Step step;
  if (in.empty()) return step;
  step.what = What::kPayload;
  step.consumed = static_cast<size_t>(std::min<uint64_t>(left_, in.size()));
  step.frame = frame_;
  step.data = in.first(step.consumed);
  if (side_ == WebSocketSide::kClient) MaskWebSocket(step.data, mask_, mask_at_);
  mask_at_ = (mask_at_ + step.consumed) % 4;
  left_ -= step.consumed;
  if (check_text_ && !utf8_.Take({step.data.data(), step.data.size()}))
    return std::unexpected(WebSocketFault{websocket_close::kBadText, "a text message that is not UTF-8"});
  if (left_ == 0) {
    if (const auto fault = EndFrame(&step)) return std::unexpected(*fault);
  }
  return step;
}

std::optional<WebSocketFault> WebSocketReader::EndFrame(Step* step) {
  step->frame_end = true;
  if (!frame_.fin) return std::nullopt;
  in_message_ = false;
  step->message_end = true;
  ++messages_;
  if (check_text_ && !utf8_.complete())
    return WebSocketFault{websocket_close::kBadText, "a text message that ends within a character"};
  return std::nullopt;
}

void AppendWebSocketHead(Buffer* out, const WebSocketFrame& frame, const std::optional<WebSocketMask>& mask) {
  std::array<char, 14> head;
  size_t size = 2;
  const unsigned flags = (frame.fin ? 0x80u : 0u) | (frame.compressed ? 0x40u : 0u);
  head[0] = static_cast<char>(flags | static_cast<uint8_t>(frame.opcode));
  const uint64_t length = frame.length;
  const size_t extended = length < 126 ? 0 : length < 65536 ? 2 : 8;
  const uint64_t short_length = extended == 0 ? length : extended == 2 ? 126 : 127;
  head[1] = static_cast<char>(short_length | (mask ? 0x80u : 0u));
  for (size_t i = extended; i-- > 0;) head[size++] = static_cast<char>(length >> (8 * i) & 0xff);
  if (mask)
    for (const uint8_t b : *mask) head[size++] = static_cast<char>(b);
  out->Append({head.data(), size});
}

void AppendWebSocketPayload(Buffer* out, std::string_view data, const std::optional<WebSocketMask>& mask, size_t at) {
  if (data.empty()) return;
  const std::span<char> room = out->Prepare(data.size());
  std::memcpy(room.data(), data.data(), data.size());
  if (mask) MaskWebSocket(room.first(data.size()), *mask, at % 4);
  out->Commit(data.size());
}

void AppendWebSocketFrame(Buffer* out, WebSocketFrame frame, std::string_view data, const std::optional<WebSocketMask>& mask) {
  frame.length = data.size();
  AppendWebSocketHead(out, frame, mask);
  AppendWebSocketPayload(out, data, mask, 0);
}

void AppendWebSocketClose(Buffer* out, uint16_t code, std::string_view reason, const std::optional<WebSocketMask>& mask) {
  size_t size = std::min(reason.size(), kMaxWebSocketReason);
  while (size != 0 && size < reason.size() && (Byte(reason, size) & 0xc0) == 0x80) --size;
  std::array<char, kMaxWebSocketControl> payload;
  payload[0] = static_cast<char>(code >> 8);
  payload[1] = static_cast<char>(code & 0xff);
  std::memcpy(payload.data() + 2, reason.data(), size);
  AppendWebSocketFrame(out, {WebSocketOpcode::kClose, true, false, 0}, {payload.data(), size + 2}, mask);
}

}  // namespace sluice::proxy
