#pragma once

// What to say of a command that the workload's view lacks but the host has.

#include <string>
#include <string_view>

namespace sluice::supervisor {

/// The tree to grant so that `executable` can run: the folder above bin/, sbin/, shims/ or the like, unless that is the home
/// folder or the root itself, which nobody should grant to run one program.
[[nodiscard]] std::string TreeToGrant(std::string_view executable, std::string_view home);

/// "exists at P, which the sandbox cannot see; add --ro T".
[[nodiscard]] std::string HiddenCommandHint(std::string_view executable, std::string_view home);

}  // namespace sluice::supervisor
