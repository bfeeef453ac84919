#pragma once

// `sluice run`: one supervised workload, from policy to exit code.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "app/served_policy.h"

namespace sluice::app {

struct RunOptions : ServedOptions {
  std::vector<std::string> read_write;
  std::vector<std::string> read_only;
  std::vector<std::string> environment;  ///< "NAME" or "NAME=VALUE"
  std::string cwd;
  std::string timeout;  ///< "30s", "5m", "1h", "250ms"
  bool fail_on_deny = false;
  std::vector<std::string> control;  ///< as PlanControl reads them
  bool await_hold = false;
  int policy_fd = -1;  ///< the policy in place of a file; -1: none
  std::vector<std::string> command;
};

/// "250ms", "30s", "5m", "2h"; a bare number is seconds. Nothing for anything else, zero, or more than 365 days.
[[nodiscard]] std::optional<std::chrono::milliseconds> ParseDuration(const std::string& text);

/// The process's exit code. Blocks until the workload has ended.
[[nodiscard]] int Run(const RunOptions& options);

}  // namespace sluice::app
