#include "supervisor/io/caller_path.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

#include "base/fault.h"
#include "base/unique_fd.h"

namespace sluice::supervisor {
namespace {

constexpr int kMostLinks = 40;  // as the kernel follows

std::unexpected<Error> Unknown(int error) { return FailErrno("where the socket's path leads cannot be found out", error); }

bool IsNowhere(int error) { return error == ENOENT || error == ENOTDIR; }

// Not valid: errno says why.
UniqueFd Look(int root, const std::string& path, uint64_t flags, uint64_t resolve) {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC | flags;
  how.resolve = RESOLVE_IN_ROOT | resolve;
  const auto open = [&] { return ::syscall(SYS_openat2, root, path.c_str(), &how, sizeof how); };
  return UniqueFd(static_cast<int>(Faulty("unix.path", open)));
}

// A link's text. The kernel gives none of more than a page.
Result<std::string> TextOf(int link) {
  std::array<char, 4096> text;
  const ssize_t size = Faulty("unix.link", [&] { return ::readlinkat(link, "", text.data(), text.size()); });
  if (size < 0) return Unknown(errno);
  if (static_cast<size_t>(size) == text.size()) return Unknown(ENAMETOOLONG);
  return std::string(text.data(), static_cast<size_t>(size));
}

// Of a path that leads nowhere for this process: whether it does for that one as well, or comes to a link of /proc. One name
// after the other; `done` has no links.
Result<void> CheckNowhere(int root, std::string path) {
  std::string done;
  int links = 0;
  while (!path.empty()) {
    const size_t start = path.find_first_not_of('/');
    if (start == std::string::npos) break;
    const size_t end = std::min(path.find('/', start), path.size());
    const std::string name = path.substr(start, end - start);
    path.erase(0, end);
    if (name == ".") continue;
    if (name == "..") {
      done.erase(done.empty() ? 0 : done.rfind('/'));
      continue;
    }
    const std::string next = done + "/" + name;
    const UniqueFd file = Look(root, next, O_NOFOLLOW, RESOLVE_NO_MAGICLINKS);
    if (!file && IsNowhere(errno)) return {};
    struct stat about{};
    if (!file || ::fstat(file.get(), &about) != 0) return Unknown(errno);
    if (!S_ISLNK(about.st_mode)) {
      done = next;
      continue;
    }
    struct statfs system{};
    if (Faulty("unix.system", [&] { return ::fstatfs(file.get(), &system); }) != 0) return Unknown(errno);
    if (system.f_type == PROC_SUPER_MAGIC || ++links > kMostLinks) return Unknown(ELOOP);
    auto text = TextOf(file.get());
    if (!text) return std::unexpected(text.error());
    if (text->starts_with('/')) done.clear();
    path = *text + path;
  }
  // It was made meanwhile: the next call finds it.
  return Unknown(EAGAIN);
}

}  // namespace

Result<std::optional<std::string>> FollowPath(int proc, const std::string& path) {
  const UniqueFd root(Faulty("unix.root", [&] { return ::openat(proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC); }));
  if (!root) return Unknown(errno);
  const UniqueFd file = Look(root.get(), path, 0, RESOLVE_NO_MAGICLINKS);
  if (!file && !IsNowhere(errno)) return Unknown(errno);
  if (!file) {
    if (auto checked = CheckNowhere(root.get(), path); !checked) return std::unexpected(checked.error());
    return std::nullopt;
  }
  std::array<char, 4096> name;
  const std::string link = fmt::format("/proc/self/fd/{}", file.get());
  const ssize_t size = Faulty("unix.name", [&] { return ::readlink(link.c_str(), name.data(), name.size()); });
  if (size <= 0) return Unknown(errno);
  if (static_cast<size_t>(size) == name.size()) return Unknown(ENAMETOOLONG);
  return std::string(name.data(), static_cast<size_t>(size));
}

}  // namespace sluice::supervisor
