#include "app/watched_names.h"

#include <deque>
#include <filesystem>
#include <system_error>

namespace sluice::app {
namespace {

constexpr int kMaxLinks = 40;  // as path_resolution(7) has it

// What is to be followed still, before what is there already.
void PutBefore(const std::filesystem::path& path, std::deque<std::string>* ahead) {
  std::deque<std::string> names;
  for (const std::filesystem::path& name : path.relative_path())
    if (!name.empty() && name != ".") names.push_back(name.string());
  ahead->insert(ahead->begin(), names.begin(), names.end());
}

}  // namespace

std::vector<WatchedName> NamesOnTheWay(const std::string& path) {
  std::vector<WatchedName> found;
  std::deque<std::string> ahead;
  PutBefore(path, &ahead);
  std::filesystem::path folder = "/";
  int links = 0;
  while (!ahead.empty()) {
    const std::string name = std::move(ahead.front());
    ahead.pop_front();
    if (name == "..") {
      folder = folder.parent_path();
      continue;
    }
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(folder / name, error);
    if (!error) {
      found.push_back({folder.string(), name, NameKind::kLink});
      if (++links > kMaxLinks) return found;
      if (target.is_absolute()) folder = "/";
      PutBefore(target, &ahead);
      continue;
    }
    if (ahead.empty() || !std::filesystem::exists(folder / name, error)) {
      found.push_back({folder.string(), name, NameKind::kEnd});
      return found;
    }
    found.push_back({folder.string(), name, NameKind::kFolder});
    folder /= name;
  }
  return found;
}

}  // namespace sluice::app
