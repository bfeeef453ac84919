#pragma once

// Blocking connects that are not over yet: those whose upstream is being dialled, and those of the workload's own loopback
// that found a full backlog. Keyed by socket, so that a call restarted after a signal joins the wait it left, and a second
// connect elsewhere gets EALREADY, as the kernel would have it. No thread waits here: Tick looks after all of them.
// Any thread may call anything.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "supervisor/io/capture_gate.h"
#include "supervisor/io/process_identity.h"
#include "supervisor/io/seccomp_channel.h"

namespace sluice::supervisor {

inline constexpr size_t kMaxWaitingConnects = 4096;  ///< sockets, with outcomes that give way; more get ENOBUFS
inline constexpr size_t kMaxWaitersPerSocket = 64;
inline constexpr std::chrono::seconds kConnectDeadline{130};  ///< what Linux's own retransmissions come to
inline constexpr std::chrono::seconds kUnclaimedAge{60};      ///< an outcome that nobody waited for
inline constexpr std::chrono::milliseconds kSignalProbe{20};  ///< how often Tick wants to be called
/// Callers looked at in one Tick, in turns, and the rest of the last one's socket: the table is locked meanwhile.
inline constexpr size_t kMaxProbesPerTick = 256;

enum class Blocking : uint8_t { kNo, kYes };

class WaitingConnects {
 public:
  struct Waiter {
    PendingCall caller;
    CallerThreadPtr thread;
    std::optional<SteadyTime> deadline;  ///< SO_SNDTIMEO
  };
  using Drop = std::function<void(UniqueFd)>;

  /// `drop` closes pinned sockets.
  explicit WaitingConnects(Drop drop) : drop_(std::move(drop)) {}

  /// Answers or keeps the waiter when this socket's connect is under way, or over without anyone to tell. False: it is new.
  [[nodiscard]] bool Join(uint64_t cookie, Blocking blocking, Waiter waiter);

  enum class Begun : uint8_t {
    kNew,
    kJoined,  ///< another thread was first with this socket: the waiter waits for that connect
    kFull,    ///< kMaxWaitingConnects reached
  };
  /// A connect whose upstream is being dialled.
  [[nodiscard]] Begun Begin(uint64_t cookie, UniqueFd pinned, ApprovedConnect approved, Waiter waiter);
  /// Hands the attempt out for connecting in place; nothing when it was given up meanwhile.
  [[nodiscard]] std::optional<Attempt> Prepared(uint64_t cookie, uint64_t id);
  /// It failed: everybody who waits is told.
  void Failed(uint64_t cookie, uint64_t id, int error);
  /// Keeps an outcome for a caller that was interrupted and will come back.
  void Remember(uint64_t cookie, int error);

  /// A connect in place that did not end at once.
  [[nodiscard]] Begun BeginHung(uint64_t cookie, UniqueFd pinned, std::vector<uint8_t> address, Waiter waiter);

  /// The socket was dissolved: its waiters get ECONNABORTED, as the kernel answers.
  void Abandon(uint64_t cookie);

  /// Signals, deadlines, callers that died, hung connects that ended.
  void Tick();
  [[nodiscard]] bool empty() const { return size_.load(std::memory_order_acquire) == 0; }

 private:
  enum class State : uint8_t { kPreparing, kHung, kOver };
  struct Entry {
    State state = State::kPreparing;
    UniqueFd pinned;
    ApprovedConnect approved;
    std::vector<uint8_t> address;  // kHung
    std::vector<Waiter> waiters;
    int result = 0;  // kOver
    SteadyTime since;
  };
  using Entries = std::map<uint64_t, Entry>;
  Begun Insert(uint64_t cookie, Entry entry);
  [[nodiscard]] bool ForgetAnOutcome();
  enum class Ticked : uint8_t {
    kStays,
    kHeldUp,  ///< stays, and has had this thread wait: enough for one Tick
    kOver,    ///< has no more reason to be
  };
  Ticked TickOne(Entry& entry, SteadyTime now);
  Ticked TickHung(Entry& entry);
  void ProbeWaiters(Entry& entry, SteadyTime now);
  static void Answer(std::vector<Waiter>& waiters, int error);
  /// Tells the waiters. True when there were any: then nothing is left to claim.
  [[nodiscard]] bool Settle(Entry& entry, int error, SteadyTime now);

  const Drop drop_;
  std::mutex mutex_;
  Entries entries_;
  std::atomic<size_t> size_{0};
  uint64_t next_probe_ = 0;  // cookie where the next Tick begins
};

}  // namespace sluice::supervisor
