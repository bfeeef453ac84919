#pragma once

// Whole small files, read and written by the command-line program.

#include <string>

#include "base/result.h"

namespace sluice::app {

/// At most `limit` bytes; more is kExhausted.
[[nodiscard]] Result<std::string> ReadFile(const std::string& path, size_t limit = 16u << 20);
/// Absolute and lexically normal, without asking the file system.
[[nodiscard]] std::string Absolute(const std::string& path);

}  // namespace sluice::app
