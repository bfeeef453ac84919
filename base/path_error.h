#pragma once

// Why a file, folder or socket that the user named cannot be had. One that this user may not have is another that should have
// been named, as one that is not there is: a mistake of who asks, where a full disk or a device that fails is none.

#include <string_view>

#include "base/result.h"

namespace sluice {

/// As SystemError, but kInvalid for what naming another path, or another mode of it, puts right.
[[nodiscard]] Error PathError(std::string_view what, int sys_errno);
[[nodiscard]] inline std::unexpected<Error> FailPath(std::string_view what, int sys_errno) {
  return std::unexpected(PathError(what, sys_errno));
}

}  // namespace sluice
