#pragma once

// Readiness of sockets, edge-triggered, for one worker's thread. A channel remembers what the kernel last said, so that a
// coroutine asks the kernel again only when something changed; deadlines are kept by a sweep, not by a timer each.

#include <array>
#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace sluice::proxy {

inline constexpr size_t kEventsPerPoll = 128;
inline constexpr std::chrono::milliseconds kSweepEvery{100};

enum Ready : uint8_t {
  kReadable = 1,
  kWritable = 2,
  kBroken = 4,    ///< reset or in error: wakes every waiter
  kPeerDone = 8,  ///< the peer has sent its last byte
};

class Reactor;
class Waiter;

/// One socket in the reactor. Stays at its address while registered.
class Channel {
 public:
  Channel() = default;
  ~Channel() { Close(); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Takes the descriptor. `ready`: what may be tried before the kernel has said anything.
  [[nodiscard]] bool Open(Reactor& reactor, UniqueFd fd, uint8_t ready);
  void Close();
  /// Out of the reactor, the descriptor left open for another's. No wait may be on it.
  [[nodiscard]] UniqueFd Release();
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool open() const { return fd_.valid(); }

  uint8_t ready = 0;
  bool enough = false;  ///< ready or not, the next wait on it lets the other flows run first

 private:
  friend class Reactor;
  friend class Waiter;
  Reactor* reactor_ = nullptr;
  UniqueFd fd_;
  Waiter* waiter_ = nullptr;
  uint8_t interest_ = 0;
};

enum class Wake : uint8_t { kReady, kTimeout, kCancelled };

/// What one flow waits with. At most one wait at a time.
class Waiter {
 public:
  struct On {
    Channel* channel = nullptr;
    uint8_t interest = 0;
  };

  explicit Waiter(Reactor& reactor) : reactor_(reactor) {}
  ~Waiter() { Disarm(); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  struct Awaiter {
    Waiter* waiter;
    [[nodiscard]] bool await_ready() const noexcept { return waiter->ReadyNow(); }
    void await_suspend(std::coroutine_handle<> handle) const noexcept { waiter->Suspend(handle); }
    Wake await_resume() const noexcept { return waiter->wake_; }
  };

  /// Until any interest is ready, the deadline, Cancel() or Notify().
  [[nodiscard]] Awaiter Wait(On a, On b, SteadyTime deadline) {
    on_ = {a, b};
    deadline_ = deadline;
    yield_ = false;
    return {this};
  }
  [[nodiscard]] Awaiter Wait(On a, SteadyTime deadline) { return Wait(a, {}, deadline); }
  /// Lets the other flows of this worker run, then goes on.
  [[nodiscard]] Awaiter Yield(SteadyTime deadline) {
    on_ = {};
    deadline_ = deadline;
    yield_ = true;
    return {this};
  }

  /// Ends the present wait, and every later one at once. On the worker's thread.
  void Cancel();
  [[nodiscard]] bool cancelled() const { return cancelled_; }
  /// Ends the present wait with kReady; no effect when there is none.
  void Notify() { Fire(Wake::kReady); }
  /// Ends the present wait, or the next one, with kReady, but from the reactor's loop: for use where whoever waits must not run
  /// at once. ClearPoke takes back what no wait has seen.
  void Poke();
  void ClearPoke() { poked_ = false; }
  /// Cancel, from the reactor's loop.
  void CancelSoon();
  [[nodiscard]] bool waiting() const { return static_cast<bool>(handle_); }

 private:
  friend class Reactor;
  friend class Channel;
  bool ReadyNow() noexcept;
  void Suspend(std::coroutine_handle<> handle) noexcept;
  void Disarm() noexcept;
  void Fire(Wake wake);
  void Queue() noexcept;

  Reactor& reactor_;
  std::array<On, 2> on_{};
  SteadyTime deadline_{};
  std::coroutine_handle<> handle_;
  Waiter* previous_ = nullptr;
  Waiter* next_ = nullptr;
  static constexpr size_t kNoSlot = ~size_t{0};
  size_t expired_slot_ = kNoSlot;  ///< in the sweep under way
  Wake wake_ = Wake::kReady;
  bool cancelled_ = false;
  bool yield_ = false;
  bool poked_ = false;
  size_t queued_slot_ = kNoSlot;  ///< in the reactor's list of those that go on in the next round
};

class Reactor {
 public:
  Reactor();
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  /// The epoll descriptor: readable when Poll has something to do. -1 when it could not be made.
  [[nodiscard]] int fd() const { return epoll_.get(); }
  /// Runs what is ready, waiting for the first of it for so long, a bounded number of rounds. True: there may be more.
  bool Poll(std::chrono::milliseconds wait);
  /// Has Poll run it, in the order of coming; it throws nothing. Any thread.
  void Post(std::move_only_function<void()> act);
  /// Ends a wait of Poll. Any thread.
  void Ring();
  /// Ends waits whose deadline has passed.
  void Sweep();
  /// Steady time of the present round.
  [[nodiscard]] SteadyTime now() const { return now_; }
  /// Begins a round: whatever enters this thread does so first.
  void Refresh() {
    now_ = SystemClock().Steady();
    if (on_round_) on_round_();
  }
  /// Called as each round begins, before anything of it runs. Once, before the first.
  void OnRound(std::function<void()> act) { on_round_ = std::move(act); }

 private:
  friend class Channel;
  friend class Waiter;
  bool PollRounds(int wait_ms);
  void RunPosted();
  void Forget(Channel* channel);

  UniqueFd epoll_;
  UniqueFd bell_;
  bool polling_ = false;
  SteadyTime now_;
  std::function<void()> on_round_;
  Waiter* waiters_ = nullptr;  ///< all that are suspended
  std::vector<Waiter*> expired_;
  std::vector<Waiter*> queued_;   ///< they go on in the next round
  std::vector<Waiter*> running_;  ///< those of the present round
  std::mutex posting_;
  std::vector<std::move_only_function<void()>> posted_;
  std::atomic<bool> any_posted_{false};
  std::array<Channel*, kEventsPerPoll> batch_{};
  std::array<uint32_t, kEventsPerPoll> batch_events_{};
  size_t batch_at_ = 0;
  size_t batch_size_ = 0;
};

}  // namespace sluice::proxy
