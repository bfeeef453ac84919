#include "base/wake_timer.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>

#include "base/complaint.h"
#include "base/fault.h"

namespace sluice {
namespace {

// Far enough from the first real-time signals, which libraries take for themselves.
constexpr int kOffset = 5;
// Real-time signals count against a limit of the user's, as timers do; others need no room (signal(7)). Ignored elsewhere.
constexpr int kWithoutRoom = SIGURG;

thread_local WakeTimer::Tick at_tick = nullptr;
thread_local void* tick_argument = nullptr;

void OnTick(int) {
  const int error = errno;
  if (at_tick != nullptr) at_tick(tick_argument);
  errno = error;
}

}  // namespace

int WakeTimer::Signal() { return SIGRTMIN + kOffset; }

void WakeTimer::Wake(pthread_t thread) {
  if (pthread_kill(thread, Signal()) == EAGAIN) pthread_kill(thread, kWithoutRoom);
}

void WakeTimer::InstallHandler() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_handler = OnTick;  // without SA_RESTART: the interrupted call must end
    sigemptyset(&action.sa_mask);
    for (const int signal : {Signal(), kWithoutRoom}) sigaction(signal, &action, nullptr);
  });
}

Result<void> WakeTimer::Open() {
  InstallHandler();
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {Signal(), kWithoutRoom}) sigaddset(&set, signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = Signal();
  event._sigev_un._tid = gettid();
  if (Faulty("timer.make", [&] { return timer_create(CLOCK_MONOTONIC, &event, &timer_); }) != 0)
    return FailErrno("cannot make a timer", errno);
  open_ = true;
  return {};
}

void WakeTimer::AtEachTick(Tick tick, void* argument) {
  // The argument stands before the function does, should a tick come in between.
  if (tick == nullptr) at_tick = nullptr;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  tick_argument = argument;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  at_tick = tick;
}

WakeTimer::~WakeTimer() {
  if (open_) timer_delete(timer_);
}

void WakeTimer::Arm() {
  if (!open_ || armed_) return;
  constexpr long kNanoseconds = std::chrono::nanoseconds(kWakeInterval).count();
  const itimerspec every{{0, kNanoseconds}, {0, kNanoseconds}};
  timer_settime(timer_, 0, &every, nullptr);
  armed_ = true;
}

void WakeTimer::Disarm() {
  if (!open_ || !armed_) return;
  const itimerspec never{};
  timer_settime(timer_, 0, &never, nullptr);
  armed_ = false;
}

namespace {

struct OwnTimer {
  WakeTimer timer;
  pid_t process = 0;  // a timer is that of the process which made it
  unsigned holders = 0;
  Complaint complaint;
};

OwnTimer& Own() {
  thread_local OwnTimer own;
  return own;
}

}  // namespace

Result<void> BriefCloses::Prepare() {
  OwnTimer& own = Own();
  const pid_t process = getpid();
  if (own.process == process) return {};
  own.timer.Forget();
  auto opened = own.timer.Open();
  if (opened) own.process = process;
  return opened;
}

BriefCloses::BriefCloses() {
  OwnTimer& own = Own();
  if (const auto made = Prepare(); !made) own.complaint.Tell("make a timer", made.error().sys_errno, "a close may wait");
  ++own.holders;
  own.timer.Arm();
}

BriefCloses::~BriefCloses() {
  OwnTimer& own = Own();
  if (own.holders == 0) return;
  if (--own.holders == 0) own.timer.Disarm();
}

}  // namespace sluice
