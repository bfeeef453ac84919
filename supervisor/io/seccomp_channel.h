#pragma once

// The seccomp notification descriptor. Every call here is safe from any thread.

#include <linux/seccomp.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "base/unique_fd.h"
#include "supervisor/io/notifier.h"

namespace sluice::supervisor {

class SeccompChannel {
 public:
  /// Checks the kernel's structure sizes; synchronous wake-ups are had where the kernel has them.
  /// `workload_pid`: killed should the descriptor stop working, since nobody would be answered any more; 0: nobody is.
  [[nodiscard]] static Result<SeccompChannel> Open(UniqueFd fd, NotifyWakeUp wake_up, int workload_pid = 0);

  enum class Received : uint8_t {
    kCall,
    kNothing,  ///< interrupted by a signal, or the caller died meanwhile: ask again
    kEnd,      ///< no task is left that the filter watches
  };
  /// Blocks until a watched call comes. `out` is filled for kCall.
  [[nodiscard]] Received Receive(seccomp_notif* out) const;

  // The replies are silent when the caller is gone: it has no use for an answer.

  /// The call returns 0, or fails with `error`.
  void Reply(uint64_t id, int error) const;
  /// The call runs as if it had not been watched.
  void Continue(uint64_t id) const;
  /// The call is restarted after the pending signal was handled. Only while one is pending.
  void Restart(uint64_t id) const;
  /// Whether the caller still waits in this very call: what was read from it by pid was then its own. Where that cannot be found
  /// out the call is refused here, and not waiting.
  [[nodiscard]] bool IsWaiting(uint64_t id) const;

  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  SeccompChannel(UniqueFd fd, UniqueFd workload)
      : fd_(std::move(fd)), workload_(std::move(workload)), broken_(std::make_unique<std::atomic<bool>>(false)) {}
  void Send(seccomp_notif_resp response) const;
  /// The descriptor failed as no kernel lets it: callers that nobody answers must not wait for ever.
  void GiveUp(const char* what, int error) const;
  UniqueFd fd_;
  UniqueFd workload_;  ///< a pidfd
  std::unique_ptr<std::atomic<bool>> broken_;
};

/// A container has one for each filter (each `exec` brings its own); whoever has calls of it to answer keeps it open.
using SeccompChannelPtr = std::shared_ptr<const SeccompChannel>;

/// A caller that waits for its answer. A call's number is its own channel's alone.
struct PendingCall {
  SeccompChannelPtr channel;
  uint64_t id = 0;

  void Reply(int error) const { channel->Reply(id, error); }
  void Continue() const { channel->Continue(id); }
  void Restart() const { channel->Restart(id); }
  [[nodiscard]] bool IsWaiting() const { return channel->IsWaiting(id); }
};

}  // namespace sluice::supervisor
