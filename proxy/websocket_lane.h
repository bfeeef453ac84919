#pragma once

// One direction of a WebSocket on its way through: frames are read strictly from one buffer and written anew into another, with
// masks of our own toward the upstream. Payload streams through in pieces, unless text is to be edited: then a text message is
// held until it is whole and leaves as one frame. Knows nothing of sockets, so that HTTP/1.1 and HTTP/2 use it alike.

#include <cstdint>
#include <expected>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "proxy/buffer.h"
#include "proxy/websocket.h"

namespace sluice::proxy {

inline constexpr size_t kMaxEditedText = size_t{1} << 20;  ///< a text message that is held to be edited

/// The text that goes on in place of the one given, or why the message is refused (static text; closes with 1008). The result
/// must be UTF-8.
using WebSocketTextEdit = std::function<std::expected<std::string, std::string_view>(std::string_view)>;
/// Looks at payload of data messages as it goes on, in pieces: why it must not (static text; closes with 1008).
using WebSocketSearch = std::function<std::optional<std::string_view>(std::string_view)>;
/// What is done to messages on their way; each may be empty, and sees what is not compressed.
struct WebSocketHooks {
  WebSocketTextEdit edit{};
  WebSocketSearch search{};  ///< in what is not held to be edited
};
/// Four unpredictable bytes (RFC 6455 section 5.3).
using WebSocketMaskSource = std::function<WebSocketMask()>;

class WebSocketLane {
 public:
  /// `side`: who sends. `masks` is asked for each frame of a client.
  WebSocketLane(WebSocketSide side, WebSocketCompression compression, WebSocketMaskSource masks, WebSocketHooks hooks)
      : side_(side), reader_(side, compression), masks_(std::move(masks)), hooks_(std::move(hooks)) {}

  /// Moves what can be read, until `out` holds `high_water` bytes or more. After a fault it is not to be called again.
  [[nodiscard]] std::optional<WebSocketFault> Move(Buffer* in, Buffer* out, size_t high_water);

  /// A close frame has gone through; nothing follows it.
  [[nodiscard]] bool closed() const { return reader_.closed(); }
  [[nodiscard]] uint16_t close_code() const { return reader_.close_code(); }
  /// What was written to `out` ends with a whole frame: another may follow.
  [[nodiscard]] bool between_frames() const { return !open_; }
  [[nodiscard]] uint64_t payload_bytes() const { return payload_bytes_; }  ///< of data frames, as they came

 private:
  [[nodiscard]] std::optional<WebSocketMask> NextMask() const;
  std::optional<WebSocketFault> Hold(const WebSocketReader::Step& step, Buffer* out);

  const WebSocketSide side_;
  WebSocketReader reader_;
  const WebSocketMaskSource masks_;
  const WebSocketHooks hooks_;
  std::optional<WebSocketMask> mask_;  ///< of the frame under way
  size_t written_ = 0;                 ///< of its payload, modulo 4
  uint64_t payload_bytes_ = 0;
  bool open_ = false;     ///< a frame's head was written and not yet all of its payload
  bool holding_ = false;  ///< a text message is held
  std::string held_;
};

}  // namespace sluice::proxy
