#pragma once

// What a descriptor holds, from where it stands.

#include <cstddef>
#include <string>

#include "base/result.h"

namespace sluice {

/// At most `limit` octets; more is kExhausted. Takes no more memory than about twice what is there. `path` is for the error.
[[nodiscard]] Result<std::string> ReadToEnd(int fd, size_t limit, const std::string& path);

}  // namespace sluice
