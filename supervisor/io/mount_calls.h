#pragma once

// The mount API by file descriptor: a mount is made detached, given its attributes, then put in its place.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::supervisor {

enum class CloneDepth : uint8_t { kOnlyThis, kRecursive };

/// A detached copy of the mount at `path`, not followed if a link.
[[nodiscard]] Result<UniqueFd> CloneTree(const std::string& path, CloneDepth depth);
/// A detached new file system: "tmpfs", "proc", "devpts".
[[nodiscard]] Result<UniqueFd> NewFileSystem(const char* type, std::initializer_list<std::pair<const char*, const char*>> options,
                                             uint64_t attributes);
/// Sets MOUNT_ATTR_* on a detached mount and all below it, and takes it out of propagation.
[[nodiscard]] Result<void> SetAttributes(int mount, uint64_t attributes, const std::string& what);
/// Puts a detached mount at `target`, which must exist.
[[nodiscard]] Result<void> Attach(int mount, const std::string& target);

}  // namespace sluice::supervisor
