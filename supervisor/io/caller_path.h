#pragma once

// Where a path leads for another process, the links on its way followed as the kernel would follow them for it. What cannot be
// followed in its place is an error, and never taken for a path that leads nowhere: so are the links of /proc, which lead past
// names, and of which "self" is another process for whoever looks.

#include <optional>
#include <string>

#include "base/result.h"

namespace sluice::supervisor {

/// `proc`: the process's folder in /proc; `path`: absolute. Nothing where it leads nowhere. Any thread; does not block.
[[nodiscard]] Result<std::optional<std::string>> FollowPath(int proc, const std::string& path);

}  // namespace sluice::supervisor
