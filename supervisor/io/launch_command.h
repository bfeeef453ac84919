#pragma once

// The last process of a start-up: gives up everything, installs the filter, waits for the supervisor's go-ahead, executes.

#include <array>

#include "base/result.h"
#include "supervisor/io/launch_child.h"

namespace sluice::supervisor {

/// `standard`: the descriptors that become 0 to 2. Never returns.
[[noreturn]] void RunCommand(const SandboxPlan& plan, const std::array<int, 3>& standard);

}  // namespace sluice::supervisor
