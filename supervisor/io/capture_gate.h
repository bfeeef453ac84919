#pragma once

// Accepts captured connections and gives each to the approval it belongs to. A thread that has just connected a socket in
// place accepts what is in the queue itself, since a loopback handshake ends inside connect: usually its own, else another
// thread's, which it then completes. What no approval claims within kApprovalWait is reset and reported.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/unique_fd.h"
#include "supervisor/flow_table.h"
#include "supervisor/io/notifier.h"
#include "supervisor/io/seccomp_channel.h"

namespace sluice::supervisor {

/// How long an approval waits for its connection, and an accepted connection for its approval.
inline constexpr std::chrono::milliseconds kApprovalWait{1000};

/// A socket connected in place whose captured end has not been seen yet. Its caller is answered when it was.
struct Attempt {
  std::vector<PendingCall> callers;  ///< who waits for the answer; empty when all were interrupted
  int reply = 0;                     ///< the answer on success: 0 or EINPROGRESS
  uint64_t cookie = 0;
  UniqueFd pinned;
  ApprovedConnect approved;
};

class CaptureGate {
 public:
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void Matched(Attempt attempt, const Endpoint& source, UniqueFd accepted) = 0;
    /// Its connection never came.
    virtual void Lost(Attempt attempt, int error) = 0;
    /// A connection that nobody approved; it was reset.
    virtual void Stray(const FlowTuple& tuple) = 0;
  };

  /// `listener` is non-blocking; both outlive the gate.
  CaptureGate(int listener, Sink& sink);

  /// Completes the attempt now if its connection is in the queue, later otherwise. True when attempts are left waiting, so that
  /// somebody must call Sweep until none is.
  bool Admit(Attempt attempt, const FlowTuple& tuple);
  /// Accepts what is queued and gives up what waited too long. One thread.
  void Sweep();
  [[nodiscard]] size_t waiting() const;

 private:
  /// Accepts and hands out until the queue is empty or (with `until`) that approval was served.
  void Drain(uint64_t until);
  void TakeOne(UniqueFd fd, const Endpoint& source, uint64_t* served);
  void AcceptWithoutDescriptors();

  const int listener_;
  Sink& sink_;
  mutable std::mutex mutex_;
  FlowTable<Attempt, UniqueFd> table_;
  std::mutex spare_mutex_;
  UniqueFd spare_;  // freed to accept and reset one connection when there are no descriptors left
};

}  // namespace sluice::supervisor
