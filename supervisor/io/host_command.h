#pragma once

// Looks for a command on the host, to explain why the view lacks it.

#include <optional>
#include <string>

#include "supervisor/launch_spec.h"

namespace sluice::supervisor {

/// Where the host has `spec`'s command, by the PATH of its environment; a link is followed when its own place is visible.
[[nodiscard]] std::optional<std::string> FindOnHost(const LaunchSpec& resolved);

/// An environment variable of the spec; empty where it is not there.
[[nodiscard]] std::string VariableOf(const LaunchSpec& spec, std::string_view name);

}  // namespace sluice::supervisor
