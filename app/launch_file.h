#pragma once

// A launch as a file: what `sluice run` is to run, where, under which policy and limits, as launchers write it. Strict JSON
// (RFC 8259): a member that is not known, given twice or of another type is an error that names line and column. What is not
// said is as with `sluice run` without the flag of that name. packaging/schema/launch.schema.json describes the same;
// docs/launch.md is for people. Pure.
//
//   {"version": 1, "command": ["make", "test"], "workspace": "/srv/job-7", "policy": {"file": "policy.yaml"},
//    "limits": {"wall-time": "10m", "memory": "2GiB"}, "result": "result.json"}

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::app {

/// Octets of a launch file, and JSON values in it; more is an error.
inline constexpr size_t kMaxLaunchFile = size_t{1} << 20;
inline constexpr size_t kMaxLaunchValues = 20'000;

/// Each member is empty, or false, where the file does not have it. Paths are as they were written.
struct LaunchFile {
  std::vector<std::string> command;
  std::string workspace;
  std::string cwd;
  std::vector<std::string> read_write;
  std::vector<std::string> read_only;

  std::string environment_inherit;  ///< "usual" or "none"
  std::vector<std::string> environment_pass;
  std::map<std::string, std::string> environment_set;
  std::vector<std::string> environment_unsafe;  ///< names that look like credentials and are passed on all the same

  std::string policy;
  std::optional<uint64_t> policy_fd;
  std::vector<std::string> allow;
  std::vector<std::string> presets;
  std::string audit;

  std::string name;
  std::map<std::string, std::string> labels;

  std::string wall_time;  ///< as --timeout
  std::string memory;     ///< as --max-memory; a number of octets is kept as its digits
  std::optional<uint64_t> processes;
  std::optional<uint64_t> open_files;
  std::string output;  ///< as --max-output

  std::vector<std::string> publish;
  std::string transcript;
  std::string result;
  std::optional<uint64_t> lifeline;
  std::string on_disconnect;  ///< "kill" or "freeze"
  bool fail_on_deny = false;
  bool kill_on_deny = false;
  bool allow_user_namespaces = false;
  bool allow_containers = false;
  bool allow_nested = false;
  bool quiet = false;
  bool verbose = false;
  std::optional<uint64_t> log_fd;
  std::vector<std::string> control;
  bool await_hold = false;

  std::vector<std::string> resolvers;
  std::vector<std::string> stub_domains;
  std::vector<std::string> upstream_ca;
  std::string ca_cert;
  std::string ca_key;
  bool mirror_certificates = false;
  std::string via;
  std::string via_auth;
  std::string via_ca;
  std::vector<std::string> via_except;

  bool operator==(const LaunchFile&) const = default;
};

/// `name` stands for the text in errors.
[[nodiscard]] Result<LaunchFile> ParseLaunchFile(std::string_view text, const std::string& name);

/// The members of the file as "policy.file", for the schema's test.
[[nodiscard]] std::vector<std::string> LaunchFileMembers();

}  // namespace sluice::app
