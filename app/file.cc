#include "app/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/path_error.h"
#include "base/read_to_end.h"

namespace sluice::app {
namespace {

Result<UniqueFd> OpenAside(const std::string& path, const Replacement& how) {
  if (auto free = CheckPlace(path); !free) return std::unexpected(free.error());
  // Left by a process that ended in the midst of it, or put there for this one to write through.
  ::unlink(how.aside.c_str());
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd file(::open(how.aside.c_str(), flags, how.mode));
  if (!file) return FailPath(fmt::format("cannot write beside {}", path), errno);
  return file;
}

}  // namespace

Result<std::string> ReadFile(const std::string& path, size_t limit) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd) return FailPath(fmt::format("cannot open {}", path), errno);
  return ReadToEnd(fd.get(), limit, path);
}

Result<void> WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return FailErrno(fmt::format("cannot write {}", path), errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Result<UniqueFd> WriteMemory(const char* name, std::string_view text) {
  UniqueFd file(::memfd_create(name, MFD_CLOEXEC));
  if (!file) return FailErrno("cannot make a file in memory", errno);
  if (auto written = WriteAll(file.get(), text, name); !written) return std::unexpected(written.error());
  return file;
}

Result<void> SyncFolder(const std::string& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return FailErrno(fmt::format("cannot write {}", folder), errno);
  return {};
}

Result<void> CheckPlace(const std::string& path) {
  struct statx about{};
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &about) != 0) return {};
  if (S_ISDIR(about.stx_mode)) return FailPath(fmt::format("cannot write {}", path), EISDIR);
  if ((about.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0) return {};
  return Fail(
      Code::kInvalid,
      fmt::format("cannot write {}: it is mounted by itself, and no other file can take its place: mount its folder", path));
}

Result<void> CheckReplace(const std::string& path, const Replacement& how) {
  const auto file = OpenAside(path, how);
  if (!file) return std::unexpected(file.error());
  ::unlink(how.aside.c_str());
  return {};
}

Result<UniqueFd> ReplaceFile(const std::string& path, std::string_view text, const Replacement& how) {
  auto opened = OpenAside(path, how);
  if (!opened) return std::unexpected(opened.error());
  UniqueFd file = *std::move(opened);
  const bool durable = how.durability == Durability::kNew;
  auto replaced = WriteAll(file.get(), text, path);
  (void)::fchmod(file.get(), how.mode);  // whatever the process's mask is
  if (replaced && ((durable && ::fsync(file.get()) != 0) || ::rename(how.aside.c_str(), path.c_str()) != 0))
    replaced = FailPath(fmt::format("cannot write {}", path), errno);
  if (!replaced) {
    ::unlink(how.aside.c_str());
    return std::unexpected(replaced.error());
  }
  if (durable)
    if (auto synced = SyncFolder(std::filesystem::absolute(path).parent_path().string()); !synced)
      return std::unexpected(synced.error());
  return file;
}

std::string Absolute(const std::string& path) {
  std::error_code ignored;
  std::string absolute = std::filesystem::absolute(path, ignored).lexically_normal().string();
  if (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
  return absolute;
}

std::vector<std::string> SplitLines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace sluice::app
