#include "supervisor/container_text.h"

#include <linux/capability.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "supervisor/proc_text.h"

namespace sluice::supervisor {
namespace {

constexpr std::array<std::string_view, 5> kSets = {"CapInh:\t", "CapPrm:\t", "CapEff:\t", "CapBnd:\t", "CapAmb:\t"};

// By the first two a process changes what captures it or enters another namespace; by the third it acts through others; by the
// fourth it opens files of the host by their handles, sockets of services among them; by the rest it is the host's root.
struct Named {
  int number;
  std::string_view name;
};
constexpr std::array<Named, 7> kLeadOut = {{{CAP_NET_ADMIN, "CAP_NET_ADMIN"},
                                            {CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
                                            {CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},
                                            {CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"},
                                            {CAP_SYS_MODULE, "CAP_SYS_MODULE"},
                                            {CAP_SYS_RAWIO, "CAP_SYS_RAWIO"},
                                            {CAP_BPF, "CAP_BPF"}}};

}  // namespace

std::optional<uint64_t> ParseCapabilities(std::string_view status) {
  uint64_t all = 0;
  for (const std::string_view set : kSets) {
    // At a line's beginning: the process chose the name in the first line, where the kernel escapes line feeds.
    const size_t at = status.find("\n" + std::string(set));
    if (at == std::string_view::npos) return std::nullopt;
    std::string_view digits = status.substr(at + 1 + set.size());
    digits = digits.substr(0, digits.find('\n'));
    uint64_t bits = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
    if (error != std::errc{} || stop != digits.data() + digits.size()) return std::nullopt;
    all |= bits;
  }
  return all;
}

std::string CapabilitiesThatLeadOut(uint64_t capabilities) {
  std::string found;
  for (const Named& named : kLeadOut) {
    if ((capabilities >> named.number & 1) == 0) continue;
    if (!found.empty()) found += ", ";
    found += named.name;
  }
  return found;
}

std::optional<std::string> ParseCgroup2Path(std::string_view cgroup) {
  while (!cgroup.empty()) {
    std::string_view line = cgroup.substr(0, cgroup.find('\n'));
    cgroup.remove_prefix(std::min(line.size() + 1, cgroup.size()));
    if (line.starts_with("0::/")) return std::string(line.substr(3));
  }
  return std::nullopt;
}

bool IsCgroupOfItsOwn(std::string_view cgroup, std::string_view own) {
  // Outside of the cgroup namespace that this process sees, a path begins with "/..".
  if (!cgroup.starts_with('/') || cgroup == "/" || cgroup.find("/..") != std::string_view::npos) return false;
  return own != cgroup && !(own.starts_with(cgroup) && own.size() > cgroup.size() && own[cgroup.size()] == '/');
}

std::string FindCgroup2Mount(std::string_view mountinfo) {
  std::string found;
  // The last one at a point hides those before it.
  for (const MountLine& mount : ParseMounts(mountinfo))
    if (mount.type == "cgroup2" && mount.root == "/" && !mount.read_only) found = mount.point;
  return found;
}

std::set<std::string, std::less<>> MountedDevices(std::string_view mountinfo) {
  std::set<std::string, std::less<>> devices;
  for (MountLine& mount : ParseMounts(mountinfo)) devices.insert(std::move(mount.device));
  return devices;
}

ContainerTrees FindContainerTrees(std::string_view mountinfo, const std::set<std::string, std::less<>>& host_devices) {
  ContainerTrees trees;
  for (const MountLine& mount : ParseMounts(mountinfo)) {
    const bool root = mount.point == "/";
    const bool private_tmpfs = mount.type == "tmpfs" && mount.root == "/" && !host_devices.contains(mount.device);
    const bool own = !mount.read_only && (root || private_tmpfs);
    // The kernel's own, whose sockets are nobody's.
    if (!own && (mount.type == "proc" || mount.type == "sysfs" || mount.type == "devpts" || mount.type == "mqueue")) continue;
    (own ? trees.own : trees.shared).push_back(mount.point);
  }
  return trees;
}

}  // namespace sluice::supervisor
