#pragma once

// A number that this process has and no copy of it: after fork(2) the child has another, also where it gets the number of a
// process that is gone, which a process id does not tell.

#include <cstdint>

#include "base/result.h"

namespace sluice {

/// Never 0; the same for the process's life. Any thread. An error: the kernel has no memory left, or none that it wipes on fork
/// (MADV_WIPEONFORK, 4.14).
[[nodiscard]] Result<uint64_t> ProcessMark();

}  // namespace sluice
