#pragma once

// Whole reads and writes of the small files that /proc and /sys are made of.

#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice::supervisor {

/// Bytes ReadSmallFile reads at most where nothing else is said; a longer file is an error.
inline constexpr size_t kMaxSmallFile = 64 * 1024;

/// The mounts of a host that runs containers, each of which may list its layers.
inline constexpr size_t kMaxMountinfo = 16 * 1024 * 1024;

[[nodiscard]] Result<std::string> ReadSmallFile(const std::string& path, size_t limit = kMaxSmallFile);
/// One open and one write, as /proc wants it. The file must exist.
[[nodiscard]] Result<void> WriteSmallFile(const std::string& path, std::string_view content);

}  // namespace sluice::supervisor
