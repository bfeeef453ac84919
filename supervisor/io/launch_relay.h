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
#include "supervisor/io/output_meter.h"
#include "supervisor/io/running_tree.h"
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
  RunningTree* tree = nullptr;  ///< what is frozen or killed when the lifeline ends
  int lifeline = -1;
  OnDisconnect on_disconnect = OnDisconnect::kKill;
  JobControl job_control = JobControl::kJob;
};

struct CommandEnd {
  std::optional<int> status;  ///< as waitpid gives it; nothing: the sandbox died
  bool timed_out = false;
  EndedBy ended_by = EndedBy::kCommand;
};

class LaunchRelay {
 public:
  /// `terminal`: the master, invalid without one. `meter` outlives the relay.
  LaunchRelay(StandardStreams streams, UniqueFd terminal, OutputMeter& meter);

  /// The supervisor's ends of what the workload was given are the workload's alone from now on.
  void CloseWorkloadEnds();
  /// Signals are kept for the command from here on: before it runs, since it may say so before Run is called.
  [[nodiscard]] Result<void> Hear();
  [[nodiscard]] CommandEnd Run(RunningCommand command);
  /// Once everything of the sandbox has ended: what it wrote last.
  void Drain();

 private:
  void AddTerminalInput();
  [[nodiscard]] int PollOnce(RunningCommand& command, int timeout_ms, std::optional<int>& status);
  [[nodiscard]] bool Disconnected(RunningCommand& command);
  void MoveChannels(const std::vector<pollfd>& ready, size_t first);
  void Forward(const RunningCommand& command, int signal);
  void StopWith(const RunningCommand& command);

  StandardStreams streams_;
  UniqueFd master_;
  std::optional<UserTerminal> terminal_;
  SignalPipe signals_;
  std::vector<std::unique_ptr<ByteChannel>> channels_;
  OutputMeter& meter_;
  std::optional<SteadyTime> deadline_;
  bool ended_by_signal_ = false;  // a frozen run can hear nothing: the signal that should end it ends it
};

}  // namespace sluice::supervisor
