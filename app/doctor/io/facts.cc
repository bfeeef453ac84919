#include "app/doctor/io/facts.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <sys/capability.h>
#include <sys/klog.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "supervisor/io/mesh_sight.h"
#include "supervisor/io/privileges.h"
#include "supervisor/io/small_file.h"

namespace sluice::app {
namespace {

constexpr int kReadLog = 3;  // SYSLOG_ACTION_READ_ALL
constexpr const char* kCgroupRoot = "/sys/fs/cgroup";

bool Exists(const char* path) { return ::access(path, F_OK) == 0; }

std::string Read(const std::string& path) {
  auto text = supervisor::ReadSmallFile(path);
  if (!text) return "";
  while (!text->empty() && (text->back() == '\n' || text->back() == '\0')) text->pop_back();
  return *std::move(text);
}

std::optional<uint64_t> ReadNumber(const std::string& path) {
  const std::string text = Read(path);
  uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && stop != text.data() ? std::optional(number) : std::nullopt;
}

// The value after "name:" of a file such as /proc/self/status.
std::string Field(std::string_view text, std::string_view name) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ':') {
      line.remove_prefix(name.size() + 1);
      while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
      return std::string(line);
    }
    at = end + 1;
  }
  return "";
}

// `container=` of process 1's environment, or of this process's own.
std::string ContainerVariable() {
  if (const char* own = std::getenv("container"); own != nullptr) return own;
  const auto environment = supervisor::ReadSmallFile("/proc/1/environ");
  constexpr std::string_view kName = "container=";
  for (size_t at = 0; environment && at < environment->size();) {
    const size_t end = std::min(environment->find('\0', at), environment->size());
    const std::string_view entry(environment->data() + at, end - at);
    if (entry.starts_with(kName)) return std::string(entry.substr(kName.size()));
    at = end + 1;
  }
  return "";
}

std::string FirstOfKernelLog() {
  std::string text(16 * 1024, '\0');
  const int got = ::klogctl(kReadLog, text.data(), static_cast<int>(text.size()));
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

// A folder of /proc that container runtimes put something over has another device than /proc itself.
bool HasMaskedProc() {
  struct stat proc{};
  if (::stat("/proc", &proc) != 0) return false;
  for (const char* path :
       {"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/scsi", "/proc/timer_list", "/proc/sys", "/proc/bus"}) {
    struct stat about{};
    if (::stat(path, &about) == 0 && about.st_dev != proc.st_dev) return true;
  }
  return false;
}

// The fifth field of a line of mountinfo (proc_pid_mountinfo(5)) is the mount point.
bool HasMountAtRoot(std::string_view mounts) {
  for (size_t at = 0; at < mounts.size();) {
    const size_t end = std::min(mounts.find('\n', at), mounts.size());
    std::string_view line = mounts.substr(at, end - at);
    for (int field = 0; field < 4 && !line.empty(); ++field) line.remove_prefix(std::min(line.find(' ') + 1, line.size()));
    if (line.starts_with("/ ")) return true;
    at = end + 1;
  }
  return false;
}

// No mount stands at "/" of what it sees, or process 1, of the same mount namespace, has another root.
bool IsChrooted() {
  const std::string mounts = Read("/proc/self/mountinfo");
  if (!mounts.empty() && !HasMountAtRoot(mounts)) return true;
  std::error_code error;
  const auto own_namespace = std::filesystem::read_symlink("/proc/self/ns/mnt", error);
  if (error || std::filesystem::read_symlink("/proc/1/ns/mnt", error) != own_namespace || error) return false;
  struct stat own{};
  struct stat first{};
  return ::stat("/", &own) == 0 && ::stat("/proc/1/root/", &first) == 0 &&
         (own.st_dev != first.st_dev || own.st_ino != first.st_ino);
}

bool HasHypervisor() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kHypervisorBit = 1U << 31;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kHypervisorBit) != 0;
}

bool HasWholeRange() {
  const std::string map = Read("/proc/self/uid_map");
  return map.find("4294967295") != std::string::npos;
}

PlaceFacts GatherPlace() {
  PlaceFacts facts;
  utsname name{};
  if (::uname(&name) == 0) {
    facts.machine = name.machine;
    facts.release = name.release;
    facts.version = name.version;
  }
  const std::string status = Read("/proc/self/status");
  facts.proc_version = Read("/proc/version");
  facts.kernel_log = FirstOfKernelLog();
  facts.cgroup = Read("/proc/self/cgroup");
  facts.container = ContainerVariable();
  facts.containerenv = Read("/run/.containerenv");
  facts.apparmor = Read("/proc/self/attr/current");
  facts.product = Read("/sys/class/dmi/id/product_name");
  facts.dockerenv = Exists("/.dockerenv");
  facts.kubernetes = std::getenv("KUBERNETES_SERVICE_HOST") != nullptr || Exists("/var/run/secrets/kubernetes.io");
  facts.wsl_interop = Exists("/proc/sys/fs/binfmt_misc/WSLInterop") || Exists("/run/WSL");
  facts.hypervisor = HasHypervisor();
  facts.chrooted = IsChrooted();
  facts.filtered = Field(status, "Seccomp") == "2";
  facts.no_new_privs = Field(status, "NoNewPrivs") == "1";
  facts.masked_proc = HasMaskedProc();
  facts.uid = ::geteuid();
  facts.initial_user_namespace = HasWholeRange();
  const std::string effective = Field(status, "CapEff");
  std::from_chars(effective.data(), effective.data() + effective.size(), facts.capabilities, 16);
  facts.apparmor_restricts_userns = ReadNumber("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").value_or(0) != 0;
  facts.unprivileged_userns = ReadNumber("/proc/sys/kernel/unprivileged_userns_clone");
  facts.max_user_namespaces = ReadNumber("/proc/sys/user/max_user_namespaces");
  facts.max_net_namespaces = ReadNumber("/proc/sys/user/max_net_namespaces");
  facts.ptrace_scope = ReadNumber("/proc/sys/kernel/yama/ptrace_scope");
  return facts;
}

CgroupFacts GatherCgroup(std::string_view own) {
  CgroupFacts facts;
  facts.unified = Exists("/sys/fs/cgroup/cgroup.controllers");
  const size_t line = own.find("0::");
  if (!facts.unified || line == std::string_view::npos) return facts;
  facts.path = own.substr(line + 3, own.find('\n', line) - line - 3);
  const std::string folder = kCgroupRoot + facts.path;
  // A cgroup may make groups below it where the folder and cgroup.procs are its own to write.
  facts.writable = ::access(folder.c_str(), W_OK) == 0 && ::access((folder + "/cgroup.procs").c_str(), W_OK) == 0;
  facts.controllers = Read(folder + "/cgroup.controllers");
  facts.pids_max = ReadNumber(folder + "/pids.max");
  facts.pids_now = ReadNumber(folder + "/pids.current");
  return facts;
}

}  // namespace

MachineFacts GatherMachineFacts() {
  MachineFacts facts;
  facts.place = GatherPlace();
  facts.landlock_abi = supervisor::LandlockAbi();
  facts.cgroup = GatherCgroup(facts.place.cgroup);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.descriptors_hard = limit.rlim_max;
  // Of root's processes the kernel counts none.
  if (::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && facts.place.uid != 0)
    facts.processes_limit = limit.rlim_cur;
  facts.threads_max = ReadNumber("/proc/sys/kernel/threads-max");
  facts.conntrack_max = ReadNumber("/proc/sys/net/netfilter/nf_conntrack_max");
  facts.mesh = supervisor::FindMesh();
  return facts;
}

}  // namespace sluice::app
