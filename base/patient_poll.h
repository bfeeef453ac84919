#pragma once

// poll(2) for loops that ask again whatever comes of it: where the kernel cannot wait, they would burn a core for as long.

#include <poll.h>

#include <cerrno>
#include <chrono>
#include <span>
#include <thread>

namespace sluice {

/// Until a loop looks again whose wait has failed, or which could not take what was there: no memory, no descriptors.
inline constexpr std::chrono::milliseconds kPollRest{20};

/// As poll(2); an error, but for EINTR, is told after kPollRest. No `revents` are set then.
inline int PatientPoll(std::span<pollfd> waits, int timeout_ms) {
  const int ready = ::poll(waits.data(), waits.size(), timeout_ms);
  if (ready >= 0) return ready;
  const int error = errno;
  for (pollfd& wait : waits) wait.revents = 0;
  if (error != EINTR) std::this_thread::sleep_for(kPollRest);
  errno = error;
  return ready;
}

}  // namespace sluice
