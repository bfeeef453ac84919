// Start-up: capture, launch, `true`, wait — beside `bwrap --unshare-all --ro-bind / / true`, taken in turns in one run. Prints
// the medians and their ratio; the aim is at most 2. Both run with real-time priority where that is permitted, so that a busy
// machine does not measure its run queue.

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "supervisor/io/launch.h"
#include "tests/supervisor/small_filter.h"

namespace {

using Microseconds = std::chrono::duration<double, std::micro>;
using sluice::supervisor::LaunchSpec;

struct Phases {
  Microseconds capture{}, launch{}, run{}, total{};
};

Phases RunSluice(const LaunchSpec& spec) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  auto capture = sluice::supervisor::CreateCapture();
  if (!capture) {
    fmt::print(stderr, "{}\n", capture.error().message);
    std::exit(1);
  }
  const auto captured = Clock::now();
  auto workload = sluice::supervisor::LaunchFiltered(spec, *capture, sluice::supervisor::kSmallFilter);
  if (!workload || !(*workload)->Release()) {
    fmt::print(stderr, "{}\n", workload ? "not released" : workload.error().message);
    std::exit(1);
  }
  const auto launched = Clock::now();
  if ((*workload)->Wait().code != 0) std::exit(1);
  workload->reset();
  const auto end = Clock::now();
  return {captured - start, launched - captured, end - launched, end - start};
}

Microseconds RunBubblewrap() {
  std::array<const char*, 7> argv = {"bwrap", "--unshare-all", "--ro-bind", "/", "/", "true", nullptr};
  const auto start = std::chrono::steady_clock::now();
  pid_t child = 0;
  if (::posix_spawnp(&child, "bwrap", nullptr, nullptr, const_cast<char**>(argv.data()), environ) != 0) {
    fmt::print(stderr, "bwrap is not installed\n");
    std::exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) std::exit(1);
  return std::chrono::steady_clock::now() - start;
}

template <class T, class Get>
double Median(std::vector<T>& values, Get get) {
  std::ranges::sort(values, {}, get);
  return get(values[values.size() / 2]).count();
}

}  // namespace

int main(int argc, char** argv) {
  const sched_param priority{.sched_priority = 10};
  const bool real_time = ::sched_setscheduler(0, SCHED_FIFO, &priority) == 0;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 200;
  std::string folder = "/tmp/sluice-bench-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  LaunchSpec spec;
  spec.argv = {"true"};
  spec.work_directory = folder;
  spec.environment = {{"PATH", "/usr/bin:/bin"}, {"HOME", "/home/bench"}};
  std::vector<Phases> ours;
  std::vector<Microseconds> theirs;
  for (int i = 0; i < rounds; ++i) {
    ours.push_back(RunSluice(spec));
    theirs.push_back(RunBubblewrap());
  }
  std::filesystem::remove(folder);
  const double capture = Median(ours, [](const Phases& p) { return p.capture; });
  const double launch = Median(ours, [](const Phases& p) { return p.launch; });
  const double run = Median(ours, [](const Phases& p) { return p.run; });
  const double total = Median(ours, [](const Phases& p) { return p.total; });
  const double bubblewrap = Median(theirs, [](const Microseconds& m) { return m; });
  fmt::print("start-up, medians of {} in turns{}: capture {:.0f} us, launch {:.0f} us, run and end {:.0f} us, in all {:.0f} us\n",
             rounds, real_time ? "" : " (at normal priority)", capture, launch, run, total);
  fmt::print("bwrap --unshare-all --ro-bind / / true: {:.0f} us; ratio {:.2f} (aim: at most 2)\n", bubblewrap,
             total / bubblewrap);
}
