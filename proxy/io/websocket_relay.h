#pragma once

// Frames of a WebSocket relayed between two sides, whatever carries them, until both have closed, one is gone, a rule of the
// protocol is broken, or the policy no longer allows it. Buffers are bounded: a side that takes nothing stops the other from
// being read.

#include <cstdint>
#include <span>
#include <string_view>

#include "proxy/io/reactor.h"
#include "proxy/io/stream.h"
#include "proxy/io/task.h"
#include "proxy/io/upstream_leg.h"
#include "proxy/websocket_lane.h"

namespace sluice::proxy {

/// One side, as bytes. Nothing waits.
class WebSocketEnd {
 public:
  WebSocketEnd() = default;
  virtual ~WebSocketEnd() = default;
  WebSocketEnd(const WebSocketEnd&) = delete;
  WebSocketEnd& operator=(const WebSocketEnd&) = delete;

  [[nodiscard]] virtual Io Read(std::span<char> room) = 0;
  [[nodiscard]] virtual Io Write(std::string_view bytes) = 0;
  /// What Read and Write wait for after kWouldBlock; no channel: whoever waits is poked.
  [[nodiscard]] virtual Channel* channel() = 0;
  [[nodiscard]] virtual uint8_t read_needs() const = 0;
  [[nodiscard]] virtual uint8_t write_needs() const = 0;
  /// In error, which a wait for nothing of it would not tell.
  [[nodiscard]] virtual bool broken() const = 0;
  /// Nothing more will be written or read.
  virtual void Close() = 0;

  Buffer in;   ///< read from it and not looked at yet
  Buffer out;  ///< to be written to it
};

/// A socket.
class StreamEnd final : public WebSocketEnd {
 public:
  explicit StreamEnd(Stream& stream) : stream_(stream) {}
  Io Read(std::span<char> room) override { return stream_.Read(room); }
  Io Write(std::string_view bytes) override { return stream_.Write(bytes); }
  Channel* channel() override { return &stream_.channel; }
  [[nodiscard]] uint8_t read_needs() const override { return stream_.read_needs; }
  [[nodiscard]] uint8_t write_needs() const override { return stream_.write_needs; }
  [[nodiscard]] bool broken() const override { return (stream_.channel.ready & kBroken) != 0; }
  void Close() override { stream_.Close(); }

 private:
  Stream& stream_;
};

/// A stream of an HTTP/2 upstream, after Got::kSwitched.
class LegEnd final : public WebSocketEnd {
 public:
  explicit LegEnd(UpstreamLeg& leg) : leg_(leg) {}
  Io Read(std::span<char> room) override;
  Io Write(std::string_view bytes) override;
  Channel* channel() override { return nullptr; }
  [[nodiscard]] uint8_t read_needs() const override { return kReadable; }
  [[nodiscard]] uint8_t write_needs() const override { return kWritable; }
  [[nodiscard]] bool broken() const override { return failed_; }
  void Close() override;

 private:
  UpstreamLeg& leg_;
  BodyPipe up_;
  BodyPipe down_;
  ResponseHead head_;
  Framing framing_;
  bool failed_ = false;
};

struct WebSocketDeadlines {
  std::chrono::milliseconds idle;   ///< no frame either way
  std::chrono::milliseconds stuck;  ///< a peer that takes nothing
  std::chrono::milliseconds close;  ///< from a close frame to the end
  SteadyTime end;                   ///< whatever happens
};

struct WebSocketOutcome {
  uint64_t bytes_up = 0;  ///< payload of data frames
  uint64_t bytes_down = 0;
  uint16_t close_code = websocket_close::kAbnormal;  ///< of the first close frame, from either peer or from here
  std::string_view error;                            ///< static; empty: closed by its peers
};

/// Closes the upstream's end; the caller lingers on the client's. `hooks`: for what the client sends. On the waiter's thread;
/// both ends outlive it.
[[nodiscard]] Task<WebSocketOutcome> RelayWebSocket(Reactor& reactor, Waiter& waiter, WebSocketEnd& down, WebSocketEnd& up,
                                                    WebSocketCompression compression, WebSocketHooks hooks,
                                                    WebSocketDeadlines deadlines);

/// From getrandom(2), a few at a time. One thread.
[[nodiscard]] WebSocketMaskSource RandomMasks();

}  // namespace sluice::proxy
