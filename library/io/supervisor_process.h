#pragma once

// The supervisor as a process of its own: `sluice run`, executed with the descriptors that it talks over. posix_spawn(3) shares
// the caller's memory until the program is executed, so that a process with threads is never copied, and passes nothing on but
// what is listed.

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::library {

struct SupervisorPlan {
  std::string program;                 ///< absolute
  std::vector<std::string> arguments;  ///< of `sluice run`, before --control and the like
  std::vector<std::string> command;
  std::array<int, 3> streams{-1, -1, -1};  ///< the command's; -1: this process's own
  std::optional<std::string> policy_text;  ///< instead of --policy among the arguments
};

/// What is held of it. The channel's end, or this process's, is the end of the run.
struct SupervisorProcess {
  pid_t pid = 0;
  UniqueFd pidfd;    ///< readable once it has ended
  UniqueFd channel;  ///< SOCK_SEQPACKET: takes connections to its administration, one with each message
  UniqueFd log;      ///< its lines, non-blocking
};

/// Does not wait for it. kNotFound, kPermission: of the program.
[[nodiscard]] Result<SupervisorProcess> StartSupervisor(const SupervisorPlan& plan);

/// The program that was installed with the library that holds this function.
[[nodiscard]] Result<std::string> InstalledProgram();

/// Close-on-exec, and none of 0 to 2.
[[nodiscard]] Result<UniqueFd> Duplicate(int fd);

/// A connection to its administration.
[[nodiscard]] Result<UniqueFd> OpenConnection(int channel);

/// What it exited with, as waitpid gives it; nothing where somebody else has reaped it. Blocks until it ends.
[[nodiscard]] std::optional<int> Reap(int pidfd);

}  // namespace sluice::library
