#pragma once

// A thread, where the machine may have no room for one more: that is a user's, and so also a workload's to take.

#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

namespace sluice {

/// As a system call: 0, or -1 and errno (pthread_create(3)).
template <class Body>
[[nodiscard]] int StartThread(std::thread* thread, Body&& body) {
  try {
    *thread = std::thread(std::forward<Body>(body));
    return 0;
  } catch (const std::system_error& fault) {
    errno = fault.code().value();
    return -1;
  }
}

}  // namespace sluice
