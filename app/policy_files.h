#pragma once

// Which files of a folder a command reads. Hidden files and folders are passed over, and symlinks to folders are not followed:
// both are told on standard error. A file for `prove --accept` is no policy, wherever it lies.

#include <string>
#include <vector>

#include "base/result.h"

namespace sluice::app {

enum class FileKind : uint8_t {
  kPolicy,      ///< *.yaml and *.yml, but no unit tests
  kPolicyTest,  ///< *.test.yaml and *.test.yml
};

/// At most this many files of a folder.
inline constexpr size_t kMaxFolderFiles = 1000;

[[nodiscard]] bool IsFolder(const std::string& path);
[[nodiscard]] bool IsNameOf(FileKind kind, const std::string& path);

/// Whether it is what `prove --accept` reads: `accepted`, and nothing else but `version`. No policy has that key.
[[nodiscard]] bool IsAcceptances(const std::string& text, const std::string& name);

/// The same of a regular file; false where it cannot be read.
[[nodiscard]] bool HoldsAcceptances(const std::string& path);
/// Says so on standard error, where such a file was named itself, as by a hook that hands over what changed.
void TellAcceptances(const std::string& path);

/// Relative to the folder, sorted; none is no error.
[[nodiscard]] Result<std::vector<std::string>> FilesBelow(const std::string& folder, FileKind kind);
/// The path itself where it is no folder, or nothing where it holds acceptances; else the files below it, of which there must be
/// one.
[[nodiscard]] Result<std::vector<std::string>> FilesAt(const std::string& path, FileKind kind);

}  // namespace sluice::app
