#pragma once

// Files in a folder that the command is to see of which it is known that programs keep a login in them. A remark, no boundary: a
// secret in any other file is not found.

#include <string>
#include <vector>

namespace sluice::app {

/// Octets of such a file that are looked at.
inline constexpr size_t kMaxCredentialFile = size_t{64} << 10;

/// Their paths below `folder`, by known names and, where a file of that name often holds none (".git/config", ".npmrc"), by what
/// is in it. Follows no link.
[[nodiscard]] std::vector<std::string> FindSeenCredentials(const std::string& folder);

}  // namespace sluice::app
