#pragma once

// A container for the agent's self-test, without a container runtime: made, filtered and handed over as a runtime does it, with
// the notification descriptor sent over the agent's socket before the program starts.
//
//   auto printed = RunStagedContainer("/run/agent.sock", {"/usr/bin/true"}, 30s);

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::app {

/// Blocks until the program has ended; gives what it printed. kUnsupported: no namespaces may be made here; kPermission: the
/// agent did not let it start. Forks: one thread. The program is the first process of a process namespace of its own, sees this
/// process's files, and has no network but a loopback that is down.
[[nodiscard]] Result<std::string> RunStagedContainer(const std::string& agent, const std::vector<std::string>& argv,
                                                     std::chrono::milliseconds patience);

}  // namespace sluice::app
