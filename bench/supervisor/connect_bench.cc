// What supervision costs connect(2): the same program measures itself outside (native, host loopback) and as the workload of a
// real capture, launcher and notifier. Both run all the time and are asked in turns for short batches, so that both see the same
// machine; a ratio is the median of the ratios of neighbouring batches. Only connect itself is timed. Accepted sockets are
// dropped in batches on both sides, so that nobody is woken for each. CPU is everybody's: caller, kernel and supervisor.
//
//   connect_bench [batches] [connects per batch] [a part of a row's label]

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "policy/io/load.h"
#include "supervisor/io/kernel.h"
#include "supervisor/io/launch.h"
#include "supervisor/io/notifier.h"
#include "supervisor/io/seccomp_channel.h"

namespace {

using namespace sluice;
using namespace sluice::supervisor;
using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr const char* kNamed = "198.18.0.1";
constexpr const char* kDenied = "198.18.0.9";
constexpr int kProcesses = 100;

// ---- what is measured, in a process of its own ----

enum class What : uint32_t { kNonBlocking, kBlocking, kManyProcesses, kGetppid, kSocket };

struct Request {
  What what = What::kNonBlocking;
  int count = 0;
  sockaddr_in to{};
};

struct Figures {
  double p50 = 0;
  double p99 = 0;
  double cpu = 0;  // for one connect
};

double CpuUsed(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto of = [](const timeval& t) { return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_usec); };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

Figures FiguresOf(std::vector<double> values) {
  std::ranges::sort(values);
  return {.p50 = values[values.size() / 2], .p99 = values[values.size() * 99 / 100]};
}

double TimeOne(const sockaddr_in& to, int flags) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  const linger reset{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);  // no TIME_WAIT: ports would run out
  const auto begin = Clock::now();
  (void)!connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  const double took = Microseconds(Clock::now() - begin).count();
  close(fd);
  return took;
}

Figures TimeConnects(const Request& request) {
  const int flags = request.what == What::kBlocking ? 0 : SOCK_NONBLOCK;
  std::vector<double> took;
  for (int i = 0; i < request.count; ++i) took.push_back(TimeOne(request.to, flags));
  return FiguresOf(std::move(took));
}

// All of them at once; the time of all, divided among the connects.
Figures TimeManyProcesses(const Request& request) {
  int gate[2];
  if (pipe2(gate, O_CLOEXEC) != 0) std::abort();
  for (int i = 0; i < kProcesses; ++i) {
    if (fork() != 0) continue;
    close(gate[1]);
    char none;
    (void)!read(gate[0], &none, 1);
    for (int k = 0; k < request.count / kProcesses; ++k) (void)TimeOne(request.to, SOCK_NONBLOCK);
    _exit(0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // all of them at the gate
  const auto begin = Clock::now();
  close(gate[1]);
  while (wait(nullptr) > 0) {
  }
  const double each = Microseconds(Clock::now() - begin).count() / request.count;
  close(gate[0]);
  return {.p50 = each, .p99 = each};
}

Figures TimeGetppid(int count) {
  std::vector<double> took;
  for (int i = 0; i < 100; ++i) {
    const auto begin = Clock::now();
    for (int k = 0; k < count; ++k) syscall(SYS_getppid);
    took.push_back(Microseconds(Clock::now() - begin).count() / count);
  }
  return FiguresOf(std::move(took));
}

// Made and closed: the filter looks at the arguments of the one and never at the other.
Figures TimeSocket(int count) {
  std::vector<double> took;
  for (int i = 0; i < 100; ++i) {
    const auto begin = Clock::now();
    for (int k = 0; k < count; ++k) close(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    took.push_back(Microseconds(Clock::now() - begin).count() / count);
  }
  return FiguresOf(std::move(took));
}

int Serve() {
  Request request;
  while (read(STDIN_FILENO, &request, sizeof request) == sizeof request) {
    const double before = CpuUsed(RUSAGE_SELF) + CpuUsed(RUSAGE_CHILDREN);
    Figures figures = request.what == What::kGetppid         ? TimeGetppid(request.count)
                      : request.what == What::kSocket        ? TimeSocket(request.count / 10)
                      : request.what == What::kManyProcesses ? TimeManyProcesses(request)
                                                             : TimeConnects(request);
    figures.cpu = CpuUsed(RUSAGE_SELF) + CpuUsed(RUSAGE_CHILDREN) - before;
    if (write(STDOUT_FILENO, &figures, sizeof figures) != sizeof figures) return 1;
  }
  return 0;
}

// ---- who is asked ----

std::string Self() { return std::filesystem::read_symlink("/proc/self/exe"); }

// The two ends of a process that serves: what this one writes to and reads from.
struct Channel {
  UniqueFd to, from;       // here
  UniqueFd input, output;  // there

  static Channel Make() {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) std::abort();
    return {UniqueFd(in[1]), UniqueFd(out[0]), UniqueFd(in[0]), UniqueFd(out[1])};
  }

  [[nodiscard]] Figures Ask(const Request& request) const {
    const double before = CpuUsed(RUSAGE_SELF);
    Figures figures;
    if (write(to.get(), &request, sizeof request) != sizeof request ||
        read(from.get(), &figures, sizeof figures) != sizeof figures) {
      fmt::print(stderr, "a measuring process ended\n");
      std::exit(1);
    }
    figures.cpu = (figures.cpu + CpuUsed(RUSAGE_SELF) - before) / request.count;
    return figures;
  }
};

// What any filter costs, and any that notifies of connect(2): the floors of what is measured here.
enum class Filter : uint8_t { kNone, kAllowsAll, kNotifiesOfConnect };

// Filters this process. The descriptor that tells of notifications, where there are any.
int Install(Filter filter) {
  if (filter == Filter::kNone) return -1;
  std::vector<sock_filter> code;
  if (filter == Filter::kNotifiesOfConnect) {
    code = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
            {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, __NR_connect},
            {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF}};
  }
  code.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW});
  const sock_fprog program{static_cast<uint16_t>(code.size()), code.data()};
  const unsigned flags = filter == Filter::kNotifiesOfConnect ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) std::abort();
  const long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
  if (fd < 0) std::abort();
  return static_cast<int>(fd);
}

// In this network namespace, or in another.
class Unsupervised {
 public:
  explicit Unsupervised(const Capture* capture, Filter filter = Filter::kNone) {
    const std::string self = Self();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(channel_.input.get(), STDIN_FILENO);
      dup2(channel_.output.get(), STDOUT_FILENO);
      if (filter != Filter::kNone) Hand(Install(filter));
      if (capture != nullptr) {
        (void)setns(capture->user_namespace.get(), CLONE_NEWUSER);
        if (setns(capture->network_namespace.get(), CLONE_NEWNET) != 0) _exit(1);
      }
      execl(self.c_str(), self.c_str(), "--serve", nullptr);
      _exit(1);
    }
    channel_.input.Reset();
    channel_.output.Reset();
    if (filter != Filter::kNone) Take();
  }
  ~Unsupervised() {
    channel_.to.Reset();
    waitpid(pid_, nullptr, 0);
    if (answering_.joinable()) answering_.join();
  }
  [[nodiscard]] Figures Ask(const Request& request) const { return channel_.Ask(request); }

 private:
  // In the child, before its program closes the listener: tells its number, waits until it is taken.
  static void Hand(int listener) {
    char taken = 0;
    if (write(STDOUT_FILENO, &listener, sizeof listener) != sizeof listener || read(STDIN_FILENO, &taken, 1) != 1) _exit(1);
  }
  void Take() {
    int theirs = -1;
    if (read(channel_.from.get(), &theirs, sizeof theirs) != sizeof theirs) std::abort();
    const UniqueFd process(kernel::PidfdOpen(pid_, 0));
    if (theirs > 0) Answer(UniqueFd(kernel::PidfdGetfd(process.get(), theirs)));
    if (write(channel_.to.get(), "", 1) != 1) std::abort();
  }
  // The least that can be done about a notification: "go on", at once.
  void Answer(UniqueFd listener) {
    auto channel = SeccompChannel::Open(std::move(listener), NotifyWakeUp::kSynchronous, pid_);
    if (!channel) std::abort();
    answering_ = std::thread([channel = *std::move(channel)] {
      seccomp_notif call;
      for (auto got = channel.Receive(&call); got != SeccompChannel::Received::kEnd; got = channel.Receive(&call))
        if (got == SeccompChannel::Received::kCall) channel.Continue(call.id);
    });
  }

  Channel channel_ = Channel::Make();
  pid_t pid_ = -1;
  std::thread answering_;
};

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
    address = any;
    server_.emplace(fd_.get());
  }
  sockaddr_in address{};

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
  size_t Open() const override { return 0; }
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

class Supervised {
 public:
  explicit Supervised(NotifyWakeUp wake_up) : policy_(Policy()) {
    char name[] = "/tmp/sluice-bench-XXXXXX";
    directory_ = mkdtemp(name);
    auto capture = CreateCapture();
    if (!capture) Give(capture.error());
    capture_ = std::move(*capture);
    LaunchSpec spec;
    const std::string self = Self();
    spec.argv = {self, "--serve"};
    spec.work_directory = directory_;
    spec.read_only = {std::filesystem::path(self).parent_path()};
    workload_ = LaunchOn(spec);
    auto notifier = Notifier::Start(workload_->TakeNotifyFd(), capture_,
                                    {.workload_pid = workload_->pid(), .writable_trees = {}, .threads = 0, .wake_up = wake_up},
                                    flows_, policy_, sink_);
    if (!notifier) Give(notifier.error());
    notifier_ = std::move(*notifier);
    if (auto released = workload_->Release(); !released) Give(released.error());
  }
  ~Supervised() {
    channel_.to.Reset();
    (void)workload_->Wait();
    std::filesystem::remove_all(directory_);
  }
  [[nodiscard]] Figures Ask(const Request& request) const { return channel_.Ask(request); }

 private:
  [[noreturn]] static void Give(const Error& error) {
    fmt::print(stderr, "{}\n", error.message);
    std::exit(1);
  }
  static policy::SnapshotPtr Policy() {
    return policy::LoadText("version: 1\nrules:\n  - allow: tcp a.test:80\n", "bench.yaml").value();
  }
  // The workload's standard input and output are this process's own.
  std::unique_ptr<Workload> LaunchOn(const LaunchSpec& spec) {
    const UniqueFd input(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)), output(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
    dup2(channel_.input.get(), STDIN_FILENO);
    dup2(channel_.output.get(), STDOUT_FILENO);
    auto workload = Launch(spec, capture_);
    dup2(input.get(), STDIN_FILENO);
    dup2(output.get(), STDOUT_FILENO);
    channel_.input.Reset();
    channel_.output.Reset();
    if (!workload) Give(workload.error());
    return std::move(*workload);
  }

  Channel channel_ = Channel::Make();
  std::string directory_;
  Capture capture_;
  Flows flows_;
  Counting sink_;
  const policy::CurrentPolicy policy_;
  std::unique_ptr<Workload> workload_;
  std::unique_ptr<Notifier> notifier_;
};

// ---- the table ----

sockaddr_in Address(const char* address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(80);
  inet_pton(AF_INET, address, &to.sin_addr);
  return to;
}

double MedianOf(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Row {
  std::vector<double> p50, p99, cpu;
  void Add(const Figures& figures) {
    p50.push_back(figures.p50);
    p99.push_back(figures.p99);
    cpu.push_back(figures.cpu);
  }
};

double RatioOf(const Row& a, const Row& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.p50.size(); ++i) ratios.push_back(a.p50[i] / b.p50[i]);
  return MedianOf(std::move(ratios));
}

struct Bench {
  int batches;
  int count;
  std::string_view only;
  NativeListener<Drain> idle;
  NativeListener<Waiting> waiting;
  Unsupervised native{nullptr};

  void Compare(const char* label, const Supervised& supervised, What what, const char* address, int connects) {
    if (!std::string_view(label).contains(only)) return;
    Row plain, served, ours;
    for (int i = 0; i < batches; ++i) {
      plain.Add(native.Ask({what, connects, idle.address}));
      served.Add(native.Ask({what, connects, waiting.address}));
      ours.Add(supervised.Ask({what, connects, Address(address)}));
    }
    fmt::print(
        "{:<28} native p50 {:7.3f} p99 {:7.2f} us   supervised p50 {:7.3f} p99 {:7.2f} us   ratio {:.2f}   to a server that "
        "waits in accept: {:7.3f} us, ratio {:.2f}   CPU {:.1f} and {:.1f} us\n",
        label, MedianOf(plain.p50), MedianOf(plain.p99), MedianOf(ours.p50), MedianOf(ours.p99), RatioOf(ours, plain),
        MedianOf(served.p50), RatioOf(ours, served), MedianOf(plain.cpu), MedianOf(ours.cpu));
    std::fflush(stdout);
  }

  // What no supervisor can go below: a filter that does nothing, and a notification that is answered at once.
  void MeasureFloor(const char* label, Filter filter, What what, int calls) {
    if (!std::string_view(label).contains(only)) return;
    const Unsupervised filtered(nullptr, filter);
    Row plain, ours;
    for (int i = 0; i < batches; ++i) {
      plain.Add(native.Ask({what, calls, idle.address}));
      ours.Add(filtered.Ask({what, calls, idle.address}));
    }
    fmt::print("{:<28} native p50 {:7.3f} us   supervised p50 {:7.3f} us   ratio {:.2f}\n", label, MedianOf(plain.p50),
               MedianOf(ours.p50), RatioOf(ours, plain));
    std::fflush(stdout);
  }

  // What the capture itself costs, without notifications: its nft rules and its dual-stack listener.
  void MeasureCapture() {
    if (!std::string_view("captured, not notified").contains(only)) return;
    const auto capture = CreateCapture();
    if (!capture) return;
    const Drain drain(capture->listener.get());
    const Unsupervised captured(&*capture);
    Row plain, ours;
    for (int i = 0; i < batches; ++i) {
      plain.Add(native.Ask({What::kNonBlocking, count, idle.address}));
      ours.Add(captured.Ask({What::kNonBlocking, count, Address(kNamed)}));
    }
    fmt::print("{:<28} native p50 {:7.3f} us   captured p50 {:7.3f} us   ratio {:.2f}\n", "captured, not notified",
               MedianOf(plain.p50), MedianOf(ours.p50), RatioOf(ours, plain));
    std::fflush(stdout);
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--serve") return Serve();
  const rlimit files{65536, 65536};
  setrlimit(RLIMIT_NOFILE, &files);
  Bench bench{.batches = argc > 1 ? std::atoi(argv[1]) : 40,
              .count = argc > 2 ? std::atoi(argv[2]) : 1000,
              .only = argc > 3 ? argv[3] : "",
              .idle = {},
              .waiting = {}};
  bench.MeasureCapture();
  bench.MeasureFloor("a bare notification", Filter::kNotifiesOfConnect, What::kNonBlocking, bench.count);
  bench.MeasureFloor("a filter that allows all", Filter::kAllowsAll, What::kGetppid, 1000);
  {
    const Supervised free(NotifyWakeUp::kFree);
    bench.Compare("non-blocking, free wake-up", free, What::kNonBlocking, kNamed, bench.count);
  }
  const Supervised supervised(NotifyWakeUp::kSynchronous);
  bench.Compare("non-blocking, sync wake-up", supervised, What::kNonBlocking, kNamed, bench.count);
  bench.Compare("blocking, upstream ready", supervised, What::kBlocking, kNamed, bench.count);
  bench.Compare("denied (native: allowed)", supervised, What::kNonBlocking, kDenied, bench.count);
  bench.Compare("1,000 of 100 processes", supervised, What::kManyProcesses, kNamed, 1000);
  bench.Compare("getppid", supervised, What::kGetppid, kNamed, 1000);
  bench.Compare("socket and close", supervised, What::kSocket, kNamed, 1000);
  return 0;
}
