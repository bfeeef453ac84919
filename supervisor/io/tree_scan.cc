#include "supervisor/io/tree_scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <string_view>

#include "base/unique_fd.h"
#include "supervisor/io/launch_facts.h"

namespace sluice::supervisor {
namespace {

// git runs these, or runs what they name, when the user next types a command in the repository.
bool IsGitControl(std::string_view name) { return name == "hooks" || name == "config" || name == "config.worktree"; }

// A protected file that has more than one name: another one, in a granted tree, would stay writable whatever is mounted over it.
struct Linked {
  std::string path;
  dev_t device = 0;
  ino_t inode = 0;
};

std::vector<Linked> FilesOfSeveralNames(const std::vector<std::string>& protect) {
  std::vector<Linked> linked;
  for (const std::string& path : protect) {
    struct stat file{};
    if (::stat(path.c_str(), &file) == 0 && S_ISREG(file.st_mode) && file.st_nlink > 1)
      linked.push_back({path, file.st_dev, file.st_ino});
  }
  return linked;
}

class Scanner {
 public:
  Scanner(HostFacts& facts, const LaunchSpec& resolved, std::set<std::string> roots)
      : facts_(facts), linked_(FilesOfSeveralNames(resolved.protect)), roots_(std::move(roots)), buffer_(64 * 1024) {}

  Result<void> Walk(const std::string& root) {
    std::vector<std::string> pending = {root};
    while (!pending.empty()) {
      const std::string folder = std::move(pending.back());
      pending.pop_back();
      if (auto read = ReadFolder(folder, pending); !read) return read;
    }
    return {};
  }

 private:
  struct Kernel {  // struct linux_dirent64
    uint64_t inode;
    int64_t offset;
    uint16_t size;
    uint8_t type;
  };

  Result<void> ReadFolder(const std::string& folder, std::vector<std::string>& pending) {
    const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    // What this user cannot read or enter, the workload cannot either.
    if (!fd) return errno == EMFILE || errno == ENFILE ? Result<void>(FailErrno("scanning " + folder, errno)) : Result<void>();
    if (static_cast<size_t>(std::ranges::count(folder, '/')) > kMaxScanDepth)
      return Fail(Code::kExhausted, fmt::format("{} is deeper than {} folders", folder, kMaxScanDepth));
    while (true) {
      const long got = ::syscall(SYS_getdents64, fd.get(), buffer_.data(), buffer_.size());
      if (got < 0) return FailErrno(fmt::format("cannot read {}", folder), errno);
      if (got == 0) return {};
      for (long at = 0; at < got;) {
        Kernel entry{};
        std::memcpy(&entry, buffer_.data() + at, sizeof entry);
        const char* name = buffer_.data() + at + offsetof(dirent64, d_name);
        at += entry.size;
        if (auto seen = See(fd.get(), folder, name, entry.type, pending); !seen) return seen;
      }
    }
  }

  Result<void> See(int fd, const std::string& folder, std::string_view name, uint8_t type, std::vector<std::string>& pending) {
    if (name == "." || name == "..") return {};
    if (++seen_ > kMaxScannedEntries)
      return Fail(Code::kExhausted,
                  fmt::format("the granted trees hold more than {} entries, too many to look for sockets in; grant a "
                              "smaller tree (reached {})",
                              kMaxScannedEntries, folder));
    if (type == DT_UNKNOWN) type = TypeOf(fd, name);
    if (type == DT_REG && !linked_.empty()) {
      if (auto alone = RefuseSecondName(fd, folder, name); !alone) return alone;
    }
    if (type == DT_REG && !IsGitControl(name)) return {};
    if (type == DT_LNK) return {};
    std::string path = folder + "/" + std::string(name);
    if (type == DT_SOCK || type == DT_FIFO) return Found(facts_.sockets, std::move(path));
    if (IsGitControl(name) && InGitFolder(folder))
      return Found(
          facts_.run_later,
          HostEntry{.path = std::move(path), .kind = type == DT_DIR ? EntryKind::kDirectory : EntryKind::kFile, .link = {}});
    // A granted tree below this one is walked on its own.
    if (type == DT_DIR && !roots_.contains(path)) pending.push_back(std::move(path));
    return {};
  }

  Result<void> RefuseSecondName(int fd, const std::string& folder, std::string_view name) const {
    struct stat about{};
    if (::fstatat(fd, name.data(), &about, AT_SYMLINK_NOFOLLOW) != 0) return {};
    for (const Linked& file : linked_) {
      if (about.st_dev != file.device || about.st_ino != file.inode) continue;
      const std::string path = fmt::format("{}/{}", folder, name);
      if (path != file.path)
        return Fail(Code::kInvalid,
                    fmt::format("{} is the same file as {} (a hard link), which the workload must not write: remove one of them",
                                path, file.path));
    }
    return {};
  }

  // .git itself, a submodule's or a worktree's folder below it, or a bare repository by its name.
  static bool InGitFolder(std::string_view folder) {
    return folder.ends_with("/.git") || folder.find("/.git/modules/") != std::string_view::npos ||
           folder.find("/.git/worktrees/") != std::string_view::npos || folder.ends_with(".git");
  }

  static uint8_t TypeOf(int fd, std::string_view name) {
    struct stat about{};
    if (::fstatat(fd, name.data(), &about, AT_SYMLINK_NOFOLLOW) != 0) return DT_UNKNOWN;
    return IFTODT(about.st_mode);
  }

  template <class T>
  static Result<void> Found(std::vector<T>& list, T item) {
    if (list.size() == kMaxFound)
      return Fail(Code::kExhausted,
                  fmt::format("more than {} sockets, or more than {} git controls, in the granted trees", kMaxFound, kMaxFound));
    list.push_back(std::move(item));
    return {};
  }

  HostFacts& facts_;
  const std::vector<Linked> linked_;
  const std::set<std::string> roots_;
  std::vector<char> buffer_;
  size_t seen_ = 0;
};

void LookAtHome(const LaunchSpec& spec, HostFacts& facts) {
  const auto home = std::ranges::find(spec.environment, "HOME", &std::pair<std::string, std::string>::first);
  if (home == spec.environment.end()) return;
  for (const std::string& name : RunLaterHomePaths()) {
    const std::string path = home->second + "/" + name;
    struct stat about{};
    if (::lstat(path.c_str(), &about) != 0 || S_ISLNK(about.st_mode)) continue;
    facts.run_later.push_back(
        {.path = path, .kind = S_ISDIR(about.st_mode) ? EntryKind::kDirectory : EntryKind::kFile, .link = {}});
  }
}

}  // namespace

Result<void> ScanTrees(const LaunchSpec& resolved, HostFacts& facts) {
  std::set<std::string> roots(resolved.read_write.begin(), resolved.read_write.end());
  roots.insert(resolved.read_only.begin(), resolved.read_only.end());
  roots.insert(resolved.work_directory);
  Scanner scanner(facts, resolved, roots);
  for (const std::string& root : roots)
    if (auto walked = scanner.Walk(root); !walked) return walked;
  LookAtHome(resolved, facts);
  return {};
}

}  // namespace sluice::supervisor
