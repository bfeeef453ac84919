#pragma once

// Which devices a fence is to stand on.

#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::supervisor {

/// Every device of this thread's network namespace but lo, sorted. An error, out of descriptors say: none is known to be gone.
[[nodiscard]] Result<std::vector<std::string>> NetworkDevices();

}  // namespace sluice::supervisor
