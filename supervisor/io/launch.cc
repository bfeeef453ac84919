#include "supervisor/io/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "base/fault.h"
#include "supervisor/command_hint.h"
#include "supervisor/io/handshake.h"
#include "supervisor/io/host_command.h"
#include "supervisor/io/launch_child.h"
#include "supervisor/io/launch_facts.h"
#include "supervisor/io/launch_relay.h"
#include "supervisor/io/light_process.h"
#include "supervisor/io/output_meter.h"
#include "supervisor/io/prepared_launch.h"
#include "supervisor/io/privileges.h"
#include "supervisor/io/running_tree.h"
#include "supervisor/io/small_file.h"
#include "supervisor/io/standard_streams.h"
#include "supervisor/io/workload_group.h"
#include "supervisor/landlock_rules.h"
#include "supervisor/mount_plan.h"

namespace sluice::supervisor {
namespace {

// Whether this process's user is root outside of its user namespace as well: then, as far as can be told, the kernel's own.
bool IsKernelRoot() {
  if (::geteuid() != 0) return false;
  const auto map = ReadSmallFile("/proc/self/uid_map");
  unsigned inside = 0;
  unsigned outside = 0;
  return !map || std::sscanf(map->c_str(), "%u %u", &inside, &outside) != 2 || inside != 0 || outside == 0;
}

UniqueFd OpenPidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(Faulty("launch.pidfd", [&] { return ::syscall(SYS_pidfd_open, pid, 0); })));
}

// Names come from the policy's resolver; the host's own table would give addresses past it. Programs look up their own host
// name and expect an answer.
void AddHosts(LaunchSpec& spec) {
  constexpr const char* kHosts = "/etc/hosts";
  if (std::ranges::find(spec.overlays, kHosts, &FileOverlay::path) != spec.overlays.end()) return;
  spec.overlays.push_back(
      {kHosts, fmt::format("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 {}\n", spec.hostname)});
}

// A container has a procfs of its own, in which the kernel's root may write the machine's settings without any capability; and
// the root of the capture's user namespace may write those of its network. One that has no other name here is taken for root too.
Result<void> CheckOrdinaryUser() {
  struct stat settings{};
  if (::geteuid() != 0 && ::stat("/proc/sys/kernel", &settings) == 0 && settings.st_uid != ::geteuid()) return {};
  return Fail(Code::kUnsupported,
              "--allow-containers: not for root, whose containers could write the machine's settings in /proc: start it as an "
              "ordinary user");
}

// Whether nobody holds the other end of a pipe or a socket any more.
bool HungUp(int fd) {
  pollfd state{.fd = fd, .events = POLLRDHUP, .revents = 0};
  return fd >= 0 && ::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
}

// A command that was not found in the view may well be on the host.
Error WithHint(Error error, const LaunchSpec& resolved) {
  if (error.code != Code::kNotFound) return error;
  if (const auto path = FindOnHost(resolved)) error.message += "; it " + HiddenCommandHint(*path, VariableOf(resolved, "HOME"));
  return error;
}

class Sandbox final : public Workload {
 public:
  ~Sandbox() override { KillAll(); }

  Result<void> Start(PreparedLaunch prepared, const Capture& capture, std::span<const sock_filter> filter) {
    auto handshake = MakeHandshake();
    if (!handshake) return std::unexpected(handshake.error());
    std::array<int, 2> status{};
    if (Faulty("launch.pipe", [&] { return ::pipe2(status.data(), O_CLOEXEC); }) != 0)
      return FailErrno("cannot create a pipe", errno);
    status_ = UniqueFd(status[0]);
    UniqueFd status_writer(status[1]);
    spec_ = std::move(prepared.spec);
    meter_.emplace(spec_.transcript, spec_.limits.output);
    auto streams = PrepareStandardStreams(meter_->wanted() ? OutputWay::kRelayed : OutputWay::kDirect);
    if (!streams) return std::unexpected(streams.error());
    if (auto limited = PlaceLimits(); !limited) return limited;
    const std::vector<int> entrances = group_ ? group_->entrances() : std::vector<int>();
    SandboxPlan plan{.spec = &spec_,
                     .mounts = &prepared.mounts,
                     .bare = &prepared.bare,
                     .capture = &capture,
                     .filter = filter,
                     .landlock_abi = prepared.landlock_abi,
                     .limits = &limits_,
                     .entrances = entrances};
    plan.standard = streams->ForChild();
    plan.handshake = handshake->second.get();
    plan.supervisors_end = handshake->first.get();
    plan.status_pipe = status_writer.get();
    const auto entry =
        StartProcess(AffordableMemory(), [](void* argument) { RunEntry(*static_cast<const SandboxPlan*>(argument)); }, &plan);
    if (!entry) return std::unexpected(entry.error());
    entry_ = *entry;
    handshake_ = std::move(handshake->first);
    streams_ = std::move(*streams);
    writable_trees_ = std::move(prepared.mounts.writable);
    for (std::string& tree : prepared.mounts.granted)
      if (std::ranges::find(writable_trees_, tree) == writable_trees_.end()) read_only_trees_.push_back(std::move(tree));
    return {};
  }

  Result<void> Provide(const UniqueFd& content) override {
    auto sent = Send(handshake_.get(), Step::kContent, 0, {content.get()});
    if (sent) return sent;
    const bool gone = sent.error().sys_errno == EPIPE || sent.error().sys_errno == ECONNRESET;
    ::shutdown(handshake_.get(), SHUT_WR);  // who still waits for it sees the end
    // Whoever should have read it has said why it is gone.
    auto waited = AwaitGate();
    return gone && !waited ? waited : sent;
  }

  Result<void> AwaitGate() override {
    auto followed = Follow(std::move(streams_));
    ReapEntry();
    return followed ? followed : Result<void>(std::unexpected(WithHint(followed.error(), spec_)));
  }

  UniqueFd TakeNotifyFd() override { return std::move(notify_); }
  int view() const override { return view_.get(); }
  int pid() const override { return command_; }
  const std::vector<std::string>& writable_trees() const override { return writable_trees_; }
  const std::vector<std::string>& read_only_trees() const override { return read_only_trees_; }

  // The command must not run beside a process 1 that still knows what the supervisor knew, or that has not taken away what the
  // view was built from.
  Result<void> AwaitSeal() {
    if (sealed_) return {};
    pollfd ready{.fd = status_.get(), .events = POLLIN, .revents = 0};
    int polled = 0;
    do {
      polled = Faulty("launch.seal.wait", [&] { return ::poll(&ready, 1, kStartTimeoutMs); });
    } while (polled < 0 && errno == EINTR);
    CommandStatus first;
    const auto read = [&] { return ::read(status_.get(), &first, sizeof first); };
    sealed_ = polled > 0 && Faulty("launch.seal", read) == sizeof first && first.status == kInitSealed;
    if (sealed_) return {};
    if (const auto why = Receive(handshake_.get(), 0); why && why->step == Step::kFailed) return std::unexpected(why->error);
    return Fail(Code::kInternal, "the sandbox's first process did not give up what it held");
  }

  Result<void> Release() override {
    if (auto sealed = AwaitSeal(); !sealed) return sealed;
    if (auto heard = relay_->Hear(); !heard) return heard;
    // It stays at its gate, and is killed as soon as the relay looks: not after it has run until then.
    if (spec_.on_disconnect == OnDisconnect::kKill && HungUp(spec_.lifeline)) return {};
    if (auto sent = Send(handshake_.get(), Step::kGo); !sent) return sent;
    auto answer = Receive(handshake_.get(), kStartTimeoutMs);
    handshake_.Reset();
    if (spec_.timeout) deadline_ = SystemClock().Steady() + *spec_.timeout;
    if (answer && answer->step == Step::kFailed) return std::unexpected(answer->error);
    // The socket closed without a word: execve took place.
    if (!answer && answer.error().code == Code::kInternal) return {};
    return answer ? Result<void>(Fail(Code::kInternal, "an unexpected start-up message"))
                  : Result<void>(std::unexpected(answer.error()));
  }

  ExitStatus Wait() override {
    const CommandEnd end = relay_->Run({.pid = command_,
                                        .pidfd = command_fd_.get(),
                                        .status = status_.get(),
                                        .deadline = deadline_,
                                        .tree = &tree_,
                                        .lifeline = spec_.lifeline,
                                        .on_disconnect = spec_.on_disconnect,
                                        .job_control = spec_.job_control});
    KillAll();
    relay_->Drain();
    ExitStatus status{.code = 128 + SIGKILL, .signal = SIGKILL, .timed_out = end.timed_out, .ended_by = end.ended_by};
    status.output = meter_->count();
    status.transcript_complete = meter_->complete();
    if (const auto killed = tree_.killed()) status.ended_by = *killed;
    if (status.ended_by == EndedBy::kCommand && group_ && group_->MemoryRanOut() && (!end.status || Killed(*end.status)))
      status.ended_by = EndedBy::kMemory;
    if (!end.status) return status;
    status.signal = WIFSIGNALED(*end.status) ? WTERMSIG(*end.status) : 0;
    status.code = status.signal != 0 ? 128 + status.signal : WEXITSTATUS(*end.status);
    return status;
  }

  const LimitsInForce& limits() const override { return limits_; }
  void OnFreeze(std::function<void(bool)> told) override { tree_.OnFreeze(std::move(told)); }
  Result<void> Freeze() override { return tree_.Freeze(); }
  Result<void> Thaw() override { return tree_.Thaw(); }
  void Kill(EndedBy why) override { tree_.Kill(why); }

 private:
  // The command itself, or the shell that waited for it.
  static bool Killed(int status) {
    return WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 128 + SIGKILL;
  }

  // A control group where there may be one, else resource limits.
  Result<void> PlaceLimits() {
    const Limits& wanted = spec_.limits;
    const bool limited = wanted.memory || wanted.processes;
    if (limited || OwnContainers() || (spec_.lifeline >= 0 && spec_.on_disconnect == OnDisconnect::kFreeze))
      group_ = WorkloadGroup::Make(wanted, &limits_);
    if (OwnContainers())
      if (auto enclosed = WorkloadGroup::Enclose(group_.get()); !enclosed) return enclosed;
    if (wanted.memory && !limits_.memory) limits_.memory = {*wanted.memory, LimitBy::kEachProcess};
    if (wanted.processes && !limits_.processes) {
      // The kernel exempts its own root from RLIMIT_NPROC, in whatever user namespace.
      if (IsKernelRoot())
        return Fail(Code::kUnsupported,
                    fmt::format("a limit on processes cannot hold root without a control group, and there is none: "
                                "{}; delegate one, or run as an ordinary user",
                                limits_.no_cgroup));
      limits_.processes = {*wanted.processes, LimitBy::kUser};
    }
    if (wanted.open_files) limits_.open_files = {*wanted.open_files, LimitBy::kEachProcess};
    if (wanted.output) limits_.output = {*wanted.output, LimitBy::kSupervisor};
    return {};
  }

  // The steps of the start, as the processes report them.
  Result<void> Follow(StandardStreams streams) {
    auto init = Expect(handshake_.get(), Step::kInit, kStartTimeoutMs);
    if (!init) return std::unexpected(init.error());
    init_ = static_cast<pid_t>(init->number);
    tree_.Begin(init_, group_.get());
    UniqueFd master;
    if (streams.has_terminal()) {
      auto terminal = Expect(handshake_.get(), Step::kTerminal, kStartTimeoutMs);
      if (!terminal) return std::unexpected(terminal.error());
      if (terminal->fds.empty()) return Fail(Code::kInternal, "a terminal came without its descriptor");
      master = std::move(terminal->fds.front());
    }
    relay_.emplace(std::move(streams), std::move(master), *meter_);
    relay_->CloseWorkloadEnds();
    auto filtered = Expect(handshake_.get(), Step::kFiltered, kStartTimeoutMs);
    if (!filtered) return std::unexpected(filtered.error());
    command_ = filtered->sender;
    command_fd_ = OpenPidfd(command_);
    if (!command_fd_) return FailErrno("cannot watch the command", errno);
    const auto take = [&] { return ::syscall(SYS_pidfd_getfd, command_fd_.get(), static_cast<int>(filtered->number), 0); };
    notify_ = UniqueFd(static_cast<int>(Faulty("launch.listener", take)));
    if (!notify_) {
      const int error = errno;
      if (error == EPERM)
        return Fail(Code::kUnsupported, "pidfd_getfd on the workload is refused (kernel.yama.ptrace_scope is 3?)");
      return FailErrno("cannot take the notification descriptor", error);
    }
    return OwnContainers() ? OpenView() : Result<void>();
  }

  // While the command waits in it, and can have no other.
  Result<void> OpenView() {
    view_ = UniqueFd(::open(fmt::format("/proc/{}/root", command_).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    return view_ ? Result<void>() : FailErrno("cannot look at the workload's view", errno);
  }

  [[nodiscard]] bool OwnContainers() const { return spec_.own_namespaces == OwnNamespaces::kContainers; }

  void ReapEntry() {
    if (entry_ <= 0) return;
    while (::waitpid(entry_, nullptr, 0) < 0 && errno == EINTR) {
    }
    entry_ = 0;
  }

  void KillAll() {
    if (entry_ > 0) {  // given up half-way: what the entry said of init is still unread
      ReapEntry();
      if (const auto first = Receive(handshake_.get(), 0); first && first->step == Step::kInit)
        init_ = static_cast<pid_t>(first->number);
    }
    if (init_ <= 0) return;
    ::kill(init_, SIGKILL);  // not reaped yet, so the number is still its own
    tree_.End();
    while (::waitpid(init_, nullptr, 0) < 0 && errno == EINTR) {
    }
    init_ = 0;
  }

  LaunchSpec spec_;
  LimitsInForce limits_;
  std::unique_ptr<WorkloadGroup> group_;
  RunningTree tree_;
  std::optional<OutputMeter> meter_;
  StandardStreams streams_;
  UniqueFd handshake_;
  UniqueFd status_;
  UniqueFd notify_;
  UniqueFd view_;
  UniqueFd command_fd_;
  std::optional<LaunchRelay> relay_;
  std::vector<std::string> writable_trees_;
  std::vector<std::string> read_only_trees_;
  std::optional<SteadyTime> deadline_;
  bool sealed_ = false;  // waited for
  pid_t entry_ = 0;
  pid_t init_ = 0;
  pid_t command_ = 0;
};

}  // namespace

Result<PreparedLaunch> PrepareLaunch(const LaunchSpec& spec) {
  ReserveStandardDescriptors();
  if (spec.own_namespaces == OwnNamespaces::kContainers)
    if (auto fine = CheckOrdinaryUser(); !fine) return std::unexpected(fine.error());
  PreparedLaunch prepared;
  prepared.landlock_abi = LandlockAbi();
  if (auto enough = HandledBy(prepared.landlock_abi); !enough) return std::unexpected(enough.error());
  auto resolved = ResolvePaths(spec);
  if (!resolved) return std::unexpected(resolved.error());
  AddHosts(*resolved);
  if (auto fine = CheckGrants(*resolved); !fine) return std::unexpected(fine.error());
  auto facts = GatherFacts(*resolved, spec, prepared.bare);
  if (!facts) return std::unexpected(facts.error());
  auto mounts = PlanMounts(*resolved, *facts);
  if (!mounts) return std::unexpected(mounts.error());
  prepared.spec = *std::move(resolved);
  prepared.mounts = *std::move(mounts);
  return prepared;
}

Result<std::unique_ptr<Workload>> BeginFilteredLaunch(PreparedLaunch prepared, const Capture& capture,
                                                      std::span<const sock_filter> filter) {
  auto sandbox = std::make_unique<Sandbox>();
  if (auto started = sandbox->Start(std::move(prepared), capture, filter); !started) return std::unexpected(started.error());
  return sandbox;
}

Result<std::unique_ptr<Workload>> BeginFilteredLaunch(const LaunchSpec& spec, const Capture& capture,
                                                      std::span<const sock_filter> filter) {
  auto prepared = PrepareLaunch(spec);
  if (!prepared) return std::unexpected(prepared.error());
  return BeginFilteredLaunch(*std::move(prepared), capture, filter);
}

Result<std::unique_ptr<Workload>> LaunchFiltered(const LaunchSpec& spec, const Capture& capture,
                                                 std::span<const sock_filter> filter) {
  auto workload = BeginFilteredLaunch(spec, capture, filter);
  if (!workload) return workload;
  if (auto waiting = (*workload)->AwaitGate(); !waiting) return std::unexpected(waiting.error());
  if (auto sealed = static_cast<Sandbox&>(**workload).AwaitSeal(); !sealed) return std::unexpected(sealed.error());
  return workload;
}

}  // namespace sluice::supervisor
