#pragma once

// Finds whose a socket of the capture namespace is: sock_diag(7) inside that namespace gives its inode and cookie, and the
// descriptors of the workload's processes say who holds it. Slow (a scan of /proc); for what was not notified.

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/ip.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/query.h"
#include "supervisor/io/capture.h"

namespace sluice::supervisor {

inline constexpr size_t kMaxScannedProcesses = 4096;
inline constexpr size_t kMaxScannedDescriptors = 65536;  ///< in one search, over all processes

struct SocketIdentity {
  uint64_t cookie = 0;
  uint64_t inode = 0;
};

/// The descriptors at which a process's sockets were found last, the latest first: one that opens connection after connection
/// gets the same few numbers again, and with several at a time most often the one that has been in use longest, at about the same
/// place of this list each time. Only where to look first. One thread.
struct DescriptorHints {
  std::array<int, 64> numbers{};
  size_t size = 0;
  size_t likely = 0;  ///< where the last one was found
  void Put(int number);
};

class SocketOwner {
 public:
  /// Asks through the capture's netlink sockets. One owner per capture: two would take each other's answers.
  [[nodiscard]] static Result<SocketOwner> Open(const Capture& capture, pid_t workload_pid);
  /// Of the network namespace that this process is in, rather than a capture's.
  [[nodiscard]] static Result<SocketOwner> OpenHere();
  SocketOwner(SocketOwner&& other) noexcept;

  /// The socket with this tuple, or nothing. `client` is its local end.
  [[nodiscard]] std::optional<SocketIdentity> Find(policy::Transport transport, const Endpoint& client, const Endpoint& server);
  /// The socket that sends UDP from `client`, or has it as its TCP end, whatever the other end is: bound to that address, or to
  /// none. Goes through all sockets of that port.
  [[nodiscard]] std::optional<SocketIdentity> FindSender(policy::Transport transport, const Endpoint& client);
  /// A process of the workload that holds the socket; 0 when none does.
  [[nodiscard]] pid_t Holder(uint64_t inode) const;
  /// Whether the process of this folder of /proc, of whichever namespace, holds it. Looks at the descriptors of `hints` first,
  /// and puts where it was there, in front.
  [[nodiscard]] static bool Holds(int proc, uint64_t inode, DescriptorHints* hints);
  /// The same, but looks nowhere else than at `most` descriptors of `hints` and at the one behind the last.
  [[nodiscard]] static bool HoldsAsBefore(int proc, uint64_t inode, DescriptorHints* hints, size_t most);
  /// Whether that descriptor of it is the socket.
  [[nodiscard]] static bool HoldsAt(int proc, uint64_t inode, int descriptor);
  /// Addresses of the namespace's interfaces.
  [[nodiscard]] Result<std::vector<IpAddress>> Addresses();

 private:
  SocketOwner(UniqueFd diag, UniqueFd route, pid_t workload_pid)
      : diag_(std::move(diag)), route_(std::move(route)), workload_pid_(workload_pid) {}
  std::mutex mutex_;  // one request at a time on each socket
  UniqueFd diag_;
  UniqueFd route_;
  uint32_t sequence_ = 0;  // of the last request: what answers another is passed over
  pid_t workload_pid_;
};

}  // namespace sluice::supervisor
