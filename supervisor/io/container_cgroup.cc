#include "supervisor/io/container_cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "base/unique_fd.h"
#include "supervisor/container_text.h"
#include "supervisor/io/small_file.h"

namespace sluice::supervisor {
namespace {

constexpr size_t kMaxMembersText = 1024 * 1024;
constexpr size_t kMaxGroups = 4096;
constexpr int kMaxLevels = 33;  // of pid namespaces

// Who is gone meanwhile is nobody's.
bool IsInside(const std::string& pid, const NamespaceId& pids) {
  const std::string path = fmt::format("/proc/{}/ns/pid", pid);
  UniqueFd level(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!level) return errno == ENOENT || errno == ESRCH;
  for (int i = 0; level && i < kMaxLevels; ++i) {
    struct stat about{};
    if (::fstat(level.get(), &about) != 0) return false;
    if (NamespaceId{about.st_dev, about.st_ino} == pids) return true;
    level.Reset(::ioctl(level.get(), NS_GET_PARENT));
  }
  return false;
}

// In a threaded one the processes are not told, and its threads are.
Result<std::string> Members(const std::string& folder) {
  auto processes = ReadSmallFile(folder + "/cgroup.procs", kMaxMembersText);
  if (processes || processes.error().sys_errno != EOPNOTSUPP) return processes;
  return ReadSmallFile(folder + "/cgroup.threads", kMaxMembersText);
}

// Those right below. Nothing: nobody knows.
std::optional<std::vector<std::string>> Below(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  if (!entries) return errno == ENOENT ? std::optional(std::vector<std::string>()) : std::nullopt;
  std::vector<std::string> found;
  errno = 0;
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string name = entry->d_name;
    if (entry->d_type == DT_DIR && name != "." && name != "..") found.push_back(fmt::format("{}/{}", folder, name));
    errno = 0;
  }
  return errno == 0 ? std::optional(std::move(found)) : std::nullopt;
}

}  // namespace

std::string CgroupFolder(const std::string& path) {
  const auto mine = ReadSmallFile("/proc/self/cgroup");
  const auto mounts = ReadSmallFile("/proc/self/mountinfo", kMaxMountinfo);
  if (path.empty() || !mine || !mounts) return {};
  const auto own = ParseCgroup2Path(*mine);
  const std::string mount = FindCgroup2Mount(*mounts);
  return own && !mount.empty() && IsCgroupOfItsOwn(path, *own) ? mount + path : std::string();
}

bool HoldsOnly(const std::string& folder, const NamespaceId& pids) {
  if (folder.empty()) return false;
  std::vector<std::string> groups = {folder};
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string group = groups[i];
    const auto members = Members(group);
    if (!members && (i == 0 || (members.error().sys_errno != ENOENT && members.error().sys_errno != ENODEV))) return false;
    std::istringstream lines(members.value_or(""));
    // 0: one that this process cannot see.
    for (std::string pid; std::getline(lines, pid);)
      if (pid == "0" || !IsInside(pid, pids)) return false;
    auto below = Below(group);
    if (!below || groups.size() + below->size() > kMaxGroups) return false;
    groups.insert(groups.end(), below->begin(), below->end());
  }
  return true;
}

}  // namespace sluice::supervisor
