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

}  // namespace

HeldFiles::HeldFiles(std::span<const std::string> files, const supervisor::LaunchSpec& spec)
    : read_write_(spec.read_write), read_only_(spec.read_only) {
  read_write_.push_back(spec.work_directory);
  for (const std::string& path : files)
    if (Writable(path)) held_.push_back({path, UniqueFd(::open(path.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW))});
}

// The innermost grant decides, and of two of the same folder the read-only one, as in the view.
bool HeldFiles::Writable(const std::string& path) const {
  const size_t depth = Depth(read_write_, path);
  return depth > 0 && depth > Depth(read_only_, path);
}

bool HeldFiles::IsHeld(const std::string& path) const {
  struct stat now{};
  struct stat then{};
  return ::stat(path.c_str(), &now) == 0 && std::ranges::any_of(held_, [&](const Held& held) {
           return held.path == path && held.file && ::fstat(held.file.get(), &then) == 0 && now.st_dev == then.st_dev &&
                  now.st_ino == then.st_ino;
         });
}

Result<void> HeldFiles::Check(std::span<const std::string> files) const {
  for (const std::string& path : files)
    if (Writable(path) && !IsHeld(path))
      return Fail(Code::kPermission,
                  fmt::format("{} was replaced or added where the command may write, and the command may have written it since: "
                              "read it before you start again; to reload, edit it in place or keep it outside",
                              path));
  return {};
}

}  // namespace sluice::app
