#pragma once

// The subcommands that need policies alone, as the command line spells them: flags into option structs, and what runs then.

#include <functional>
#include <vector>

namespace CLI {
class App;
}

namespace sluice::app {

struct Command {
  const CLI::App* app = nullptr;
  std::function<int()> run;  ///< gives the exit code
};

/// Adds them to `app`; the option structs live as long as the functions do.
[[nodiscard]] std::vector<Command> AddPolicyCommands(CLI::App& app);

}  // namespace sluice::app
