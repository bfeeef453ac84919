#pragma once

// Another program, run to its end: what a policy's command prints, what git answers. posix_spawn(3), pidfd_open(2).
//
//   const auto run = RunProgram({"git", "rev-parse", "HEAD"}, {.out = 100, .err = 1000, .deadline = std::chrono::seconds(10)});
//   if (run && run->Succeeded()) …  // run->out
//
// It reads /dev/null, has this process's environment, and signals as a program begins with. It is the leader of a session of its
// own, without a terminal: whatever of that session is left when it ends, or does not, is killed.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/spawner.h"

namespace sluice {

struct ProgramBounds {
  size_t out = 0;  ///< octets of its standard output: one more ends it
  size_t err = 0;  ///< octets kept of its standard error; the rest is dropped
  std::chrono::milliseconds deadline{};
};

struct ProgramRun {
  enum class End : uint8_t { kExited, kSignalled, kLate, kTooMuch };
  End end = End::kExited;
  int code = 0;       ///< exit code, or the signal
  std::string out{};  ///< at most `ProgramBounds::out` octets; never copied on the way here, so that it can be wiped
  std::string err{};
  [[nodiscard]] bool Succeeded() const { return end == End::kExited && code == 0; }
};

/// Looks the first word up in $PATH. Blocks until it has ended or was killed. An error where it could not be started: its
/// sys_errno is ENOENT where there is no such program. `spawner` starts it, or this thread where that is null.
[[nodiscard]] Result<ProgramRun> RunProgram(std::vector<std::string> command, const ProgramBounds& bounds,
                                            Spawner* spawner = nullptr);

}  // namespace sluice
