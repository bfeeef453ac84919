// What supervision costs connect(2): the same program measures itself outside (native, host loopback) and as the workload of a
// real capture, launcher and notifier, in turns, so that both see the same machine. Only connect itself is timed. Accepted
// sockets are dropped in batches on both sides, so that nobody is woken for each.
//
//   connect_bench [rounds] [connects per round]

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "policy/io/load.h"
#include "supervisor/io/launch.h"
#include "supervisor/io/notifier.h"

namespace {

using namespace sluice;
using namespace sluice::supervisor;
using Clock = std::chrono::steady_clock;

constexpr const char* kNamed = "198.18.0.1";
constexpr const char* kDenied = "198.18.0.9";

struct Figures {
  double p50 = 0;
  double p99 = 0;
};

Figures FiguresOf(std::vector<double> values) {
  std::ranges::sort(values);
  return {values[values.size() / 2], values[values.size() * 99 / 100]};
}

// ---- what is measured ----

Figures TimeConnects(const char* address, uint16_t port, int flags, int count) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  inet_pton(AF_INET, address, &to.sin_addr);
  std::vector<double> took;
  for (int i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    const linger reset{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);  // no TIME_WAIT: ports would run out
    const auto begin = Clock::now();
    (void)!connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
    took.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    close(fd);
  }
  return FiguresOf(std::move(took));
}

Figures TimeGetppid(int count) {
  std::vector<double> took;
  for (int i = 0; i < 200; ++i) {
    const auto begin = Clock::now();
    for (int k = 0; k < count; ++k) syscall(SYS_getppid);
    took.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / count);
  }
  return FiguresOf(std::move(took));
}

Figures Measure(const std::string& what, const char* address, uint16_t port, int count) {
  if (what == "getppid") return TimeGetppid(count);
  return TimeConnects(address, port, what == "blocking" ? 0 : SOCK_NONBLOCK, count);
}

// ---- native ----

// In this network namespace, or in another.
Figures Unsupervised(const std::string& what, const char* address, uint16_t port, int count, const Capture* capture) {
  int pipes[2];
  if (pipe2(pipes, O_CLOEXEC) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    if (capture != nullptr) {
      (void)setns(capture->user_namespace.get(), CLONE_NEWUSER);
      if (setns(capture->network_namespace.get(), CLONE_NEWNET) != 0) _exit(1);
    }
    const Figures figures = Measure(what, address, port, count);
    (void)!write(pipes[1], &figures, sizeof figures);
    _exit(0);
  }
  close(pipes[1]);
  Figures out;
  (void)!read(pipes[0], &out, sizeof out);
  close(pipes[0]);
  waitpid(child, nullptr, 0);
  return out;
}

// Accepts and drops, now and then.
class Drain {
 public:
  explicit Drain(int listener)
      : thread_([this, listener] {
          while (!stop_) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            while (UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC))) {
            }
          }
        }) {}
  ~Drain() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// What a client of an ordinary server meets: each connect wakes it out of accept.
class Waiting {
 public:
  explicit Waiting(int listener)
      : thread_([this, listener] {
          pollfd ready{listener, POLLIN, 0};
          while (!stop_) {
            if (poll(&ready, 1, 100) == 1) UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
          }
        }) {}
  ~Waiting() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

template <class Server>
class NativeListener {
 public:
  NativeListener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof any;
    if (bind(fd_.get(), reinterpret_cast<sockaddr*>(&any), length) != 0 || listen(fd_.get(), 4096) != 0) std::abort();
    getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&any), &length);
    port = ntohs(any.sin_port);
    server_.emplace(fd_.get());
  }
  uint16_t port = 0;

 private:
  UniqueFd fd_;
  std::optional<Server> server_;
};

// ---- supervised ----

class Flows : public FlowHandler {
 public:
  Flows()
      : thread_([this] {
          while (!stop_) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            std::vector<UniqueFd> drop;
            const std::lock_guard lock(mutex_);
            drop.swap(fds_);
          }
        }) {}
  ~Flows() override {
    stop_ = true;
    thread_.join();
  }
  std::optional<std::string> NameOf(const IpAddress& address) override {
    if (address == *IpAddress::Parse(kNamed)) return "a.test";
    return "no.test";
  }
  bool IsSynthetic(const IpAddress& address) override { return address.is_v4() && address.v4() >> 17 == 0xc6120000 >> 17; }
  void Prepare(ApprovedConnect, std::function<void(int)> done) override { done(0); }
  void Start(ApprovedConnect, Endpoint, UniqueFd accepted) override {
    const std::lock_guard lock(mutex_);
    fds_.push_back(std::move(accepted));
  }

 private:
  std::mutex mutex_;
  std::vector<UniqueFd> fds_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class Counting : public policy::EventSink {
 public:
  bool Record(policy::DecisionEvent) noexcept override { return ++count >= 0; }
  bool Record(policy::ExchangeEvent) noexcept override { return true; }
  std::string NextDenialId() override { return "d-1"; }
  std::atomic<int64_t> count{0};
};

Figures Supervised(const std::string& what, int count, NotifyWakeUp wake_up) {
  static const policy::SnapshotPtr snapshot =
      policy::LoadText("version: 1\nrules:\n  - allow: tcp a.test:80\n", "bench.yaml").value();
  char name[] = "/tmp/sluice-bench-XXXXXX";
  const std::string directory = mkdtemp(name);
  const auto capture = CreateCapture();
  if (!capture) std::abort();
  LaunchSpec spec;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  spec.argv = {self, "--measure", what, std::to_string(count)};
  spec.work_directory = directory;
  spec.read_only = {std::filesystem::path(self).parent_path()};
  auto workload = Launch(spec, *capture);
  if (!workload) std::abort();
  Flows flows;
  Counting sink;
  const policy::CurrentPolicy policy(snapshot);
  const auto notifier = Notifier::Start(
      (*workload)->TakeNotifyFd(), *capture,
      {.workload_pid = (*workload)->pid(), .writable_trees = {}, .threads = 0, .wake_up = wake_up}, flows, policy, sink);
  if (!notifier || !(*workload)->Release()) std::abort();
  (void)(*workload)->Wait();
  Figures out;
  std::ifstream(directory + "/figures") >> out.p50 >> out.p99;
  std::filesystem::remove_all(directory);
  return out;
}

int MeasureAsWorkload(char** arguments) {
  const std::string what = arguments[0];
  const Figures figures = Measure(what, what == "denied" ? kDenied : kNamed, 80, std::atoi(arguments[1]));
  std::ofstream("figures") << figures.p50 << ' ' << figures.p99 << '\n';
  return 0;
}

Figures MedianOf(std::vector<Figures> rounds) {
  Figures out;
  std::ranges::sort(rounds, {}, &Figures::p50);
  out.p50 = rounds[rounds.size() / 2].p50;
  std::ranges::sort(rounds, {}, &Figures::p99);
  out.p99 = rounds[rounds.size() / 2].p99;
  return out;
}

void Compare(const std::string& what, int rounds, int count, NotifyWakeUp wake_up, const char* label) {
  const NativeListener<Drain> idle;
  const NativeListener<Waiting> waiting;
  const std::string native_what = what == "denied" ? "nonblocking" : what;
  std::vector<Figures> native, served, supervised;
  for (int i = 0; i < rounds; ++i) {
    native.push_back(Unsupervised(native_what, "127.0.0.1", idle.port, count, nullptr));
    served.push_back(Unsupervised(native_what, "127.0.0.1", waiting.port, count, nullptr));
    supervised.push_back(Supervised(what, count, wake_up));
  }
  const Figures n = MedianOf(native), w = MedianOf(served), s = MedianOf(supervised);
  fmt::print(
      "{:<28} native p50 {:7.3f} p99 {:7.2f} us   supervised p50 {:7.3f} p99 {:7.2f} us   ratio {:.2f}   to a server that waits "
      "in "
      "accept: native {:7.3f} us, ratio {:.2f}\n",
      label, n.p50, n.p99, s.p50, s.p99, s.p50 / n.p50, w.p50, s.p50 / w.p50);
  std::fflush(stdout);
}

// What the capture itself costs, without notifications: its nft rules and its dual-stack listener.
void MeasureCapture(int rounds, int count) {
  std::vector<Figures> figures;
  for (int i = 0; i < rounds; ++i) {
    const auto capture = CreateCapture();
    if (!capture) return;
    const Drain drain(capture->listener.get());
    figures.push_back(Unsupervised("nonblocking", kNamed, 80, count, &*capture));
  }
  const Figures f = MedianOf(figures);
  fmt::print("{:<28} p50 {:7.3f} p99 {:7.2f} us\n", "captured, not notified", f.p50, f.p99);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "--measure") return MeasureAsWorkload(argv + 2);
  const rlimit files{65536, 65536};
  setrlimit(RLIMIT_NOFILE, &files);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  const int count = argc > 2 ? std::atoi(argv[2]) : 3000;
  MeasureCapture(rounds, count);
  Compare("nonblocking", rounds, count, NotifyWakeUp::kSynchronous, "non-blocking, sync wake-up");
  Compare("nonblocking", rounds, count, NotifyWakeUp::kFree, "non-blocking, free wake-up");
  Compare("blocking", rounds, count, NotifyWakeUp::kSynchronous, "blocking, upstream ready");
  Compare("denied", rounds, count, NotifyWakeUp::kSynchronous, "denied (native: allowed)");
  Compare("getppid", rounds, 10000, NotifyWakeUp::kSynchronous, "getppid");
  return 0;
}
