#pragma once

// `sluice run`: one supervised workload, from policy to exit code.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/served_policy.h"

namespace sluice::app {

struct RunOptions : ServedOptions {
  std::string spec;       ///< a launch file, or "-"; what it says and a flag does not is taken over before anything else
  std::string workspace;  ///< a folder the command may write, and starts in unless `cwd` says otherwise
  std::vector<std::string> read_write;
  std::vector<std::string> read_only;
  std::vector<std::string> environment;         ///< "NAME" or "NAME=VALUE"; none that looks like a credential
  std::vector<std::string> unsafe_environment;  ///< the same, whatever they look like
  std::string environment_inherit;              ///< "usual" (also empty) or "none"
  std::string cwd;
  std::string timeout;       ///< "30s", "5m", "1h", "250ms"
  std::string memory;        ///< octets: "512MiB"
  std::string output_limit;  ///< octets
  std::optional<uint64_t> processes;
  std::optional<uint64_t> open_files;
  std::vector<std::string> publish;  ///< "[ADDRESS:]PORT:PORT"
  std::string transcript;            ///< a file that gets the command's output, beside where it goes anyway
  std::string result;                ///< a file, or "fd:N"
  std::optional<uint64_t> lifeline;  ///< a descriptor whose other end the launcher holds
  std::string on_disconnect;         ///< "kill" (also empty) or "freeze"
  bool fail_on_deny = false;
  bool kill_on_deny = false;
  bool allow_user_namespaces = false;
  bool allow_containers = false;
  bool allow_nested = false;         ///< serve `sluice run` in the sandbox (app/nested.h)
  bool nested = false;               ///< this run was asked for from within a sandbox; with the two lists below
  int records_fd = -1;               ///< of such a run: where its records go besides (app/nested_records.h); -1: nowhere
  int rations_fd = -1;               ///< of such a run: what it shares with the outer one (app/nested_names.h); -1: nothing
  std::string outer_names;           ///< of such a run: a policy that lets out the names that the outer one does
  std::vector<std::string> protect;  ///< files that the outer run keeps its workload from writing
  std::vector<std::string> hide;     ///< files that it keeps its workload from reading
  std::vector<std::string> control;  ///< as PlanControl reads them
  bool await_hold = false;
  int policy_fd = -1;  ///< the policy in place of a file; -1: none
  int log_fd = -1;     ///< where Sluice's own lines go; -1: standard error
  bool verbose = false;
  std::vector<std::string> command;

  bool operator==(const RunOptions&) const = default;
};

/// "250ms", "30s", "5m", "2h"; a bare number is seconds. Nothing for anything else, zero, or more than 365 days.
[[nodiscard]] std::optional<std::chrono::milliseconds> ParseDuration(const std::string& text);

/// "1048576", "512KiB", "64MiB", "2GiB", "1TiB", and the same with one letter. Nothing for anything else, zero, or 2^60 and more.
[[nodiscard]] std::optional<uint64_t> ParseOctets(const std::string& text);

/// Takes over what the launch file that `options` names says: lists grow, a single value counts where no flag gave it, the
/// command too. Paths in the file are relative to its folder. Its `log-fd` counts from here on.
[[nodiscard]] Result<void> ReadLaunchFile(RunOptions* options);

/// The process's exit code. Blocks until the workload has ended.
[[nodiscard]] int Run(const RunOptions& options);

}  // namespace sluice::app
