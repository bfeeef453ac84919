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
#include <utility>

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

// The same file of the same mount: a mount over it leads elsewhere.
bool IsSamePlace(int one, int other) {
  constexpr unsigned kWanted = STATX_INO | STATX_MNT_ID;
  struct statx first{};
  struct statx second{};
  for (const auto [fd, about] : {std::pair{one, &first}, {other, &second}})
    if (::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, kWanted, about) != 0 || (about->stx_mask & kWanted) != kWanted)
      return false;
  return first.stx_mnt_id == second.stx_mnt_id && first.stx_ino == second.stx_ino &&
         first.stx_dev_major == second.stx_dev_major && first.stx_dev_minor == second.stx_dev_minor;
}

// Both as the supervisor has them: the folder as seen from that root, where it lies in it.
std::string SeenFrom(const std::string& root, const std::string& folder) {
  if (root.size() < 2 || !folder.starts_with(root) || (folder.size() > root.size() && folder[root.size()] != '/')) return folder;
  return folder.size() == root.size() ? "/" : folder.substr(root.size());
}

// The caller's folder by its name, which is taken for the folder itself: that may lie outside of its root, or below a mount.
Result<std::string> FolderOf(const CallerThread& caller, int root) {
  std::string seen = SeenFrom(caller.Link("root"), caller.Link("cwd"));
  const UniqueFd there(::openat(caller.proc_fd(), "cwd", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!there) return Unknown(errno);
  const UniqueFd named = Look(root, seen, O_DIRECTORY, RESOLVE_NO_MAGICLINKS);
  if (!named) return Unknown(errno);
  if (!IsSamePlace(there.get(), named.get()))
    return Fail(Code::kIo, "where the calling process's folder lies cannot be found out");
  return seen;
}

}  // namespace

UniqueFd OpenBelow(int root, const std::string& path) { return Look(root, path, 0, RESOLVE_NO_MAGICLINKS); }

Result<CalledPlace> FindPlace(const CallerThread& caller, std::string name) {
  const int proc = caller.proc_fd();
  const UniqueFd root(Faulty("unix.root", [&] { return ::openat(proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC); }));
  if (!root) return Unknown(errno);
  if (!name.starts_with('/')) {
    const auto folder = FolderOf(caller, root.get());
    if (!folder) return std::unexpected(folder.error());
    // As it is: ".." behind a link is what the link leads to has above it.
    name = *folder + "/" + name;
  }
  CalledPlace place{.path = name, .file = OpenBelow(root.get(), name)};
  if (!place.file) {
    place.nowhere = errno;
    if (!IsNowhere(place.nowhere)) return Unknown(place.nowhere);
    if (auto checked = CheckNowhere(root.get(), name); !checked) return std::unexpected(checked.error());
    return place;
  }
  std::array<char, 4096> text;
  const std::string link = fmt::format("/proc/self/fd/{}", place.file.get());
  const ssize_t size = Faulty("unix.name", [&] { return ::readlink(link.c_str(), text.data(), text.size()); });
  if (size <= 0) return Unknown(errno);
  if (static_cast<size_t>(size) == text.size()) return Unknown(ENAMETOOLONG);
  place.path.assign(text.data(), static_cast<size_t>(size));
  return place;
}

}  // namespace sluice::supervisor
