#pragma once

// Drops descriptors taken from the workload. The last close of a socket that lingers waits for its peer, and a workload can
// make ours the last one; a file may wait in its own ways. Such closes happen on threads that serve nobody, each freed by
// its WakeTimer after kWakeInterval. Any thread may call; nothing blocks.

#include <memory>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/unique_fd.h"

namespace sluice::supervisor {

inline constexpr size_t kMaxQueuedCloses = 4096;
inline constexpr unsigned kCloserThreads = 2;

class PinnedCloser {
 public:
  enum class Kind : uint8_t {
    kFresh,    ///< a TCP socket that had no peer a moment ago, a datagram or UNIX socket: can only linger if SO_LINGER says so
    kUnknown,  ///< anything else
  };

  PinnedCloser();
  ~PinnedCloser();
  PinnedCloser(const PinnedCloser&) = delete;
  PinnedCloser& operator=(const PinnedCloser&) = delete;

  /// kFresh sockets without SO_LINGER are closed at once: a race to set it costs at most kWakeInterval of a thread with a
  /// WakeTimer. A full queue closes at once as well, under the same bound.
  void Drop(UniqueFd fd, Kind kind);

 private:
  BoundedQueue<UniqueFd> queue_{kMaxQueuedCloses};
  std::vector<std::thread> threads_;
};

}  // namespace sluice::supervisor
