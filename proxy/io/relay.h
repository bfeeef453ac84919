#pragma once

// Bytes from one socket to the other: short ones by way of memory, long ones through a pipe, past it, unless one side is under
// TLS.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "proxy/buffer.h"
#include "proxy/io/reactor.h"
#include "proxy/io/stream.h"
#include "proxy/io/task.h"

namespace sluice::proxy {

struct Pipe {
  UniqueFd read;
  UniqueFd write;
  size_t held = 0;
};

/// Spare empty pipes of one worker.
class PipePool {
 public:
  /// Descriptors from `ceiling` on are not for pipes.
  explicit PipePool(int ceiling) : ceiling_(ceiling) {}
  /// Not valid when the process is out of descriptors.
  [[nodiscard]] Pipe Take();
  /// Only empty ones are kept.
  void Give(Pipe pipe);
  void Clear() { spare_.clear(); }

 private:
  const int ceiling_;
  std::vector<Pipe> spare_;
};

/// What a relay waits with, and a worker's room for one read, which others use while it waits. Outlive it.
struct RelayOn {
  Reactor& reactor;
  Waiter& waiter;
  std::span<char> scratch;
  std::chrono::milliseconds idle;  ///< for which nothing may move
};

struct RelayOutcome {
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  const char* error = "";  ///< empty: both sides ended well
};

/// Until both sides have ended, one broke, or nothing moved for `on.idle`. Half-closes are passed on; the last end is told by
/// closing both, which is the caller's. Without a pipe to be had, all of it goes through memory.
[[nodiscard]] Task<RelayOutcome> Relay(RelayOn on, PipePool& pipes, Stream& down, Stream& up);

/// The same where `up` is under TLS, that of an upstream proxy. `first`: what was already read of it. A TLS connection that is
/// cut without its close_notify counts as broken.
[[nodiscard]] Task<RelayOutcome> RelayThroughTls(RelayOn on, Stream& down, Stream& up, Buffer first);

}  // namespace sluice::proxy
