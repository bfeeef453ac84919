#include "supervisor/io/opened_folders.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include "base/unique_fd.h"
#include "supervisor/io/launch_facts.h"
#include "supervisor/io/mount_calls.h"
#include "supervisor/io/tree_scan.h"
#include "supervisor/proc_text.h"

namespace sluice::supervisor {
namespace {

constexpr size_t kMaxMountTable = 4 << 20;
constexpr size_t kTablePiece = 16 << 10;

using Paths = std::set<std::string>;

// All of it or nothing: with half of it a tree would be taken for one without mounts, and then be scanned.
std::vector<std::string> MountPoints() {
  const UniqueFd table(::open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC));
  std::string text;
  // In pieces: room for the longest table would cost more to clear than a launch takes.
  for (ssize_t got = 1; got > 0 && text.size() < kMaxMountTable;) {
    const size_t before = text.size();
    text.resize(before + kTablePiece);
    got = ::read(table.get(), text.data() + before, kTablePiece);
    if (got < 0) return {};
    text.resize(before + static_cast<size_t>(got));
  }
  return text.size() >= kMaxMountTable ? std::vector<std::string>() : ParseMountPoints(text);
}

std::string Parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Whether a folder on the way from `tree` to `path`, both left out, may be searched by its owner alone.
bool BehindClosedFolder(const std::string& tree, const std::string& path) {
  for (std::string folder = Parent(path); folder.size() >= tree.size(); folder = Parent(folder)) {
    struct stat about{};
    if (::stat(folder.c_str(), &about) != 0 || (about.st_mode & S_IXOTH) == 0) return true;
  }
  return false;
}

class Opener {
 public:
  Opener(const LaunchSpec& spec, HostFacts& facts, BareFolders& bare) : facts_(facts), bare_(bare) {
    grants_.insert(spec.work_directory);
    grants_.insert(spec.read_write.begin(), spec.read_write.end());
    grants_.insert(spec.read_only.begin(), spec.read_only.end());
    named_ = grants_;
    named_.insert(spec.unix_sockets.begin(), spec.unix_sockets.end());
  }

  void Open(const std::string& tree, const std::vector<std::string>& mount_points) {
    reader_ = ReaderOf(tree);
    Paths mounts;
    for (const std::string& point : mount_points)
      if (point != tree && IsWithin(point, tree) && !Granted(point)) mounts.insert(point);
    points_.clear();
    for (const std::string& path : named_)
      if (path != tree && IsWithin(path, tree) && reader_ == Reader::kOthers && BehindClosedFolder(tree, path))
        points_.insert(path);
    if (points_.empty() && (mounts.empty() || CopyBare(tree, mounts))) return;
    points_.merge(mounts);
    folders_.clear();
    for (const std::string& point : points_)
      for (std::string folder = Parent(point); IsWithin(folder, tree); folder = Parent(folder)) folders_.insert(folder);
    std::vector<OpenedFolder> opened;
    size_t entries = 0;
    for (const std::string& folder : folders_) {
      opened.push_back({folder, List(folder)});
      entries += opened.back().entries.size();
      if (entries > kMaxOpenedEntries) return;
    }
    std::ranges::move(opened, std::back_inserter(facts_.opened));
  }

 private:
  // The tree without its mounts, and those. What is mounted in a folder that others may not enter is not shown: neither is the
  // folder's own content.
  bool CopyBare(const std::string& tree, const Paths& mounts) {
    if (mounts.size() > kMaxOpenedEntries) return false;
    BareFolders copies;
    const auto copy = [&](const std::string& folder) {
      const bool covered =
          std::ranges::any_of(mounts, [&](const auto& point) { return point != folder && IsWithin(point, folder); });
      auto made = covered ? CloneTree(folder, CloneDepth::kOnlyThis) : Result<UniqueFd>();
      if (!made || (covered && !SetAttributes(made->get(), 0, folder))) return false;
      if (covered) copies.emplace(folder, *std::move(made));
      return true;
    };
    std::vector<MountedEntry> mounted;
    if (!copy(tree)) return false;
    for (const std::string& point : mounts) {
      if (reader_ == Reader::kOthers && BehindClosedFolder(tree, point)) continue;
      struct stat about{};
      HostEntry entry = Look(point);
      if (::lstat(point.c_str(), &about) != 0) {
        if (errno != ENOENT && errno != ENOTDIR) return false;  // a file system that does not answer: entry by entry, then
        continue;                                               // covered by another mount
      }
      if (entry.kind == EntryKind::kDirectory && !copy(point)) return false;
      mounted.push_back({std::move(entry), S_ISDIR(about.st_mode) || (S_ISREG(about.st_mode) && MayRead(reader_, about))});
    }
    for (auto& [path, mount] : copies) facts_.bare.push_back(path);
    std::ranges::move(mounted, std::back_inserter(facts_.mounted));
    bare_.merge(copies);
    return true;
  }

  bool Granted(const std::string& path) const {
    return std::ranges::any_of(grants_, [&](const std::string& grant) { return IsWithin(path, grant); });
  }

  std::vector<HostEntry> List(const std::string& folder) const {
    struct stat about{};
    const bool all = ::stat(folder.c_str(), &about) == 0 && MayRead(reader_, about);
    const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
    std::vector<HostEntry> entries;
    while (const dirent* entry = open ? ::readdir(open.get()) : nullptr) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      std::string path = folder + "/" + name;
      const bool on_the_way = folders_.contains(path) || named_.contains(path);
      if (::lstat(path.c_str(), &about) != 0) continue;
      if (!on_the_way && !((all || points_.contains(path)) && Shown(about))) continue;
      entries.push_back(Look(std::move(path)));
      if (entries.size() > kMaxOpenedEntries) break;
    }
    return entries;
  }

  // A folder is shown by a shield, which asks for the rights again.
  bool Shown(const struct stat& about) const {
    return S_ISDIR(about.st_mode) || S_ISLNK(about.st_mode) || (S_ISREG(about.st_mode) && MayRead(reader_, about));
  }

  HostFacts& facts_;
  BareFolders& bare_;
  Paths grants_;
  Paths named_;    // what else must be reached: grants, and the sockets of rules
  Paths points_;   // of the tree at hand: what cannot lie in a shield
  Paths folders_;  // and the folders above them
  Reader reader_ = Reader::kSelf;
};

}  // namespace

void OpenFolders(const LaunchSpec& resolved, HostFacts& facts, BareFolders& bare) {
  const std::vector<std::string> mount_points = MountPoints();
  Opener opener(resolved, facts, bare);
  for (const std::string& tree : SystemPaths())
    if (std::ranges::any_of(facts.system, [&](const HostEntry& entry) {
          return entry.path == tree && entry.kind == EntryKind::kDirectory && !IsWithin(tree, "/sys");
        }))
      opener.Open(tree, mount_points);
}

}  // namespace sluice::supervisor
