#pragma once

// Which sockets of the host the `unix` rules of a policy name, found once at start: the workload's view holds these alone.

#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::app {

/// From a socket's real path to the path by which a rule names it (/run/x.sock to /var/run/x.sock).
using HostSockets = std::map<std::string, std::string>;

/// `globs` as Snapshot::UnixPaths gives them. A glob that finds nothing is no error: the service may not be there. Blocks on the
/// file system; looks at no more than kMaxSocketEntries entries (kExhausted) and finds no more than kMaxHostSockets.
[[nodiscard]] Result<HostSockets> FindHostSockets(const std::vector<std::string>& globs);

inline constexpr size_t kMaxSocketEntries = 100'000;
inline constexpr size_t kMaxHostSockets = 256;

}  // namespace sluice::app
