#include "app/agent_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "app/agent_policy.h"
#include "app/container.h"
#include "app/exit_code.h"
#include "app/service.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/poll_timeout.h"
#include "base/socket_pair.h"
#include "base/stderr_lines.h"
#include "base/wake_timer.h"
#include "supervisor/io/kernel.h"
#include "supervisor/io/listener_handoff.h"
#include "supervisor/seccomp_rules.h"

namespace sluice::app {
namespace {

using std::chrono::steady_clock;
using supervisor::Ended;
using supervisor::Unsupervised;

// A runtime whose program was refused ends by itself, and says why; a program that runs already does not.
constexpr std::chrono::milliseconds kRefusedLife{1000};
constexpr std::chrono::milliseconds kLastChildren{2000};
constexpr std::chrono::milliseconds kLook{5};
constexpr size_t kMaxStrangers = 256;
constexpr std::chrono::milliseconds kAcceptPause{1000};
constexpr int kMostFailedWaits = 200;  // one after another, kLook between them

void Kill(int pidfd) { (void)::syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0); }

Result<supervisor::SeccompChannel> ChannelOf(UniqueFd fd) {
  return supervisor::SeccompChannel::Open(std::move(fd), supervisor::NotifyWakeUp::kFree);
}

bool StartsProgram(const seccomp_notif& call) {
  return call.data.arch == supervisor::rules::kArch && (call.data.nr == SYS_execve || call.data.nr == SYS_execveat);
}

std::string ExitText(int status) {
  if (WIFSIGNALED(status)) return fmt::format("its supervisor was ended by signal {}", WTERMSIG(status));
  return fmt::format("its supervisor ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace

AgentServer::AgentServer(AgentOptions options, UniqueFd listener, supervisor::ContainerRecords records,
                         std::shared_ptr<proxy::TlsAuthority> authority)
    : options_(std::move(options)),
      fate_(options_.on_restart == "freeze" ? Unsupervised::kFreeze : Unsupervised::kKill),
      listener_(std::move(listener)),
      records_(std::move(records)),
      authority_(std::move(authority)) {}

Result<void> AgentServer::EndOrphans() {
  auto orphans = records_->Read();
  if (!orphans) return std::unexpected(orphans.error());
  for (const supervisor::ContainerRecord& record : *orphans) {
    const auto ended = EndContainer(record, fate_);
    if (!ended) {
      LogError("container {} has lost its supervisor: {}", record.id, ended.error().message);
      continue;
    }
    if (*ended == Ended::kKilled) LogWarn("container {} had lost its supervisor: killed", record.id);
    if (*ended == Ended::kFrozen) LogWarn("container {} has lost its supervisor: frozen, and to be deleted", record.id);
    if (*ended != Ended::kFrozen) records_->Remove(record);
  }
  return {};
}

bool AgentServer::MayAsk(uid_t uid) const {
  return uid == 0 || uid == ::geteuid() || std::ranges::find(options_.peers, uid) != options_.peers.end();
}

bool AgentServer::HasEnough(uid_t uid, size_t taken, size_t most) const {
  return uid != 0 && uid != ::geteuid() && taken >= most / kMaxOfPeer;
}

// Whoever may connect may do so without end: a log is not his to fill.
void AgentServer::TurnAway(const ucred& peer) {
  const SteadyTime now = steady_clock::now();
  if (strangers_.size() >= kMaxStrangers)
    std::erase_if(strangers_, [&](const auto& told) { return now - told.second > kStrangerPause; });
  const auto told = strangers_.find(peer.uid);
  if (strangers_.size() >= kMaxStrangers || (told != strangers_.end() && now - told->second < kStrangerPause)) return;
  strangers_[peer.uid] = now;
  LogWarn("process {} of user {} is not served (--peer {})", peer.pid, peer.uid, peer.uid);
}

void AgentServer::Accept() {
  UniqueFd socket(
      Faulty("agent.accept", [&] { return ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); }));
  if (!socket) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    LogError("no container runtime is heard for a second: {}", std::strerror(errno));
    hear_from_ = steady_clock::now() + kAcceptPause;
    return;
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  const auto ask = [&] { return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size); };
  if (Faulty("agent.peer", ask) != 0) {
    LogError("a container runtime is turned away: {}", std::strerror(errno));
    return closes_.Drop(std::move(socket));
  }
  if (!MayAsk(peer.uid)) {
    TurnAway(peer);
    return closes_.Drop(std::move(socket));
  }
  const auto theirs = std::ranges::count(hearing_, peer.uid, [](const auto& child) { return child.second; });
  if (hearing_.size() >= kMaxAgentConnections || ending_ ||
      HasEnough(peer.uid, static_cast<size_t>(theirs), kMaxAgentConnections))
    return closes_.Drop(std::move(socket));
  HearFrom(std::move(socket), peer);
}

void AgentServer::HearFrom(UniqueFd socket, const ucred& peer) {
  auto ends = MakeSocketPair();
  const pid_t parent = ::getpid();
  const pid_t child = ends ? Faulty("agent.hear", [] { return ::fork(); }) : -1;
  if (child == 0) ServeRuntime(parent, std::move(socket), std::move(ends->theirs));
  if (child < 0) {
    LogError("a container runtime is turned away: {}", std::strerror(ends ? errno : ends.error().sys_errno));
  } else {
    hearing_.emplace(child, peer.uid);
    connections_.push_back({std::move(ends->mine), child, peer, steady_clock::now() + kAgentMessageWait});
  }
  closes_.Drop(std::move(socket));  // with what was sent to it, should the child be gone already
}

void AgentServer::Drop(Connection& connection) {
  connection.child.Reset();
  // Not reaped, so that the number is its own.
  if (hearing_.contains(connection.pid)) ::kill(connection.pid, SIGKILL);
}

// Without its descriptors, which end with the child, the container's program does not start.
void AgentServer::Hear(const Connection& connection) {
  auto message = ReceiveRuntimeMessage(connection.child.get());
  const auto taken = message ? TakeMessage(connection, *std::move(message)) : Result<void>(std::unexpected(message.error()));
  if (!taken) LogError("a container runtime (process {}): {}", connection.peer.pid, taken.error().message);
}

Result<void> AgentServer::TakeMessage(const Connection& connection, RuntimeMessage message) {
  const auto theirs = static_cast<size_t>(std::ranges::count(filters_, connection.peer.uid, &Filter::peer));
  if (filters_.size() >= kMaxAgentFilters || HasEnough(connection.peer.uid, theirs, kMaxAgentFilters))
    return Fail(Code::kExhausted, fmt::format("{} containers are starting already", filters_.size()));
  auto channel = ChannelOf(std::move(message.listener));
  if (!channel) return std::unexpected(channel.error());
  LogDebug("container {}: {} by process {}", message.state.id, message.state.status, connection.peer.pid);
  filters_.push_back({.channel = *std::move(channel), .peer = connection.peer.uid, .state = std::move(message.state)});
  return {};
}

bool AgentServer::Admit(Filter& filter) {
  seccomp_notif call = filter.held.value_or(seccomp_notif{});
  if (!filter.held) {
    const auto received = filter.channel.Receive(&call);
    if (received == supervisor::SeccompChannel::Received::kEnd) return false;
    if (received == supervisor::SeccompChannel::Received::kNothing) return true;
    filter.held_since = steady_clock::now();
  }
  filter.held.reset();
  auto process = ExamineCaller(filter.channel, call);
  if (!process && process.error().code == Code::kNotFound) return true;  // the next caller is looked at
  const auto admitted = process ? AdmitInto(filter, *process, call) : Result<void>(std::unexpected(process.error()));
  if (admitted || child_code_) return false;
  if (admitted.error().code == Code::kTimeout && steady_clock::now() - filter.held_since < kFormerSelfWait) {
    filter.held = call;
    return true;
  }
  LogError("container {}: not started: {}", ContainerName(filter.state), admitted.error().message);
  filter.channel.Reply(call.id, EACCES);
  filter.refused = true;
  filter.until = steady_clock::now();
  if (process) filter.process = std::move(process->pidfd);
  // What waits in execve is no program yet: it says why it could not be started, and ends.
  if (StartsProgram(call)) filter.until += kRefusedLife;
  return true;
}

Result<void> AgentServer::AdmitInto(Filter& filter, supervisor::ContainerProcess& process, const seccomp_notif& call) {
  if (auto contained = CheckContained(process, filter.peer); !contained) return contained;
  const auto known =
      std::ranges::find_if(containers_, [&](const auto& entry) { return entry.second.network == process.network; });
  if (known == containers_.end()) return StartContainer(filter, process, call);
  Container& container = known->second;
  // Started again in the namespace that it had: the process that supervised it is about to end.
  if (container.pids != process.pids && !IsRunning(container.record)) return Fail(Code::kTimeout, "its former self is ending");
  if (container.record.id != filter.state.id || container.pids != process.pids)
    return Fail(Code::kInvalid,
                fmt::format("it shares the network namespace of container {}: each needs one of its own, since a policy "
                            "is one namespace's",
                            container.name));
  // Its trees were judged by that.
  if (container.mounts != process.mounts)
    return Fail(Code::kInvalid, "it is in another mount namespace than the container that it is to enter");
  return supervisor::SendListener(container.control.get(), filter.channel.fd(), call);
}

Result<void> AgentServer::StartContainer(Filter& filter, supervisor::ContainerProcess& process, const seccomp_notif& call) {
  if (filter.state.status == "running")
    return Fail(Code::kInvalid, "a process was to enter a container that this agent does not supervise");
  // By any other call a program asks that runs already, and may stand in other namespaces than its container.
  if (!StartsProgram(call))
    return Fail(
        Code::kInvalid,
        "its program ran before it could be looked at: its seccomp profile does not notify of execve and execveat, as the one "
        "of `sluice oci-seccomp` does");
  // One pid namespace in one cgroup is one container's.
  const auto shares = [&](const auto& entry) { return entry.second.record.cgroup == process.cgroup; };
  if (!process.cgroup.empty() && std::ranges::any_of(containers_, shares)) process.cgroup.clear();
  if (process.innermost_pid != 1 && process.cgroup.empty())
    return Fail(Code::kInvalid,
                "it has neither a process namespace nor a cgroup of its own, so it could not be killed as a whole");
  const auto theirs =
      static_cast<size_t>(std::ranges::count(containers_, filter.peer, [](const auto& entry) { return entry.second.peer; }));
  if (containers_.size() >= kMaxContainers || HasEnough(filter.peer, theirs, kMaxContainers))
    return Fail(Code::kExhausted, fmt::format("{} containers run already", containers_.size()));
  auto policy = ChoosePolicy(options_.policy_dir, options_.policy, filter.state);
  if (!policy) return std::unexpected(policy.error());
  auto ends = MakeSocketPair();
  if (!ends) return std::unexpected(ends.error());
  Container container{.control = std::move(ends->mine),
                      .record = {filter.state.id, process.pid, process.start_time, process.cgroup},
                      .network = process.network,
                      .pids = process.pids,
                      .mounts = process.mounts,
                      .name = ContainerName(filter.state),
                      .peer = filter.peer};
  UniqueFd control = std::move(ends->theirs);
  UniqueFd listener(Faulty("agent.listener", [&] { return ::fcntl(filter.channel.fd(), F_DUPFD_CLOEXEC, 0); }));
  if (!listener) return FailErrno("out of descriptors", errno);
  // First of all: what is not on record could not be ended by the next agent.
  if (auto put = records_->Put(container.record); !put) return put;
  const pid_t parent = ::getpid();
  const pid_t child = Faulty("agent.fork", [] { return ::fork(); });
  if (child < 0) {
    const int error = errno;
    records_->Remove(container.record);
    return FailErrno("cannot fork", error);
  }
  if (child > 0) {
    container.network_held = std::move(process.network_namespace);
    container.pids_held = std::move(process.pid_namespace);
    containers_.emplace(child, std::move(container));
    return {};
  }
  // Without its agent it would be given no more listeners.
  if (Faulty("agent.death-signal", [] { return ::prctl(PR_SET_PDEATHSIG, SIGKILL); }) != 0 || ::getppid() != parent)
    ::_exit(kExitFault);
  RenewStderr();
  // For what strangers sent, of which it has copies.
  if (!BriefCloses::Prepare()) ::_exit(kExitFault);
  process.pid_namespace.Reset();
  ContainerJob job{.options = options_,
                   .state = std::move(filter.state),
                   .process = std::move(process),
                   .listener = {std::move(listener), call},
                   .control = std::move(control),
                   .authority = authority_};
  if (*policy != options_.policy) {
    // What the command line adds belongs to its own policy.
    job.options.allows.clear();
    job.options.presets.clear();
  }
  job.options.policy = *std::move(policy);
  container.control.Reset();
  LetGo();
  child_code_ = SuperviseContainer(std::move(job));
  return {};
}

void AgentServer::LetGo() {
  closes_.Drop(std::move(listener_));
  records_.reset();
  signals_.Reset();
  containers_.clear();
  hearing_.clear();  // which are the agent's
  connections_.clear();
  while (!closes_.empty()) closes_.Turn();
  filters_.clear();  // the one that is being admitted is among them: its listener was copied
}

bool AgentServer::RefuseCall(Filter& filter) {
  seccomp_notif call;
  const auto received = filter.channel.Receive(&call);
  if (received == supervisor::SeccompChannel::Received::kCall) filter.channel.Reply(call.id, EACCES);
  return received != supervisor::SeccompChannel::Received::kEnd;
}

void AgentServer::HearContainers() {
  for (auto& [pid, container] : containers_) {
    char said = 0;
    if (::recv(container.control.get(), &said, 1, MSG_DONTWAIT) == 1 && said == kContainerReady) container.ready = true;
  }
}

void AgentServer::Lose(Container& container, const std::string& why) {
  // A program that never started has nothing worth keeping.
  const auto ended = EndContainer(container.record, container.ready ? fate_ : Unsupervised::kKill);
  if (!ended) return LogError("container {}: {}, and {}", container.name, why, ended.error().message);
  if (*ended == Ended::kKilled) LogError("container {}: {}: killed", container.name, why);
  if (*ended == Ended::kFrozen) LogError("container {}: {}: frozen, and to be deleted", container.name, why);
  if (*ended == Ended::kGone) LogError("container {}: {}", container.name, why);
  if (*ended != Ended::kFrozen) records_->Remove(container.record);
}

void AgentServer::Reap() {
  HearContainers();
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (hearing_.erase(pid) != 0) continue;
    const auto it = containers_.find(pid);
    if (it == containers_.end()) continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == kExitOk) {
      records_->Remove(it->second.record);
    } else {
      Lose(it->second, ExitText(status));
    }
    containers_.erase(it);
  }
}

void AgentServer::Signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT) ending_ = true;
    if (info.ssi_signo == SIGHUP)
      for (const auto& [pid, container] : containers_) ::kill(pid, SIGHUP);
  }
  Reap();
}

void AgentServer::Expire() {
  const SteadyTime now = steady_clock::now();
  std::erase_if(connections_, [this, now](Connection& connection) {
    if (now < connection.until) return false;
    Drop(connection);
    LogError("a container runtime (process {}) did not end its message in {} seconds", connection.peer.pid,
             kAgentMessageWait.count());
    return true;
  });
  for (Filter& filter : filters_) {
    if (!filter.refused || !filter.process || now < filter.until) continue;
    Kill(filter.process.get());
    filter.process.Reset();
  }
}

int AgentServer::NextTimeout() const {
  std::optional<SteadyTime> next;
  const auto sooner = [&next](SteadyTime at) { next = next ? std::min(*next, at) : at; };
  for (const Connection& connection : connections_) sooner(connection.until);
  if (hear_from_ > steady_clock::now()) sooner(hear_from_);
  for (const Filter& filter : filters_) {
    if (filter.refused && filter.process) sooner(filter.until);
    if (filter.held) sooner(steady_clock::now() + kLook);
  }
  return next ? PollTimeout(*next) : -1;
}

void AgentServer::EndAll() {
  for (auto& [pid, container] : containers_) Lose(container, "the agent ends");
  // Their supervisors see the containers' end, or that of this.
  for (auto& [pid, container] : containers_) container.control.Reset();
  const auto until = steady_clock::now() + kLastChildren;
  while (!containers_.empty() && steady_clock::now() < until) {
    for (pid_t pid = 0; (pid = ::waitpid(-1, nullptr, WNOHANG)) > 0;) {
      hearing_.erase(pid);
      containers_.erase(pid);
    }
    std::this_thread::sleep_for(kLook);
  }
  for (const auto& [pid, container] : containers_) ::kill(pid, SIGKILL);
}

void AgentServer::Break(const char* what, int error) {
  LogError("the agent cannot {}: {}; it ends", what, std::strerror(error));
  broken_ = ending_ = true;
}

AgentServer::~AgentServer() {
  closes_.Drop(std::move(listener_));  // with whom nobody has heard
  for (Connection& connection : connections_) Drop(connection);
}

std::optional<int> AgentServer::Serve() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&watched, number);
  signals_.Reset(Faulty("agent.signals", [&] { return ::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK); }));
  // Without it nobody would learn of a supervisor's end.
  if (!signals_) Break("be told of signals", errno);
  // Before there is anybody who could have taken the room for it.
  if (const auto made = BriefCloses::Prepare(); !made) Break("make a timer", made.error().sys_errno);
  int failed = 0;
  while (!ending_) {
    const bool hears = steady_clock::now() >= hear_from_ && closes_.size() < kMaxAgentConnections;
    std::vector<pollfd> fds{{signals_.get(), POLLIN, 0}, {hears ? listener_.get() : -1, POLLIN, 0}};
    for (const Connection& connection : connections_) fds.push_back({connection.child.get(), POLLIN, 0});
    for (const Filter& filter : filters_) fds.push_back({filter.channel.fd(), POLLIN, 0});
    const size_t heard = connections_.size();
    const size_t asked = filters_.size();
    const int polled = Faulty("agent.wait", [&] { return ::poll(fds.data(), fds.size(), closes_.empty() ? NextTimeout() : 0); });
    failed = polled < 0 && errno != EINTR ? failed + 1 : 0;
    if (failed == kMostFailedWaits) Break("wait", errno);
    if (failed != 0) {
      std::this_thread::sleep_for(kLook);
      continue;
    }
    const auto ready = [&fds](size_t i) { return fds[i].revents != 0; };
    std::vector<bool> keep_filter(asked, true);
    for (size_t i = 0; i < asked; ++i) {
      if (!ready(2 + heard + i) && !filters_[i].held) continue;
      const bool hung_up = !filters_[i].held && (fds[2 + heard + i].revents & POLLIN) == 0;
      keep_filter[i] = !hung_up && (filters_[i].refused ? RefuseCall(filters_[i]) : Admit(filters_[i]));
      if (child_code_) return child_code_;
    }
    for (size_t i = 0; i < heard; ++i)
      if (ready(2 + i)) Hear(connections_[i]);
    for (size_t i = heard; i-- > 0;)
      if (ready(2 + i)) {
        Drop(connections_[i]);
        connections_.erase(connections_.begin() + static_cast<ptrdiff_t>(i));
      }
    for (size_t i = asked; i-- > 0;)
      if (!keep_filter[i]) filters_.erase(filters_.begin() + static_cast<ptrdiff_t>(i));
    Expire();
    if (ready(1)) Accept();
    if (ready(0)) Signals();
    closes_.Turn();
  }
  EndAll();
  return std::nullopt;
}

}  // namespace sluice::app
