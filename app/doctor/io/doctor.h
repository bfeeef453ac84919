#pragma once

// `sluice doctor`: what this machine can enforce, found by trying it.

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace sluice::app {

struct DoctorOptions {
  std::vector<std::string> modes;  ///< empty: all are looked at, and `run` is judged
  std::string format = "text";
  bool no_live = false;  ///< no self-tests, and no programs
  std::string inside;    ///< what the self-tests start this program with
};

/// 0, or the exit code of the first feature that is missing (docs/doctor.md). Before any thread exists.
[[nodiscard]] int RunDoctor(const DoctorOptions& options);

/// Adds the command.
[[nodiscard]] std::pair<CLI::App*, std::function<int()>> AddDoctor(CLI::App& app);

}  // namespace sluice::app
