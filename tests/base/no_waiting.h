#pragma once

// A process whose poll(2) fails for as long as one of these lives, and how much of the processor it takes meanwhile.

#include <sys/resource.h>

#include <chrono>
#include <ctime>

namespace sluice {

/// EINVAL: more descriptors are waited for than the process may have open. Those that are open stay; nothing else opens.
class NoWaiting {
 public:
  explicit NoWaiting(rlim_t most = 0) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit less{most, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &less);
  }
  ~NoWaiting() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoWaiting(const NoWaiting&) = delete;
  NoWaiting& operator=(const NoWaiting&) = delete;

 private:
  rlimit before_{};
};

/// Of this process, or of a thread by its clock.
inline std::chrono::nanoseconds ProcessorTime(clockid_t whose = CLOCK_PROCESS_CPUTIME_ID) {
  timespec spent{};
  ::clock_gettime(whose, &spent);
  return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
}

}  // namespace sluice
