#pragma once

// AF_XDP sockets send past every netfilter hook, egress included, and need CAP_NET_RAW alone (found on Linux 6.18). A queue of a
// device has room for one: the guard takes each, for as long as this process lives. It needs CAP_NET_RAW itself; without it, or
// where a queue is taken, it says so.

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace sluice::supervisor {

/// Queues guarded of one device; a device with more is a weakness that is told.
inline constexpr unsigned kMaxGuardedQueues = 256;

/// Of a queue that is taken. The kernel gives back what a process held a moment after that has ended, and a sidecar may have
/// begun in the place of another by then.
enum class TakenQueue : uint8_t {
  kWaitedFor,  ///< for half a second in all
  kTold,
};

class XdpGuard {
 public:
  /// Guards `lo` and these: what is new is taken, what is gone given up. Blocks briefly.
  void Guard(std::vector<std::string> devices, TakenQueue taken);
  /// What it could not guard, a sentence each: there a workload with CAP_NET_RAW gets out. Empty also where this kernel has no
  /// AF_XDP.
  [[nodiscard]] std::vector<std::string> Weaknesses() const { return weaknesses_; }

 private:
  struct Guarded {
    unsigned index = 0;
    std::vector<UniqueFd> queues;
    std::string fault{};  ///< of a device that has more
  };
  [[nodiscard]] std::string GuardDevice(const std::string& device, unsigned index, std::chrono::steady_clock::time_point until);

  std::map<std::string, Guarded> guarded_;
  std::vector<std::string> weaknesses_;
};

}  // namespace sluice::supervisor
