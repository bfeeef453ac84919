#include "app/held_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "supervisor/mount_plan.h"

namespace sluice::app {
namespace {

// Length of the innermost of `trees` that holds `path`; 0 where none does.
size_t Depth(const std::vector<std::string>& trees, const std::string& path) {
  size_t depth = 0;
  for (const std::string& tree : trees)
    if (supervisor::IsWithin(path, tree)) depth = std::max(depth, tree.size());
  return depth;
}

Result<void> Replaced(const std::string& path) {
  return Fail(Code::kPermission,
              fmt::format("{} was replaced or added where the command may write, and the command may have written it since: "
                          "read it before you start again; to reload, edit it in place or keep it outside",
                          path));
}

}  // namespace

HeldFiles::HeldFiles(std::span<const std::string> files, const supervisor::LaunchSpec& spec)
    : files_(files.begin(), files.end()), read_write_(spec.read_write), read_only_(spec.read_only) {
  std::ranges::sort(files_);
  read_write_.push_back(spec.work_directory);
  for (const std::string& path : files)
    if (Writable(path)) held_.push_back({path, UniqueFd(::open(path.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW))});
}

// The innermost grant decides, and of two of the same folder the read-only one, as in the view.
bool HeldFiles::Writable(const std::string& path) const {
  const size_t depth = Depth(read_write_, path);
  return depth > 0 && depth > Depth(read_only_, path);
}

// Whether a tree that the workload may write lies in a folder of the policy, or a folder of the policy in such a tree.
bool HeldFiles::NearWritable() const {
  return std::ranges::any_of(files_, [&](const std::string& file) {
    const std::string folder = file.substr(0, file.rfind('/'));
    return std::ranges::any_of(read_write_, [&](const std::string& tree) {
      return supervisor::IsWithin(folder, tree) || supervisor::IsWithin(tree, folder);
    });
  });
}

bool HeldFiles::IsHeld(const std::string& path) const {
  struct stat now{};
  struct stat then{};
  return ::lstat(path.c_str(), &now) == 0 && std::ranges::any_of(held_, [&](const Held& held) {
           return held.path == path && held.file && ::fstat(held.file.get(), &then) == 0 && now.st_dev == then.st_dev &&
                  now.st_ino == then.st_ino;
         });
}

Result<void> HeldFiles::CheckHeld() const {
  for (const Held& held : held_)
    if (!IsHeld(held.path)) return Replaced(held.path);
  return {};
}

Result<void> HeldFiles::Check(std::span<const std::string> files) const {
  for (const std::string& path : files)
    if (Writable(path) && !IsHeld(path)) return Replaced(path);
  std::vector<std::string> sorted(files.begin(), files.end());
  std::ranges::sort(sorted);
  if (NearWritable() && sorted != files_)
    return Fail(Code::kPermission,
                "it is made of other files than at the start, and the command may write in their folders: start again to use it");
  return {};
}

}  // namespace sluice::app
