#pragma once

// WebSocket frames (RFC 6455 section 5), read strictly and written anew. A reader takes the bytes of one side in pieces of any
// size, unmasks them where they lie and holds no payload but a control frame's; what breaks the protocol is a fault with the
// close code that says so (section 7.4.1). Text is checked as UTF-8 across frames, except where it is compressed (RFC 7692).
//
//   WebSocketReader reader(WebSocketSide::kClient, WebSocketCompression::kNone);
//   auto step = reader.Next(bytes);          // step->what says what the first step->consumed bytes were
//
// Pure values; one thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <span>
#include <string_view>

#include "proxy/buffer.h"

namespace sluice::proxy {

inline constexpr uint64_t kMaxWebSocketMessage = uint64_t{256} << 20;  ///< payload of one message, all its frames together
inline constexpr size_t kMaxWebSocketControl = 125;                    ///< payload of a control frame (section 5.5)
inline constexpr size_t kMaxWebSocketReason = 123;                     ///< text of a close frame, behind its code

enum class WebSocketOpcode : uint8_t {
  kContinuation = 0,
  kText = 1,
  kBinary = 2,
  kClose = 8,
  kPing = 9,
  kPong = 10,
};

/// Who sends the bytes: a client's frames are masked, a server's are not.
enum class WebSocketSide : uint8_t { kClient, kServer };

/// kDeflate: permessage-deflate was negotiated, so that the first frame of a message may have RSV1 (RFC 7692 section 6).
enum class WebSocketCompression : uint8_t { kNone, kDeflate };

namespace websocket_close {
inline constexpr uint16_t kNormal = 1000;
inline constexpr uint16_t kGoingAway = 1001;
inline constexpr uint16_t kProtocol = 1002;
inline constexpr uint16_t kNoCode = 1005;    ///< never on the wire: a close frame without a code
inline constexpr uint16_t kAbnormal = 1006;  ///< never on the wire: no close frame
inline constexpr uint16_t kBadText = 1007;
inline constexpr uint16_t kPolicy = 1008;
inline constexpr uint16_t kTooBig = 1009;
}  // namespace websocket_close

struct WebSocketFrame {
  WebSocketOpcode opcode = WebSocketOpcode::kText;
  bool fin = true;
  bool compressed = false;  ///< RSV1
  uint64_t length = 0;
  bool operator==(const WebSocketFrame&) const = default;
};

/// Why a stream of frames was refused. Text is static.
struct WebSocketFault {
  uint16_t code = websocket_close::kProtocol;
  std::string_view why;
};

using WebSocketMask = std::array<uint8_t, 4>;

/// Whether bytes arriving in pieces are UTF-8 (RFC 3629: no surrogates, no overlong forms, nothing above U+10FFFF).
class Utf8Checker {
 public:
  /// False once something cannot be part of UTF-8.
  [[nodiscard]] bool Take(std::string_view bytes);
  /// Not in the middle of a character.
  [[nodiscard]] bool complete() const { return left_ == 0; }
  void Reset() {
    left_ = 0;
    low_ = 0x80;
    high_ = 0xbf;
  }

 private:
  uint8_t left_ = 0;    ///< continuation bytes still to come
  uint8_t low_ = 0x80;  ///< bounds of the next one
  uint8_t high_ = 0xbf;
};

class WebSocketReader {
 public:
  WebSocketReader(WebSocketSide side, WebSocketCompression compression, uint64_t max_message = kMaxWebSocketMessage)
      : side_(side), compression_(compression), max_message_(max_message) {}

  enum class What : uint8_t {
    kNeedMore,  ///< nothing consumed: a head, or a control frame, is not complete
    kFrame,     ///< the head of a data frame; its payload follows in kPayload steps, none where the length is 0
    kPayload,   ///< bytes of the frame under way
    kControl,   ///< a whole control frame
  };
  struct Step {
    What what = What::kNeedMore;
    size_t consumed = 0;
    WebSocketFrame frame;      ///< kFrame, kControl; for kPayload the frame under way
    std::span<char> data;      ///< kPayload, kControl: unmasked, within the input
    bool frame_end = false;    ///< kFrame (of length 0), kPayload: the frame is complete
    bool message_end = false;  ///< and so is its message
  };
  /// Unmasks what it consumes, in place. After a fault, or once closed(), not to be called again.
  [[nodiscard]] std::expected<Step, WebSocketFault> Next(std::span<char> in);

  /// A close frame has been read: nothing may follow it (section 5.5.1).
  [[nodiscard]] bool closed() const { return closed_; }
  /// Of the close frame; websocket_close::kNoCode where it had none, kAbnormal before there is one.
  [[nodiscard]] uint16_t close_code() const { return close_code_; }
  /// Between messages and between frames: where a frame of another's making may be put behind what was read.
  [[nodiscard]] bool between_frames() const { return left_ == 0; }
  [[nodiscard]] uint64_t messages() const { return messages_; }

 private:
  struct Head {
    WebSocketFrame frame;
    size_t size = 0;  ///< on the wire
    WebSocketMask mask{};
  };
  std::expected<std::optional<Head>, WebSocketFault> ReadHead(std::string_view in) const;
  std::optional<WebSocketFault> CheckOrder(const WebSocketFrame& frame) const;
  std::expected<Step, WebSocketFault> Control(const Head& head, std::span<char> in);
  std::expected<Step, WebSocketFault> Data(const Head& head);
  std::expected<Step, WebSocketFault> Payload(std::span<char> in);
  std::optional<WebSocketFault> EndFrame(Step* step);

  const WebSocketSide side_;
  const WebSocketCompression compression_;
  const uint64_t max_message_;
  WebSocketFrame frame_;
  WebSocketMask mask_{};
  size_t mask_at_ = 0;
  uint64_t left_ = 0;           ///< payload of frame_ still to come
  uint64_t message_bytes_ = 0;  ///< of the message under way
  uint64_t messages_ = 0;
  bool in_message_ = false;  ///< a first frame without FIN has been read
  bool check_text_ = false;  ///< the message under way is text that can be read
  bool closed_ = false;
  uint16_t close_code_ = websocket_close::kAbnormal;
  Utf8Checker utf8_;
};

/// Whether this code may stand in a close frame (section 7.4; 1012 to 1014 are registered since).
[[nodiscard]] bool IsCloseCode(uint16_t code);

/// Applies `mask` from its byte `at` on; again to undo it.
void MaskWebSocket(std::span<char> data, const WebSocketMask& mask, size_t at);

/// The head of a frame in its shortest form; masked where `mask` is given. The payload, masked by the caller, follows it.
void AppendWebSocketHead(Buffer* out, const WebSocketFrame& frame, const std::optional<WebSocketMask>& mask);

/// Payload of the frame whose head was written last, `at` bytes of it having been written before.
void AppendWebSocketPayload(Buffer* out, std::string_view data, const std::optional<WebSocketMask>& mask, size_t at);

/// A whole frame; frame.length is taken from `data`.
void AppendWebSocketFrame(Buffer* out, WebSocketFrame frame, std::string_view data, const std::optional<WebSocketMask>& mask);

/// A close frame. `reason` is cut to kMaxWebSocketReason at a character; `code` must be one that IsCloseCode.
void AppendWebSocketClose(Buffer* out, uint16_t code, std::string_view reason, const std::optional<WebSocketMask>& mask);

}  // namespace sluice::proxy
