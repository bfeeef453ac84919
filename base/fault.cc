#include "base/fault.h"

#ifdef SLUICE_FAULTS

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace sluice {
namespace {

struct Fault {
  std::string point;
  std::string name;  ///< of the errno
  int error = EIO;
  std::atomic<long> skip{0};
  std::atomic<long> left{std::numeric_limits<long>::max()};
  std::atomic<bool> told{false};
};

constexpr std::array<std::pair<std::string_view, int>, 17> kErrors = {{{"EIO", EIO},
                                                                       {"EPERM", EPERM},
                                                                       {"EACCES", EACCES},
                                                                       {"ENOMEM", ENOMEM},
                                                                       {"EMFILE", EMFILE},
                                                                       {"ENFILE", ENFILE},
                                                                       {"ENOBUFS", ENOBUFS},
                                                                       {"ENOSPC", ENOSPC},
                                                                       {"EAGAIN", EAGAIN},
                                                                       {"EINTR", EINTR},
                                                                       {"ENOENT", ENOENT},
                                                                       {"ESRCH", ESRCH},
                                                                       {"ENETUNREACH", ENETUNREACH},
                                                                       {"EINVAL", EINVAL},
                                                                       {"EBADF", EBADF},
                                                                       {"EPIPE", EPIPE},
                                                                       {"EADDRINUSE", EADDRINUSE}}};

std::string_view Cut(std::string_view* text, char at) {
  const size_t end = text->find(at);
  const std::string_view head = text->substr(0, end);
  *text = end == std::string_view::npos ? std::string_view() : text->substr(end + 1);
  return head;
}

long NumberOf(std::string_view text, long without) {
  long number = without;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// What does not parse ends the program: a test that injects nothing would pass for the wrong reason.
std::vector<std::unique_ptr<Fault>> ReadFaults() {
  std::vector<std::unique_ptr<Fault>> faults;
  const char* named = std::getenv("SLUICE_FAULT");
  std::string_view text = named == nullptr ? "" : named;
  while (!text.empty()) {
    std::string_view one = Cut(&text, ',');
    auto fault = std::make_unique<Fault>();
    fault->point = Cut(&one, ':');
    const std::string_view error = Cut(&one, ':');
    const auto* known = std::find_if(kErrors.begin(), kErrors.end(), [&](const auto& entry) { return entry.first == error; });
    if (known == kErrors.end()) {
      std::fputs("sluice: SLUICE_FAULT: write POINT:ERRNO[:COUNT[:SKIP]]\n", stderr);
      ::_exit(2);
    }
    fault->name = error;
    fault->error = known->second;
    fault->left = NumberOf(Cut(&one, ':'), std::numeric_limits<long>::max());
    fault->skip = NumberOf(one, 0);
    faults.push_back(std::move(fault));
  }
  return faults;
}

// Once in each process that meets it: what is written here was there. Standard error may be closed already.
void Tell(Fault& fault) {
  if (fault.told.exchange(true, std::memory_order_relaxed)) return;
  const std::string line = fmt::format("fault {} {}\n", fault.point, fault.name);
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

bool FaultAt(const char* point) {
  static const std::vector<std::unique_ptr<Fault>> faults = ReadFaults();
  for (const auto& fault : faults) {
    if (fault->point != point || fault->skip.fetch_sub(1, std::memory_order_relaxed) > 0) continue;
    if (fault->left.fetch_sub(1, std::memory_order_relaxed) <= 0) continue;
    Tell(*fault);
    errno = fault->error;
    return true;
  }
  return false;
}

}  // namespace sluice

#endif
