#pragma once

// What `sluice` exits with when the exit code is its own and not the workload's.

#include "base/result.h"

namespace sluice::app {

inline constexpr int kExitOk = 0;
inline constexpr int kExitNegative = 1;       ///< `lint` found an error, `explain` says denied
inline constexpr int kExitBadInput = 2;       ///< a policy, flag or file that cannot be used
inline constexpr int kExitDenied = 3;         ///< --fail-on-deny, and something was denied
inline constexpr int kExitUnsupported = 4;    ///< this machine lacks a feature; the message names it
inline constexpr int kExitFault = 5;          ///< the supervisor itself failed; the workload was stopped
inline constexpr int kExitNotRunnable = 126;  ///< as a shell: found, but cannot be executed
inline constexpr int kExitNotFound = 127;     ///< as a shell: no such command

/// For failures before the workload runs.
[[nodiscard]] inline int ExitCodeFor(const Error& error) {
  switch (error.code) {
    case Code::kInvalid:
    case Code::kNotFound:
      return kExitBadInput;
    case Code::kUnsupported:
      return kExitUnsupported;
    default:
      return kExitFault;
  }
}

}  // namespace sluice::app
