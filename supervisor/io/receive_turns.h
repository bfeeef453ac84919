#pragma once

// Which of the notification threads wait in the kernel for the next call. A notification wakes every thread that waits for one,
// and all but one of them for nothing, which costs each caller a few microseconds: so one waits, and the others rest until they
// are needed, which is when that one is held up or calls queue. Any thread.
//
//   turns.Rest();                        // all but the first
//   for (;;) {
//     turns.Enter(); …wait for a call…; const auto left = turns.Leave();
//     …if it was in vain and others wait as well: turns.Rest()
//     …if this one is held up, or calls queue: turns.CallAnother()
//   }

#include <semaphore.h>

#include <atomic>
#include <cstdint>

namespace sluice::supervisor {

class ReceiveTurns {
 public:
  ReceiveTurns();
  ~ReceiveTurns();
  ReceiveTurns(const ReceiveTurns&) = delete;
  ReceiveTurns& operator=(const ReceiveTurns&) = delete;

  /// Blocks until CallAnother or Close. Whoever rests must know that another waits for calls, or answers one.
  void Rest();

  void Enter() { waiting_.fetch_add(1); }
  enum class Left : uint8_t { kNobody, kOthers };
  /// Who waits still.
  Left Leave() { return waiting_.fetch_sub(1) == 1 ? Left::kNobody : Left::kOthers; }

  /// Nobody waits for calls: has one of those who rest do so. Async-signal-safe.
  void CallAnother();
  /// Nobody rests from now on.
  void Close();

 private:
  sem_t called_;
  std::atomic<unsigned> waiting_{0};
  std::atomic<unsigned> resting_{0};
  std::atomic<bool> closed_{false};
};

}  // namespace sluice::supervisor
