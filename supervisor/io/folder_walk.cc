#include "supervisor/io/folder_walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/unique_fd.h"
#include "supervisor/io/launch_facts.h"

namespace sluice::supervisor {
namespace {

struct KernelEntry {  // struct linux_dirent64
  uint64_t inode;
  int64_t offset;
  uint16_t size;
  uint8_t type;
};

uint8_t TypeOf(int folder, const char* name) {
  struct stat about{};
  if (::fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) != 0) return DT_UNKNOWN;
  return IFTODT(about.st_mode);
}

}  // namespace

Result<void> FolderWalk::Walk(const std::string& root) {
  std::vector<std::string> pending = {root};
  while (!pending.empty()) {
    const std::string folder = std::move(pending.back());
    pending.pop_back();
    if (auto read = ReadFolder(folder, pending); !read) return read;
  }
  return {};
}

Result<void> FolderWalk::ReadFolder(const std::string& folder, std::vector<std::string>& pending) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return errno == EMFILE || errno == ENFILE ? Result<void>(FailErrno("scanning " + folder, errno)) : Result<void>();
  if (static_cast<size_t>(std::ranges::count(folder, '/')) > kMaxScanDepth)
    return Fail(Code::kExhausted, fmt::format("{} is deeper than {} folders", folder, kMaxScanDepth));
  while (true) {
    const long got = ::syscall(SYS_getdents64, fd.get(), buffer_.data(), buffer_.size());
    if (got < 0) return FailErrno(fmt::format("cannot read {}", folder), errno);
    if (got == 0) return {};
    for (long at = 0; at < got;) {
      KernelEntry entry{};
      std::memcpy(&entry, buffer_.data() + at, sizeof entry);
      const char* name = buffer_.data() + at + offsetof(dirent64, d_name);
      at += entry.size;
      if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0) continue;
      const uint8_t type = entry.type == DT_UNKNOWN ? TypeOf(fd.get(), name) : entry.type;
      if (auto seen = See({.folder = fd.get(), .folder_path = folder, .name = name, .type = type}, pending); !seen) return seen;
    }
  }
}

Result<void> FolderWalk::See(const FolderEntry& entry, std::vector<std::string>& pending) {
  if (++seen_ > kMaxScannedEntries)
    return Fail(Code::kExhausted, fmt::format("{} hold more than {} entries, too many to look for sockets in; grant a "
                                              "smaller tree (reached {})",
                                              what_, kMaxScannedEntries, entry.folder_path));
  auto descend = visitor_(entry);
  if (!descend) return std::unexpected(descend.error());
  if (*descend == Descend::kYes && entry.type == DT_DIR) pending.push_back(entry.path());
  return {};
}

}  // namespace sluice::supervisor
