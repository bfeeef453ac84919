#pragma once

// Serves published ports: a process of its own between the host's network, where it listens, and the sandbox's, where it dials
// the workload's loopback. It is begun before the supervisor has read a secret, knows nothing but its sockets, has no capability,
// and ends with the supervisor. What comes in this way is a connection that somebody outside made: nothing of the workload leaves
// by it that was not asked for. It tells the supervisor of each connection when that ends.

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "supervisor/io/capture.h"
#include "supervisor/published_port.h"

namespace sluice::supervisor {

/// Connections at a time; further ones wait in the kernel's queue.
inline constexpr size_t kMaxPublishedConnections = 512;

/// One that has ended.
struct PublishedConnection {
  Endpoint from;       ///< who called
  PublishedPort port;  ///< by which of the published
  uint64_t octets_in = 0;
  uint64_t octets_out = 0;
  std::chrono::microseconds duration{};
  enum class End : uint8_t {
    kBoth,     ///< both sides had said all
    kBroken,   ///< one of them let go of it
    kNobody,   ///< nobody listens inside
    kRunEnded  ///< it was cut with the run
  };
  End end = End::kBoth;
};

class Publisher {
 public:
  /// Listens, and forks: while this process has one thread. An error names the port that cannot be had.
  [[nodiscard]] static Result<std::unique_ptr<Publisher>> Begin(const std::vector<PublishedPort>& ports);
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  /// From now on what was accepted is dialled inside.
  [[nodiscard]] Result<void> Serve(const Capture& capture);
  /// `told` is called for each connection, on a thread of its own, until Finish. After Serve, once.
  void Tell(std::function<void(const PublishedConnection&)> told);
  /// Cuts what is open. When it returns, every connection has been told of.
  void Finish();
  /// As they are listened on, in the order given.
  [[nodiscard]] const std::vector<PublishedPort>& ports() const { return ports_; }

 private:
  Publisher() = default;
  void ReadReports(const std::function<void(const PublishedConnection&)>& told);

  std::vector<PublishedPort> ports_;
  UniqueFd handshake_;
  pid_t child_ = 0;
  std::atomic<bool> finishing_{false};
  std::thread reader_;
};

}  // namespace sluice::supervisor
