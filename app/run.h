#pragma once

// `sluice run`: one supervised workload, from policy to exit code.

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::app {

struct RunOptions {
  std::string policy;                  ///< file; may be empty when there are allows or presets
  std::vector<std::string> allows;     ///< --allow
  std::vector<std::string> presets;    ///< --preset
  std::string audit;                   ///< file; empty: none
  std::vector<std::string> resolvers;  ///< "IP" or "IP:PORT"
  std::vector<std::string> upstream_ca;
  std::vector<std::string> read_write;
  std::vector<std::string> read_only;
  std::vector<std::string> environment;  ///< "NAME" or "NAME=VALUE"
  std::string cwd;
  std::string name;
  std::vector<std::string> labels;  ///< "k=v"
  std::string timeout;              ///< "30s", "5m", "1h", "250ms"
  bool fail_on_deny = false;
  bool quiet = false;
  std::vector<std::string> command;
};

/// "250ms", "30s", "5m", "2h"; a bare number is seconds. Nothing for anything else, zero, or more than 365 days.
[[nodiscard]] std::optional<std::chrono::milliseconds> ParseDuration(const std::string& text);

/// The process's exit code. Blocks until the workload has ended.
[[nodiscard]] int Run(const RunOptions& options);

}  // namespace sluice::app
