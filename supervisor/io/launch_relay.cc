#include "supervisor/io/launch_relay.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "base/fault.h"
#include "base/log.h"
#include "base/poll_timeout.h"
#include "supervisor/io/launch_child.h"

namespace sluice::supervisor {
namespace {

constexpr std::array kForwarded = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};
constexpr size_t kFixedPolls = 4;  // status, signals, lifeline and transcript

// A sink that is gone must not end the supervisor.
class PipeSignalIgnored {
 public:
  PipeSignalIgnored() {
    ::sigaction(SIGPIPE, nullptr, &saved_);
    struct sigaction ignore{};
    ignore.sa_handler = SIG_IGN;
    if (saved_.sa_handler == SIG_DFL) ::sigaction(SIGPIPE, &ignore, nullptr);
  }
  PipeSignalIgnored(const PipeSignalIgnored&) = delete;
  PipeSignalIgnored& operator=(const PipeSignalIgnored&) = delete;
  ~PipeSignalIgnored() { ::sigaction(SIGPIPE, &saved_, nullptr); }

 private:
  struct sigaction saved_{};
};

// What stands still keeps no deadline: from then on the kernel continues this process, until it runs.
class ContinuedAt {
 public:
  explicit ContinuedAt(SteadyTime when) {
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGCONT;
    if (::timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) return;
    made_ = true;
    const auto left = std::max<int64_t>(std::chrono::ceil<std::chrono::milliseconds>(when - SystemClock().Steady()).count(), 1);
    const itimerspec from{.it_interval = {.tv_sec = 1, .tv_nsec = 0},
                          .it_value = {.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1'000'000}};
    set_ = ::timer_settime(timer_, 0, &from, nullptr) == 0;
  }
  ~ContinuedAt() {
    if (made_) ::timer_delete(timer_);
  }
  ContinuedAt(const ContinuedAt&) = delete;
  ContinuedAt& operator=(const ContinuedAt&) = delete;
  [[nodiscard]] bool set() const { return set_; }

 private:
  timer_t timer_{};
  bool made_ = false;
  bool set_ = false;
};

void SignalProcess(const RunningCommand& command, int signal) {
  ::syscall(SYS_pidfd_send_signal, command.pidfd, signal, nullptr, 0);
}

// The command leads its group; its own children of the same job get the signal as they would from a terminal.
void SignalGroup(const RunningCommand& command, int signal) {
  if (::kill(-command.pid, signal) != 0) SignalProcess(command, signal);
}

}  // namespace

LaunchRelay::LaunchRelay(StandardStreams streams, UniqueFd terminal, OutputMeter& meter)
    : streams_(std::move(streams)), master_(std::move(terminal)), meter_(meter) {
  OutputMeter* const looks = meter.wanted() ? &meter : nullptr;
  for (const Pump& pump : streams_.pumps)
    channels_.push_back(std::make_unique<ByteChannel>(pump.from, pump.to, pump.from == 0 ? nullptr : looks));
  if (!master_) return;
  terminal_.emplace(streams_.kinds);
  terminal_->CopyTo(master_.get());
  channels_.push_back(std::make_unique<ByteChannel>(master_.get(), terminal_->output(), looks));
}

void LaunchRelay::CloseWorkloadEnds() {
  for (UniqueFd& end : streams_.replacement) end.Reset();
}

Result<void> LaunchRelay::Hear() {
  if (signals_.fd() >= 0) return {};
  if (auto opened = signals_.Open(kForwarded); !opened) return opened;
  // A size that changed before was told to nobody.
  if (terminal_) terminal_->CopySizeTo(master_.get());
  return {};
}

void LaunchRelay::AddTerminalInput() {
  if (!terminal_) return;
  terminal_->Enter();
  const bool reading = std::ranges::any_of(channels_, [&](const auto& channel) { return channel->to() == master_.get(); });
  if (terminal_->input() >= 0 && !reading) channels_.push_back(std::make_unique<ByteChannel>(terminal_->input(), master_.get()));
}

CommandEnd LaunchRelay::Run(RunningCommand command) {
  const PipeSignalIgnored no_pipe_signal;
  CommandEnd end;
  if (const auto heard = Hear(); !heard) {
    LogError("cannot watch the command: {}; it is ended", heard.error().message);
    return end;
  }
  AddTerminalInput();
  deadline_ = command.deadline;
  while (true) {
    std::optional<int> status;
    const int events = PollOnce(command, deadline_ ? PollTimeout(*deadline_) : -1, status);
    if (events < 0) break;  // the sandbox is gone
    if (status && WIFSTOPPED(*status)) {
      if (terminal_ && !command.tree->frozen() && command.job_control == JobControl::kJob) StopWith(command);
    } else if (status) {
      end.status = status;
      break;
    }
    if (meter_.exceeded()) end.ended_by = EndedBy::kOutput;
    if (ended_by_signal_) end.ended_by = EndedBy::kDisconnect;
    if (end.ended_by == EndedBy::kOutput || end.ended_by == EndedBy::kDisconnect) break;
    if (!deadline_ || PollTimeout(*deadline_) > 0) continue;
    if (end.timed_out) break;  // the grace is over too
    end.timed_out = true;
    end.ended_by = EndedBy::kTimeout;
    if (command.tree->frozen()) break;  // nobody would hear it
    SignalGroup(command, SIGTERM);
    SignalGroup(command, SIGCONT);
    deadline_ = SystemClock().Steady() + kTimeoutGrace;
  }
  return end;
}

// One poll. -1: init closed its status pipe. A status that was read is put in `status`.
int LaunchRelay::PollOnce(RunningCommand& command, int timeout_ms, std::optional<int>& status) {
  std::vector<pollfd> polls = {{.fd = command.status, .events = POLLIN, .revents = 0},
                               {.fd = signals_.fd(), .events = POLLIN, .revents = 0},
                               {.fd = command.lifeline, .events = POLLIN, .revents = 0},
                               meter_.Interest()};
  for (const auto& channel : channels_) polls.push_back(channel->Interest());
  const int ready = Faulty("launch.watch", [&] { return ::poll(polls.data(), polls.size(), timeout_ms); });
  if (ready < 0 && errno == EINTR) return 0;
  if (ready < 0) {
    LogError("cannot watch the command: {}; it is ended", std::strerror(errno));
    return -1;
  }
  MoveChannels(polls, kFixedPolls);
  if (polls[3].revents != 0) meter_.WriteWaiting();
  if (polls[1].revents != 0)
    for (const int signal : signals_.Take()) Forward(command, signal);
  if (polls[2].revents != 0 && Disconnected(command)) ended_by_signal_ = true;
  if (polls[0].revents == 0) return ready;
  CommandStatus message;
  const ssize_t got = ::read(command.status, &message, sizeof message);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return ready;
  if (got != sizeof message) return -1;
  status = message.status;
  return ready;
}

// What comes over the lifeline is not looked at; its end counts. True: the run is to be killed.
bool LaunchRelay::Disconnected(RunningCommand& command) {
  std::array<char, 256> ignored{};
  const ssize_t got = ::read(command.lifeline, ignored.data(), ignored.size());
  if (got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN))) return false;
  command.lifeline = -1;
  if (command.on_disconnect == OnDisconnect::kKill) {
    LogError("the launcher is gone (the lifeline's other end is closed): the run is killed");
    return true;
  }
  auto frozen = command.tree->Freeze();
  if (!frozen) {
    LogError("the launcher is gone (the lifeline's other end is closed): {}", frozen.error().message);
    return true;
  }
  LogWarn(
      "the launcher is gone (the lifeline's other end is closed): the run is frozen; SIGCONT to process {} lets it go on, "
      "SIGTERM ends it",
      ::getpid());
  return false;
}

void LaunchRelay::MoveChannels(const std::vector<pollfd>& ready, size_t first) {
  for (size_t i = channels_.size(); i-- > 0;) {
    if (channels_[i]->Move(ready[first + i].revents)) continue;
    // A pump's end closes with its channel: the workload sees the end of input, or SIGPIPE.
    for (Pump& pump : streams_.pumps)
      if (pump.owned.valid() && (pump.owned.get() == channels_[i]->from() || pump.owned.get() == channels_[i]->to()))
        pump.owned.Reset();
    channels_.erase(channels_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void LaunchRelay::Forward(const RunningCommand& command, int signal) {
  if (command.tree->frozen()) {
    if (signal == SIGCONT && !command.tree->Thaw()) ended_by_signal_ = true;
    if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT) ended_by_signal_ = true;
    if (signal != SIGCONT) return;
  }
  switch (signal) {
    case SIGHUP:
    case SIGINT:
    case SIGQUIT:
      SignalGroup(command, signal);
      break;
    case SIGWINCH:
      if (terminal_) terminal_->CopySizeTo(master_.get());
      SignalProcess(command, signal);
      break;
    case SIGTSTP:
      if (command.job_control == JobControl::kJob) StopWith(command);
      break;
    case SIGCONT:
      AddTerminalInput();
      if (terminal_) terminal_->CopySizeTo(master_.get());
      SignalGroup(command, SIGCONT);
      break;
    default:
      SignalProcess(command, signal);
  }
}

// Stops the workload's group and then this process, as one job. Both go on with the SIGCONT that this process gets, when its time
// is up at the latest: the command may stop itself, and would outlive it.
void LaunchRelay::StopWith(const RunningCommand& command) {
  SignalGroup(command, SIGSTOP);
  if (terminal_) {
    terminal_->Leave();
    std::erase_if(channels_, [&](const auto& channel) { return channel->to() == master_.get(); });
  }
  std::optional<ContinuedAt> at_the_end;
  if (deadline_ && !at_the_end.emplace(*deadline_).set()) return;
  ::kill(::getpid(), SIGSTOP);
}

void LaunchRelay::Drain() {
  const PipeSignalIgnored no_pipe_signal;
  // Input has no reader any more.
  std::erase_if(channels_, [&](const auto& channel) { return channel->from() == 0; });
  const SteadyTime until = SystemClock().Steady() + kDrainLimit;
  while ((!channels_.empty() || meter_.behind()) && PollTimeout(until) > 0) {
    std::vector<pollfd> polls = {meter_.Interest()};
    for (const auto& channel : channels_) polls.push_back(channel->Interest());
    if (::poll(polls.data(), polls.size(), PollTimeout(until)) < 0 && errno != EINTR) break;
    MoveChannels(polls, 1);
    if (polls[0].revents != 0) meter_.WriteWaiting();
  }
  meter_.GiveUp();
  if (terminal_) terminal_->Leave();
}

}  // namespace sluice::supervisor
