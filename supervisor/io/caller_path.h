#pragma once

// Where a path leads for another process, the links on its way followed as the kernel would follow them for it. What cannot be
// followed in its place is an error, and never taken for a path that leads nowhere: so are the links of /proc, which lead past
// names, and of which "self" is another process for whoever looks.

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "supervisor/io/process_identity.h"

namespace sluice::supervisor {

struct CalledPlace {
  std::string path;  ///< as the caller's view has it
  UniqueFd file;     ///< a path to it (O_PATH)
  int nowhere = 0;   ///< it leads nowhere: ENOENT or ENOTDIR
};

/// `name` is taken from the caller's folder where it is not absolute. Any thread; does not block.
[[nodiscard]] Result<CalledPlace> FindPlace(const CallerThread& caller, std::string name);
/// In the view that has this root, itself included.
[[nodiscard]] UniqueFd OpenBelow(int root, const std::string& path);

}  // namespace sluice::supervisor
