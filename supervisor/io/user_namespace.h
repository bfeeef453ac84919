#pragma once

// Gives a process's new user namespace its maps, from outside.

#include <sys/types.h>

#include "base/result.h"

namespace sluice::supervisor {

/// Writes identity maps for the user namespace of `pid`, a child of the caller's: every id the caller's namespace has when
/// the caller may set ids there, else only the caller's own uid and gid. `pid` must be dumpable.
[[nodiscard]] Result<void> WriteIdentityMaps(pid_t pid);

/// What a failed CLONE_NEWUSER or CLONE_NEWNET means, for a person.
[[nodiscard]] Error NamespaceError(const char* what, int sys_errno);

}  // namespace sluice::supervisor
