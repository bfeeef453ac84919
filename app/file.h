#pragma once

// Whole small files, read and written by the command-line program.

#include <string>

#include "base/result.h"

namespace sluice::app {

/// At most `limit` bytes; more is kExhausted.
[[nodiscard]] Result<std::string> ReadFile(const std::string& path, size_t limit = 16u << 20);
/// Creates `path`, for its owner, where nothing is there. Whoever opens it next says what stood in the way.
void CreateFile(const std::string& path);
/// Absolute and lexically normal, without asking the file system.
[[nodiscard]] std::string Absolute(const std::string& path);

}  // namespace sluice::app
