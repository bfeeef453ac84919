#pragma once

// A tree of the host seen through a read-only overlay. A socket or FIFO is found by its inode, and the overlay has inodes of its
// own: whoever connects through it reaches nobody, also where the host binds the socket later, and however the call that names
// it is made. What is read goes through the rights of whoever mounted it.

#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "supervisor/io/tree_scan.h"

namespace sluice::supervisor {

/// A detached mount of the shield over `tree`, a mounted folder; `empty` is an empty folder. For a thread that has all
/// capabilities over its user and mount namespaces. Fails where this kernel has no overlays, where other mounts lie below
/// `tree`, or where the user namespace has no ids to take for Reader::kOthers.
[[nodiscard]] Result<UniqueFd> ShieldTree(const std::string& tree, const std::string& empty, Reader reader);

}  // namespace sluice::supervisor
