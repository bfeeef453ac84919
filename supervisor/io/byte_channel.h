#pragma once

// One direction of a relay between descriptors that may be shared with other programs, so that none is made non-blocking
// here: the loop polls, and moves what is ready.

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "supervisor/io/shared_sink.h"

namespace sluice::supervisor {

/// Bytes one direction may hold.
inline constexpr size_t kChannelBuffer = 16 * 1024;

class OutputMeter;

class ByteChannel {
 public:
  /// `meter`: looks at what is read before it passes; outlives the channel, or null.
  ByteChannel(int from, int to, OutputMeter* meter = nullptr);

  /// What to wait for; fd -1 where there is nothing: nothing is read while the meter is behind.
  [[nodiscard]] pollfd Interest() const;
  /// Moves bytes if the poll's answer allows. False once the channel is done: the source ended or the sink broke.
  [[nodiscard]] bool Move(short revents);
  [[nodiscard]] int from() const { return from_; }
  [[nodiscard]] int to() const { return to_.fd(); }

 private:
  [[nodiscard]] bool Fill(short revents);
  [[nodiscard]] bool Empty();

  int from_;
  SharedSink to_;
  bool from_socket_ = false;
  bool from_datagrams_ = false;
  OutputMeter* meter_;
  std::array<char, kChannelBuffer> buffer_{};
  size_t start_ = 0;
  size_t end_ = 0;
};

}  // namespace sluice::supervisor
