#pragma once

// Sockets that were connected in place and not matched yet. A socket must not be dissolved meanwhile: its port could then be
// another's before its captured end is accepted. Any thread.

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

namespace sluice::supervisor {

class InFlight {
 public:
  /// False when this socket is in flight already.
  [[nodiscard]] bool Enter(uint64_t cookie) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(cookies_, cookie) != cookies_.end()) return false;
    cookies_.push_back(cookie);
    return true;
  }
  void Leave(uint64_t cookie) {
    const std::lock_guard lock(mutex_);
    const auto it = std::ranges::find(cookies_, cookie);
    if (it == cookies_.end()) return;
    *it = cookies_.back();
    cookies_.pop_back();
  }
  [[nodiscard]] bool Contains(uint64_t cookie) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::find(cookies_, cookie) != cookies_.end();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<uint64_t> cookies_;  // as many as notifier threads and approvals waiting: a handful
};

}  // namespace sluice::supervisor
