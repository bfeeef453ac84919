#pragma once

// What the processes of a start-up tell each other, over a socket pair that keeps message boundaries. One message is a
// kind, a number, perhaps a failure, and at most kMaxPassed descriptors. Used by CreateCapture and Launch only, before
// the workload's program runs: the peer is Sluice's own code.

#include <sys/types.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::supervisor {

inline constexpr size_t kMaxPassed = 8;
inline constexpr size_t kMaxFailureText = 1024;

enum class Step : uint32_t {
  kFailed,    ///< with an Error
  kGo,        ///< the other may go on
  kCaptured,  ///< a capture's descriptors
  kInit,      ///< number: the sandbox's first process, in the sender's pid namespace
  kTerminal,  ///< one descriptor: the master of the workload's terminal
  kContent,   ///< from the supervisor, one descriptor: the content of the next overlay that it provides
  kFiltered,  ///< from the command; number: the notification descriptor in the command's table
};

struct Message {
  Step step = Step::kFailed;
  int64_t number = 0;
  Error error;       ///< when step is kFailed
  pid_t sender = 0;  ///< in the receiver's pid namespace; 0 where SO_PASSCRED is off
  std::vector<UniqueFd> fds;
};

/// A connected pair, close-on-exec; the first end learns the sender's pid with each message.
[[nodiscard]] Result<std::pair<UniqueFd, UniqueFd>> MakeHandshake();

/// Sends with write(2) when there are no descriptors, so that no seccomp filter on sendmsg sees it. Borrowed descriptors.
[[nodiscard]] Result<void> Send(int socket, Step step, int64_t number = 0, const std::vector<int>& fds = {});
/// For a process about to exit: failures of sending are not reported.
void SendFailure(int socket, const Error& error);

/// Waits for the next message. kTimeout after `timeout_ms` (-1: none); kInternal when the peer is gone. `stray` gets what came
/// with one that is none, for who must not close a workload's descriptors here: that may wait.
[[nodiscard]] Result<Message> Receive(int socket, int timeout_ms, std::vector<UniqueFd>* stray = nullptr);

/// As Receive, but any step other than `expected` is an error; a kFailed becomes its own Error.
[[nodiscard]] Result<Message> Expect(int socket, Step expected, int timeout_ms);

}  // namespace sluice::supervisor
