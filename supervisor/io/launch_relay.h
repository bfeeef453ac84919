#pragma once

// The supervisor's side of a running command: moves terminal and pumped bytes, forwards signals, keeps the deadline, until
// the command has ended.

#include <sys/types.h>

#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "supervisor/io/byte_channel.h"
#include "supervisor/io/signal_pipe.h"
#include "supervisor/io/standard_streams.h"
#include "supervisor/io/user_terminal.h"

namespace sluice::supervisor {

/// From SIGTERM to SIGKILL when the timeout has passed.
inline constexpr std::chrono::milliseconds kTimeoutGrace{2000};
/// For output that is still on its way when everything has ended.
inline constexpr std::chrono::milliseconds kDrainLimit{1000};

struct RunningCommand {
  pid_t pid = 0;
  int pidfd = -1;
  int status = -1;  ///< read end of init's status pipe
  std::optional<SteadyTime> deadline;
};

struct CommandEnd {
  std::optional<int> status;  ///< as waitpid gives it; nothing: the sandbox died
  bool timed_out = false;
};

class LaunchRelay {
 public:
  /// `terminal`: the master, invalid without one.
  LaunchRelay(StandardStreams streams, UniqueFd terminal);

  /// The supervisor's ends of what the workload was given are the workload's alone from now on.
  void CloseWorkloadEnds();
  [[nodiscard]] CommandEnd Run(const RunningCommand& command);
  /// Once everything of the sandbox has ended: what it wrote last.
  void Drain();

 private:
  void AddTerminalInput();
  [[nodiscard]] int PollOnce(const RunningCommand& command, int timeout_ms, std::optional<int>& status);
  void MoveChannels(const std::vector<pollfd>& ready, size_t first);
  void Forward(const RunningCommand& command, int signal);
  void StopWith(const RunningCommand& command);

  StandardStreams streams_;
  UniqueFd master_;
  std::optional<UserTerminal> terminal_;
  SignalPipe signals_;
  std::vector<std::unique_ptr<ByteChannel>> channels_;
};

}  // namespace sluice::supervisor
