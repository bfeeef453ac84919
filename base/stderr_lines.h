#pragma once

// Standard error as a bounded queue with a thread of its own: whoever reads it, or does not, holds up nobody who has something
// to say. What does not fit is counted, and the count is told once lines flow again. The descriptor is the workload's too, so
// that it is never made non-blocking: the thread alone may wait in write(2), and nobody waits for the thread without a bound.
//
//   QueueStderr(LineKind::kLog, "sluice: policy reloaded\n");
//   ...
//   (void)FlushStderr(kLastLines);   // before the program ends

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace sluice {

inline constexpr size_t kMaxQueuedStderr = size_t{128} << 10;  ///< octets that wait to be written
inline constexpr size_t kMaxQueuedDenials =
    kMaxQueuedStderr / 2;  ///< what denials may take of it: the rest is for the operator's lines
inline constexpr std::chrono::milliseconds kLastLines{1000};  ///< waited at the end for a reader that is slow

enum class LineKind : uint8_t { kLog, kDenial };

/// Lines on their way to one descriptor, which outlives it or is never closed. Any thread.
class LineOutput {
 public:
  explicit LineOutput(int fd);
  /// Does not wait: what is not written by now may be lost. Flush first.
  ~LineOutput();
  LineOutput(const LineOutput&) = delete;
  LineOutput& operator=(const LineOutput&) = delete;

  /// Whole lines, their feeds included. Never waits; drops and counts what does not fit.
  void Put(LineKind kind, std::string lines);
  /// False when something is still unwritten after `bound`.
  [[nodiscard]] bool Flush(std::chrono::milliseconds bound);

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the thread's too, which may be left behind
};

/// From now on lines go to descriptor `fd` instead, which is made close-on-exec and stays open. Before the first line. An error
/// where it is not open, or one of 0 to 2.
[[nodiscard]] Result<void> SendLinesTo(int fd);
/// Where lines go: standard error, unless SendLinesTo said otherwise.
[[nodiscard]] int LinesDescriptor();

/// To standard error, with the line ends that its terminal needs. The thread starts with the first line at the latest. In a
/// forked child after RenewStderr only.
void QueueStderr(LineKind kind, std::string lines);
/// Starts the thread now. The room for threads is a user's, and so also a workload's to take: without one, lines are written by
/// whoever has something to say, who then waits for whoever reads them.
void StartStderr();
[[nodiscard]] bool FlushStderr(std::chrono::milliseconds bound);
/// In a forked child, by its only thread: begins anew with a thread of its own. What was queued is the parent's to write.
void RenewStderr();

}  // namespace sluice
