#pragma once

// Drops descriptors taken from a stranger. The last close of a socket that lingers waits for its peer, and a stranger can
// make ours the last one; a file may wait in its own ways. What a UNIX socket is closed with that nobody has received, sockets
// among it, is closed with it: a socket that a stranger can send to is to be dropped here as well. Such closes happen on threads
// that serve nobody, each freed by its WakeTimer after kWakeInterval. Any thread may call; nothing blocks for longer than that.

#include <future>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice {

inline constexpr size_t kMaxQueuedCloses = 4096;
inline constexpr unsigned kCloserThreads = 2;

class PinnedCloser {
 public:
  enum class Kind : uint8_t {
    kFresh,    ///< a TCP socket that had no peer a moment ago, a datagram or UNIX socket: can only linger if SO_LINGER says so
    kUnknown,  ///< anything else
  };

  explicit PinnedCloser(size_t most = kMaxQueuedCloses);
  /// Once, before a stranger's descriptors come: whether there are such threads, each with its timer. Without, a close would
  /// wait.
  [[nodiscard]] Result<void> Ready();
  ~PinnedCloser();
  PinnedCloser(const PinnedCloser&) = delete;
  PinnedCloser& operator=(const PinnedCloser&) = delete;

  /// kFresh sockets without SO_LINGER are closed at once: a race to set it costs at most kWakeInterval of a thread with a
  /// WakeTimer. Where the queue is full, this thread closes it, and is kept for no longer than that either.
  void Drop(UniqueFd fd, Kind kind);

 private:
  BoundedQueue<UniqueFd> queue_;
  std::vector<std::future<Result<void>>> made_;  // what each thread has said of its timer
  std::vector<std::thread> threads_;
};

}  // namespace sluice
