#pragma once

// Frees this thread from a system call that will not return. While armed, a signal with an empty handler arrives every
// kWakeInterval, so that connect, close and the like end with EINTR; a signal that comes a moment too early is followed by
// another. It may also come in the middle of a call that was about to end: try once more before believing that it hangs.
// A thread may also have something done at each tick. One per thread, made and used on that thread. Arming what is armed costs
// nothing: leave it armed between operations that follow each other, and call Disarm before a wait that may be long.

#include <pthread.h>
#include <time.h>

#include <chrono>

#include "base/result.h"

namespace sluice {

inline constexpr std::chrono::milliseconds kWakeInterval{10};

class WakeTimer {
 public:
  WakeTimer() = default;
  WakeTimer(const WakeTimer&) = delete;
  WakeTimer& operator=(const WakeTimer&) = delete;
  ~WakeTimer();

  /// Installs the handler (once for the process) and the calling thread's timer.
  [[nodiscard]] Result<void> Open();
  /// Called at each tick, on this thread, in the signal handler: only what is async-signal-safe. Null ends that.
  using Tick = void (*)(void* argument);
  static void AtEachTick(Tick tick, void* argument);
  void Arm();
  void Disarm();

  /// The signal used.
  [[nodiscard]] static int Signal();
  /// Wakes a thread by hand, which has a timer, or has failed to make one. Any thread.
  static void Wake(pthread_t thread);
  /// Installs the empty handler. Any thread, any number of times.
  static void InstallHandler();
  /// In a child, which has none of its parent's timers.
  void Forget() { open_ = armed_ = false; }

 private:
  timer_t timer_{};
  bool open_ = false;
  bool armed_ = false;
};

/// While one lives, nothing that this thread closes keeps it for longer than kWakeInterval: no socket that lingers, be it the
/// last descriptor itself, in the queue of a UNIX socket, or in a message that is received without room for it. The timer is the
/// thread's own, made by the first. For what happens rarely, or on a thread that must be alone; a PinnedCloser does it elsewhere.
class BriefCloses {
 public:
  /// Makes this thread's timer, where it has none yet. Room for timers is a user's (RLIMIT_SIGPENDING), and so also for a
  /// workload of the same user to take: a thread that is to close what comes from one makes it before that one runs.
  [[nodiscard]] static Result<void> Prepare();
  BriefCloses();
  ~BriefCloses();
  BriefCloses(const BriefCloses&) = delete;
  BriefCloses& operator=(const BriefCloses&) = delete;
};

}  // namespace sluice
