#include "app/policy_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace sluice::app {

namespace fs = std::filesystem;

bool IsFolder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool IsNameOf(FileKind kind, const std::string& path) {
  const bool test = path.ends_with(".test.yaml") || path.ends_with(".test.yml");
  if (kind == FileKind::kPolicyTest) return test;
  return !test && (path.ends_with(".yaml") || path.ends_with(".yml"));
}

Result<std::vector<std::string>> FilesBelow(const std::string& folder, FileKind kind) {
  std::vector<std::string> files;
  std::error_code error;
  std::error_code ignored;
  fs::recursive_directory_iterator it(folder, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with('.')) {
      it.disable_recursion_pending();
      continue;
    }
    if (!IsNameOf(kind, name)) continue;
    // A link that leads nowhere is kept, so that reading it says so.
    if (!it->is_regular_file(ignored) && !it->is_symlink(ignored)) continue;
    if (it->is_directory(ignored)) continue;
    if (files.size() >= kMaxFolderFiles)
      return Fail(Code::kExhausted, fmt::format("{} holds more than {} files to read", folder, kMaxFolderFiles));
    files.push_back(it->path().lexically_relative(folder).string());
  }
  if (error) return Fail(Code::kInvalid, fmt::format("cannot read the folder {}: {}", folder, error.message()));
  std::sort(files.begin(), files.end());
  return files;
}

Result<std::vector<std::string>> FilesAt(const std::string& path, FileKind kind) {
  if (!IsFolder(path)) return std::vector<std::string>{path};
  auto below = FilesBelow(path, kind);
  if (!below) return below;
  if (below->empty())
    return Fail(Code::kInvalid, kind == FileKind::kPolicy ? fmt::format("{} holds no policy (*.yaml, *.yml)", path)
                                                          : fmt::format("{} holds no policy test (*.test.yaml)", path));
  for (std::string& file : *below) file = (fs::path(path) / file).string();
  return below;
}

}  // namespace sluice::app
