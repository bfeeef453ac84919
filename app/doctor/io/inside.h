#pragma once

// What a self-test does at the workload's place: the connect that is let through, those that must be refused, and the programs of
// PATH that are to believe the sandbox's authority. It is this program again, started by `sluice doctor` under `sluice run`.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/doctor/report.h"

namespace sluice::app {

/// What came of the attempts, in a line for each: "allowed ok", "denied refused EACCES". What does not parse is nothing.
struct SeenInside {
  bool allowed = false;
  bool denied = false;
  std::string detail{};  ///< what did not go as it must
};
[[nodiscard]] SeenInside ParseSeen(std::string_view lines);

/// Attempts of a workload whose namespace captures or fences it. Whether the loopback is its own: then the server, which listens
/// on the host's, must not answer there. Gives lines for ParseSeen.
enum class Loopback : uint8_t { kOwn, kShared };
[[nodiscard]] std::string TryFromInside(uint16_t port, Loopback loopback);

/// The same of a client of a proxy that listens at the UNIX socket `path`.
[[nodiscard]] std::string TryThroughProxy(const std::string& path, uint16_t port);

/// The programs that are looked for, in the order of the report.
[[nodiscard]] std::vector<std::string> RuntimeNames();
/// Those that `path` (PATH) names.
[[nodiscard]] std::vector<Runtime> FindRuntimes(const std::string& path);
/// Runs each on https://seen.doctor.test:port/, from the work directory; a line of JSON for each, for ParseRuntime.
[[nodiscard]] std::string TryRuntimes(uint16_t port);
[[nodiscard]] std::vector<Runtime> ParseRuntimes(std::string_view lines);

/// `--inside TASK:PORT`: does it and prints the lines. The process's exit code.
[[nodiscard]] int RunInside(const std::string& task);

}  // namespace sluice::app
