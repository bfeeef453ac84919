#pragma once

// Tells a thread to end. A descriptor wakes its poll(2); a rest needs no poll, for when that fails again and again: out of
// memory, or RLIMIT_NOFILE below what it is asked for (patient_poll.h).
//
//   pollfd waits[] = {{stop_.fd(), POLLIN, 0}, …};
//   const int ready = poll(waits, 2, -1);
//   if (stop_.called() || (ready < 0 && errno != EINTR && stop_.Rest(kPollRest))) return;

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/unique_fd.h"

namespace sluice {

/// Any thread, once it is open.
class StopEvent {
 public:
  /// As a system call: -1 and errno.
  [[nodiscard]] int Open() {
    event_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return event_ ? 0 : -1;
  }
  /// Readable from the call on.
  [[nodiscard]] int fd() const { return event_.get(); }

  void Call() {
    {
      const std::lock_guard lock(mutex_);
      called_ = true;
    }
    change_.notify_all();
    // A count that is full has rung.
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(event_.get(), &one, sizeof one);
  }
  [[nodiscard]] bool called() const {
    const std::lock_guard lock(mutex_);
    return called_;
  }
  /// For so long, or until it is called: true.
  [[nodiscard]] bool Rest(std::chrono::milliseconds longest) {
    std::unique_lock lock(mutex_);
    return change_.wait_for(lock, longest, [this] { return called_; });
  }

 private:
  UniqueFd event_;
  mutable std::mutex mutex_;
  std::condition_variable change_;
  bool called_ = false;
};

}  // namespace sluice
