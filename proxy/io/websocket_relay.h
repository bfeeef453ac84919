#pragma once

// Frames of a WebSocket relayed between two streams, until both sides have closed, one is gone, a rule of the protocol is broken,
// or the policy no longer allows it. Buffers are bounded: a side that takes nothing stops the other from being read.

#include <cstdint>
#include <string_view>

#include "proxy/io/reactor.h"
#include "proxy/io/stream.h"
#include "proxy/io/task.h"
#include "proxy/websocket_lane.h"

namespace sluice::proxy {

struct WebSocketEnd {
  Stream& stream;
  Buffer& in;   ///< read from it and not looked at yet
  Buffer& out;  ///< to be written to it
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

/// Closes the upstream's end; the caller lingers on the client's. `edit`: of text that the client sends, or empty. On the
/// waiter's thread.
[[nodiscard]] Task<WebSocketOutcome> RelayWebSocket(Reactor& reactor, Waiter& waiter, WebSocketEnd down, WebSocketEnd up,
                                                    WebSocketCompression compression, WebSocketTextEdit edit,
                                                    WebSocketDeadlines deadlines);

/// From getrandom(2), a few at a time. One thread.
[[nodiscard]] WebSocketMaskSource RandomMasks();

}  // namespace sluice::proxy
