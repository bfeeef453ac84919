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
  Opener(const LaunchSpec& spec, HostFacts& facts) : facts_(facts) {
    grants_.insert(spec.work_directory);
    grants_.insert(spec.read_write.begin(), spec.read_write.end());
    grants_.insert(spec.read_only.begin(), spec.read_only.end());
    named_ = grants_;
    named_.insert(spec.unix_sockets.begin(), spec.unix_sockets.end());
  }

  void Open(const std::string& tree, const std::vector<std::string>& mount_points) {
    reader_ = ReaderOf(tree);
    points_.clear();
    for (const std::string& point : mount_points)
      if (point != tree && IsWithin(point, tree) && !Granted(point)) points_.insert(point);
    for (const std::string& path : named_)
      if (path != tree && IsWithin(path, tree) && reader_ == Reader::kOthers && BehindClosedFolder(tree, path))
        points_.insert(path);
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
      const bool on_the_way = folders_.contains(path) || points_.contains(path);
      if (::lstat(path.c_str(), &about) != 0 || (!on_the_way && !(all && Shown(about)))) continue;
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
  Paths grants_;
  Paths named_;    // what else must be reached: grants, and the sockets of rules
  Paths points_;   // of the tree at hand: what cannot lie in a shield
  Paths folders_;  // and the folders above them
  Reader reader_ = Reader::kSelf;
};

}  // namespace

void OpenFolders(const LaunchSpec& resolved, HostFacts& facts) {
  const std::vector<std::string> mount_points = MountPoints();
  Opener opener(resolved, facts);
  for (const std::string& tree : SystemPaths())
    if (std::ranges::any_of(facts.system, [&](const HostEntry& entry) {
          return entry.path == tree && entry.kind == EntryKind::kDirectory && !IsWithin(tree, "/sys");
        }))
      opener.Open(tree, mount_points);
}

}  // namespace sluice::supervisor
