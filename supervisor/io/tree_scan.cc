#include "supervisor/io/tree_scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "supervisor/io/folder_walk.h"
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

// Room for one more.
template <class T>
Result<void> Add(std::vector<T>& list, T item) {
  if (list.size() == kMaxFound)
    return Fail(Code::kExhausted, fmt::format("more than {} sockets, git controls or hidden files in one view", kMaxFound));
  list.push_back(std::move(item));
  return {};
}

Result<Descend> Then(Result<void> done, Descend next) { return done ? Result<Descend>(next) : std::unexpected(done.error()); }

class Scanner {
 public:
  Scanner(HostFacts& facts, const LaunchSpec& resolved, std::set<std::string> roots)
      : facts_(facts),
        linked_(FilesOfSeveralNames(resolved.protect)),
        roots_(std::move(roots)),
        walk_("the granted trees", [this](const FolderEntry& entry) { return See(entry); }) {}

  Result<void> Walk(const std::string& root) { return walk_.Walk(root); }

 private:
  Result<Descend> See(const FolderEntry& entry) {
    if (entry.type == DT_REG && !linked_.empty()) {
      if (auto alone = RefuseSecondName(entry); !alone) return std::unexpected(alone.error());
    }
    if (entry.type == DT_SOCK || entry.type == DT_FIFO) return Then(Add(facts_.sockets, entry.path()), Descend::kNo);
    if (entry.type != DT_REG && entry.type != DT_DIR) return Descend::kNo;
    if (IsGitControl(entry.name) && InGitFolder(entry.folder_path)) {
      const EntryKind kind = entry.type == DT_DIR ? EntryKind::kDirectory : EntryKind::kFile;
      return Then(Add(facts_.run_later, HostEntry{.path = entry.path(), .kind = kind, .link = {}}), Descend::kNo);
    }
    // A granted tree below this one is walked on its own.
    return entry.type == DT_DIR && !roots_.contains(entry.path()) ? Descend::kYes : Descend::kNo;
  }

  Result<void> RefuseSecondName(const FolderEntry& entry) const {
    struct stat about{};
    if (::fstatat(entry.folder, entry.name.data(), &about, AT_SYMLINK_NOFOLLOW) != 0) return {};
    for (const Linked& file : linked_) {
      if (about.st_dev != file.device || about.st_ino != file.inode) continue;
      const std::string path = entry.path();
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

  HostFacts& facts_;
  const std::vector<Linked> linked_;
  const std::set<std::string> roots_;
  FolderWalk walk_;
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

Reader ReaderOf(const std::string& tree) {
  struct stat about{};
  const bool owned_by_root = ::stat(tree.c_str(), &about) != 0 || about.st_uid == 0;
  return ::geteuid() == 0 && owned_by_root ? Reader::kOthers : Reader::kSelf;
}

bool MayRead(Reader reader, const struct stat& about) {
  if (reader == Reader::kSelf || S_ISLNK(about.st_mode)) return true;
  const mode_t needed = S_ISDIR(about.st_mode) ? S_IROTH | S_IXOTH : S_IROTH;
  return (about.st_mode & needed) == needed;
}

Result<std::vector<std::string>> FindHidden(const std::string& tree, Reader reader, const std::vector<std::string>& needed) {
  std::vector<std::string> found;
  std::set<std::string> closed;  // folders that the reader may not enter but that lead to something needed
  FolderWalk walk(tree, [&](const FolderEntry& entry) -> Result<Descend> {
    if (entry.type == DT_DIR && std::ranges::find(needed, entry.path()) != needed.end()) return Descend::kNo;  // mounted over
    struct stat about{};
    bool shown = (entry.type == DT_REG || entry.type == DT_DIR || entry.type == DT_LNK) && !closed.contains(entry.folder_path);
    if (shown && reader == Reader::kOthers)
      shown = ::fstatat(entry.folder, entry.name.data(), &about, AT_SYMLINK_NOFOLLOW) == 0 && MayRead(reader, about);
    if (shown) return Descend::kYes;
    std::string path = entry.path();
    if (std::ranges::any_of(needed, [&](const std::string& place) { return IsWithin(place, path); })) {
      closed.insert(std::move(path));
      return Descend::kYes;
    }
    return Then(Add(found, std::move(path)), Descend::kNo);
  });
  if (auto walked = walk.Walk(tree); !walked) return std::unexpected(walked.error());
  return found;
}

}  // namespace sluice::supervisor
