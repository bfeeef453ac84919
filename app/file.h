#pragma once

// Whole small files, read, taken apart and replaced.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::app {

/// At most `limit` bytes; more is kExhausted.
[[nodiscard]] Result<std::string> ReadFile(const std::string& path, size_t limit = 16u << 20);

/// All of them, from where the file stands; `path` is for the error.
[[nodiscard]] Result<void> WriteAll(int fd, std::string_view bytes, const std::string& path);

/// A file of memory that holds this, and has a name for /proc alone (memfd_create(2)).
[[nodiscard]] Result<UniqueFd> WriteMemory(const char* name, std::string_view text);

/// What is left of it where the machine stops a moment later.
enum class Durability : uint8_t {
  kEither,  ///< the old file or the new one, or what the file system makes of it
  kNew,     ///< the new one
};
struct Replacement {
  std::string aside;  ///< in the same folder, and nobody else's: what is there goes
  mode_t mode = 0600;
  Durability durability = Durability::kNew;
};
/// In place whole or not at all, whoever looks; open to append to. An error leaves the old file as it was, unless all that failed
/// was to have the folder on the disk.
[[nodiscard]] Result<UniqueFd> ReplaceFile(const std::string& path, std::string_view text, const Replacement& how);
/// Whether ReplaceFile could, as far as can be seen without doing it.
[[nodiscard]] Result<void> CheckReplace(const std::string& path, const Replacement& how);
/// Whether another file can take the place of what stands there: neither a folder nor what is mounted by itself gives up its
/// name.
[[nodiscard]] Result<void> CheckPlace(const std::string& path);
/// Its names are on the disk.
[[nodiscard]] Result<void> SyncFolder(const std::string& folder);

/// Absolute and lexically normal, without asking the file system.
[[nodiscard]] std::string Absolute(const std::string& path);
/// Without their ends; a last line without one counts too.
[[nodiscard]] std::vector<std::string> SplitLines(std::string_view text);

}  // namespace sluice::app
