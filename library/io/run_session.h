#pragma once

// One run as the library sees it: its supervisor's process, what it says, and how it ended. One epoll descriptor for all of it.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "library/io/control_client.h"
#include "library/io/supervisor_process.h"

namespace sluice::library {

/// Any of them may be empty. On the thread that dispatches.
struct RunCallbacks {
  std::function<void(const std::string& json)> record{};
  std::function<void(const std::string& line)> log{};
  std::function<void()> ended{};
  bool exchanges = false;
};

struct RunEnd {
  int exit_code = 5;
  int signal = 0;
  bool timed_out = false;
  bool complete = false;  ///< the supervisor said so itself
  uint64_t allowed = 0;
  uint64_t denied = 0;
  uint64_t lost_records = 0;
  int ended_by = -1;  ///< SLUICE_BY_COMMAND and so on
};

inline constexpr std::chrono::seconds kStartDeadline{60};
inline constexpr size_t kMaxLogLine = 64 * 1024;
inline constexpr size_t kMaxStartLines = 16 * 1024;  ///< octets that are said before a run has started

enum class Loop : uint8_t { kCaller, kOwn };

class RunSession {
 public:
  /// Blocks until the command runs. Errors have the supervisor's own words.
  static Result<std::unique_ptr<RunSession>> Start(const SupervisorPlan& plan, RunCallbacks callbacks, Loop loop);
  /// Kills the run where it has not ended; in a process that was forked from its own, only lets go.
  ~RunSession();
  RunSession(const RunSession&) = delete;
  RunSession& operator=(const RunSession&) = delete;

  /// Whether this is the process that started it.
  [[nodiscard]] bool is_ours() const;
  /// -1 with a loop of its own.
  [[nodiscard]] int fd() const { return loop_ == Loop::kOwn ? -1 : epoll_.get(); }
  [[nodiscard]] bool ended() const { return ended_.load(std::memory_order_acquire); }

  /// What there is to do now. One thread at a time.
  void Dispatch();
  /// Whether this thread is in a callback of the run.
  [[nodiscard]] bool InCallback() const { return dispatching_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }
  /// From a callback: no other is called any more. Once this one has returned, a loop of the session's own calls `destroy`, which
  /// destroys this; else whoever called Dispatch or Wait does so.
  void Drop(std::function<void()> destroy) { destroy_ = std::move(destroy); }
  [[nodiscard]] bool dropped() const { return destroy_ != nullptr; }
  /// True: it has ended. Nothing: for ever.
  [[nodiscard]] bool Wait(std::optional<std::chrono::milliseconds> longest);
  /// Once it has ended.
  [[nodiscard]] RunEnd end() const;

  // Any thread.

  [[nodiscard]] Result<Answer> Request(const Question& question);
  /// SIGHUP to the supervisor.
  [[nodiscard]] Result<void> Reload();

 private:
  RunSession(RunCallbacks callbacks, Loop loop, uint64_t owner);
  Result<void> Begin(const SupervisorPlan& plan);
  Result<void> AwaitRecords(std::chrono::steady_clock::time_point deadline);
  Result<void> AwaitCommand(std::chrono::steady_clock::time_point deadline);
  Result<void> WaitEvents(std::chrono::steady_clock::time_point deadline);
  Result<void> StartFailure();
  [[nodiscard]] Result<void> NotOpened(const Error& error);
  [[nodiscard]] std::string WhyNotStarted() const;
  void Watch(int fd);
  template <class Call>
  void CallBack(const Call& call);
  void ReadLog();
  /// Whether there may be more.
  bool ReadRecords();
  void ReadHold();
  void TakeLogLine(std::string line);
  void TakeState(const std::string& line);
  void Conclude();
  void OwnLoop();

  const RunCallbacks callbacks_;
  const Loop loop_;
  const uint64_t owner_;  // the mark of the process that started it
  SupervisorProcess process_;
  UniqueFd epoll_;
  UniqueFd stop_;
  std::optional<LineStream> records_;
  std::optional<LineStream> hold_;
  std::string log_text_;
  std::vector<std::string> start_lines_;  // that came before it ran
  size_t start_octets_ = 0;
  bool log_open_ = true;
  bool started_ = false;
  std::string state_;
  std::string version_;
  mutable std::mutex end_mutex_;
  std::condition_variable end_came_;
  RunEnd end_;
  std::atomic<bool> ended_{false};
  std::atomic<std::thread::id> dispatching_{};  // the thread that is in a callback
  std::function<void()> destroy_;               // on that thread alone
  std::thread thread_;
};

}  // namespace sluice::library
