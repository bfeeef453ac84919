#pragma once

// Whole small files, read and taken apart by the command-line program.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::app {

/// At most `limit` bytes; more is kExhausted.
[[nodiscard]] Result<std::string> ReadFile(const std::string& path, size_t limit = 16u << 20);
/// Absolute and lexically normal, without asking the file system.
[[nodiscard]] std::string Absolute(const std::string& path);
/// Without their ends; a last line without one counts too.
[[nodiscard]] std::vector<std::string> SplitLines(std::string_view text);

}  // namespace sluice::app
