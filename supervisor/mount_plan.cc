#include "supervisor/mount_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace sluice::supervisor {
namespace {

using Kind = MountStep::Kind;

constexpr std::array<std::string_view, 6> kDevices = {"null", "zero", "full", "random", "urandom", "tty"};
// Kept private whatever is granted: what lies in them is other people's.
constexpr std::array<std::string_view, 5> kPrivatePlaces = {"/tmp", "/run", "/dev/shm", "/var/tmp", "/var/run"};
constexpr std::array<std::string_view, 3> kKernelPlaces = {"/proc", "/sys", "/dev"};
constexpr std::array<std::string_view, 4> kSecretsOfProc = {"/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/timer_list"};

constexpr std::string_view kWorkDirectory = "work directory";

struct Tree {
  Access access = Access::kReadOnly;
  std::string_view origin;  // which option asked for it
};
using Trees = std::map<std::string, Tree, std::less<>>;

std::string Parent(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string_view::npos ? "/" : std::string(path.substr(0, slash));
}

Result<void> CheckGrant(std::string_view path, std::string_view origin) {
  if (path == "/")
    return Fail(Code::kInvalid,
                fmt::format("{0} /: it holds every file of this machine, and so is no folder that can be granted; name one "
                            "below it{1}",
                            origin, origin == kWorkDirectory ? ", with --cwd or --workspace, or start there" : ""));
  if (path.size() < 2 || path.front() != '/' || path.back() == '/')
    return Fail(Code::kInvalid, fmt::format("{} {}: not a folder that can be granted", origin, path));
  for (const auto place : kKernelPlaces)
    if (IsWithin(path, place)) return Fail(Code::kInvalid, fmt::format("{} {}: {} is the workload's own", origin, path, place));
  for (const auto place : kPrivatePlaces)
    if (path == place)
      return Fail(Code::kInvalid,
                  fmt::format("{} {}: {} is private to the workload; name a folder below it", origin, path, place));
  return {};
}

Result<Trees> CollectGrants(const LaunchSpec& spec) {
  Trees trees;
  if (auto ok = CheckGrant(spec.work_directory, kWorkDirectory); !ok) return std::unexpected(ok.error());
  trees[spec.work_directory] = {Access::kWritable, kWorkDirectory};
  for (const std::string& path : spec.read_write) {
    if (auto ok = CheckGrant(path, "--rw"); !ok) return std::unexpected(ok.error());
    trees[path] = {Access::kWritable, "--rw"};
  }
  for (const std::string& path : spec.read_only) {
    if (auto ok = CheckGrant(path, "--ro"); !ok) return std::unexpected(ok.error());
    if (const auto it = trees.find(path); it != trees.end() && it->second.origin == "--rw")
      return Fail(Code::kInvalid, fmt::format("{} is both --rw and --ro", path));
    trees[path] = {Access::kReadOnly, "--ro"};
  }
  if (trees.size() > kMaxGrantedTrees) return Fail(Code::kExhausted, fmt::format("more than {} granted trees", kMaxGrantedTrees));
  return trees;
}

// The innermost grant decides.
const Tree* GrantOver(const Trees& trees, std::string_view path) {
  const Tree* found = nullptr;
  size_t depth = 0;
  for (const auto& [root, tree] : trees) {
    if (!IsWithin(path, root) || root.size() <= depth) continue;
    found = &tree;
    depth = root.size();
  }
  return found;
}

class Planner {
 public:
  Planner(const LaunchSpec& spec, const HostFacts& facts, Trees trees) : spec_(spec), facts_(facts), trees_(std::move(trees)) {}

  Result<MountPlan> Run() {
    AddSystem();
    AddPrivate();
    AddGrants();
    // A parent sorts before what lies below it.
    std::ranges::sort(plan_.steps, {}, &MountStep::target);
    HideSecrets();
    if (auto done = HideSources(); !done) return std::unexpected(done.error());
    if (auto done = Protect(); !done) return std::unexpected(done.error());
    AddUnixSockets();
    for (size_t i = 0; i < spec_.overlays.size(); ++i) {
      Step(Kind::kOverlay, spec_.overlays[i].path);
      plan_.steps.back().overlay = i;
      plan_.steps.back().optional = spec_.overlays[i].optional;
    }
    if (plan_.own_mounts)
      if (auto held = RefuseHeld(); !held) return std::unexpected(held.error());
    if (plan_.steps.size() > kMaxMountSteps)
      return Fail(Code::kExhausted,
                  fmt::format("the view would need {} mounts, {} are allowed (many sockets or repositories in a "
                              "granted tree?)",
                              plan_.steps.size(), kMaxMountSteps));
    plan_.work_directory = spec_.work_directory;
    plan_.unix_sockets = spec_.unix_sockets;
    return std::move(plan_);
  }

 private:
  void Step(Kind kind, std::string target, std::string source = {}, Access access = Access::kReadOnly, uint32_t mode = 0755) {
    // Links and folders are made in the view's own root, never inside a tree of the host.
    if ((kind == Kind::kLink || kind == Kind::kFolder) && GrantOver(trees_, target) != nullptr) return;
    plan_.steps.push_back(
        {.kind = kind, .target = std::move(target), .source = std::move(source), .access = access, .mode = mode});
  }

  void AddSystem() {
    for (const HostEntry& entry : facts_.system) {
      if (std::ranges::find(SystemPaths(), entry.path) == SystemPaths().end() || trees_.contains(entry.path)) continue;
      if (entry.kind == EntryKind::kSymlink) Step(Kind::kLink, entry.path, entry.link);
      if (entry.kind == EntryKind::kDirectory) AddSystemFolder(entry.path);
    }
    for (const MountedEntry& mounted : facts_.mounted) {
      const std::string& path = mounted.entry.path;
      if (!mounted.shown) Step(Kind::kMask, path);
      if (mounted.shown && mounted.entry.kind == EntryKind::kFile) Step(Kind::kBind, path, path);
      if (mounted.shown && mounted.entry.kind == EntryKind::kDirectory) AddSystemFolder(path);
    }
  }

  void AddSystemFolder(const std::string& path) {
    if (IsWithin(path, "/sys")) return Step(Kind::kBind, path, path);  // the kernel's own: nobody binds a socket there
    const auto opened = std::ranges::find(facts_.opened, path, &OpenedFolder::path);
    if (opened == facts_.opened.end()) {
      Step(Kind::kShield, path, path);
      plan_.steps.back().bare = std::ranges::find(facts_.bare, path) != facts_.bare.end();
      return;
    }
    Step(Kind::kFolder, path);
    for (const HostEntry& entry : opened->entries) {
      if (trees_.contains(entry.path)) continue;
      if (entry.kind == EntryKind::kSymlink) Step(Kind::kLink, entry.path, entry.link);
      if (entry.kind == EntryKind::kFile) Step(Kind::kBind, entry.path, entry.path);
      if (entry.kind == EntryKind::kDirectory) AddSystemFolder(entry.path);
    }
  }

  void Scratch(std::string path, uint32_t mode) {
    plan_.writable.push_back(path);
    Step(Kind::kScratch, std::move(path), {}, Access::kWritable, mode);
  }

  void AddPrivate() {
    plan_.own_mounts = spec_.own_namespaces == OwnNamespaces::kContainers;
    plan_.writable_processes = plan_.own_mounts || spec_.own_namespaces == OwnNamespaces::kMapped;
    Step(Kind::kProc, "/proc", {}, plan_.writable_processes ? Access::kWritable : Access::kReadOnly);
    // The kernel gives a container a procfs of its own beside one that nothing covers, and no other.
    plan_.steps.back().whole = plan_.own_mounts;
    if (plan_.own_mounts) Step(Kind::kGroups, "/sys/fs/cgroup");  // no runtime starts where it finds none
    Step(Kind::kFolder, "/dev");
    for (const auto device : kDevices) Step(Kind::kDevice, fmt::format("/dev/{}", device), fmt::format("/dev/{}", device));
    Step(Kind::kTerminals, "/dev/pts");
    Step(Kind::kLink, "/dev/ptmx", "pts/ptmx");
    Step(Kind::kLink, "/dev/fd", "/proc/self/fd");
    Step(Kind::kLink, "/dev/stdin", "/proc/self/fd/0");
    Step(Kind::kLink, "/dev/stdout", "/proc/self/fd/1");
    Step(Kind::kLink, "/dev/stderr", "/proc/self/fd/2");
    Scratch("/dev/shm", 01777);
    Scratch("/tmp", 01777);
    Scratch("/run", 0755);
    Step(Kind::kFolder, "/var");
    // A folder, not a link: a work directory below it keeps its name.
    Scratch("/var/tmp", 01777);
    Step(Kind::kLink, "/var/run", "/run");
    AddHome();
  }

  void AddHome() {
    const auto home = std::ranges::find(spec_.environment, "HOME", &std::pair<std::string, std::string>::first);
    if (home == spec_.environment.end()) return;
    const std::string& path = home->second;
    if (path.size() < 2 || path.front() != '/' || path.back() == '/' || GrantOver(trees_, path) != nullptr) return;
    const auto covers = [&](std::string_view place) { return IsWithin(path, place); };
    if (std::ranges::any_of(kKernelPlaces, covers)) return;
    if (std::ranges::find(kPrivatePlaces, path) != kPrivatePlaces.end()) return;
    if (std::ranges::any_of(SystemPaths(), covers)) return;
    Scratch(path, 0700);
  }

  void AddGrants() {
    for (const auto& [path, tree] : trees_) {
      Step(Kind::kBind, path, path, tree.access);
      plan_.granted.push_back(path);
      if (tree.access == Access::kWritable) plan_.writable.push_back(path);
    }
  }

  void HideSecrets() {
    if (!plan_.own_mounts)
      for (const auto path : kSecretsOfProc) Step(Kind::kMask, std::string(path));
    for (const HostEntry& entry : facts_.system) {
      const bool secret = std::ranges::find(SecretPaths(), entry.path) != SecretPaths().end();
      const bool present = entry.kind == EntryKind::kFile || entry.kind == EntryKind::kDirectory;
      if (secret && present && !trees_.contains(entry.path)) Step(Kind::kMask, entry.path);
    }
    for (const std::string& path : facts_.sockets)
      if (std::ranges::find(spec_.unix_sockets, path) == spec_.unix_sockets.end()) masks_.push_back(path);
  }

  // A mask lies over one file. In a tree of the user's own that file is replaced at every rotation, and the mask with it, so that
  // the next one would be seen: such a tree is refused. System trees are shown through a file system of the view's own.
  Result<void> HideSources() {
    for (const std::string& path : spec_.hide) {
      if (const Tree* tree = GrantOver(trees_, path); tree != nullptr)
        return Fail(Code::kInvalid, fmt::format("{} holds a secret, and the command would see it there ({}): keep it outside",
                                                path, tree->origin));
      const auto shown = [&](const std::string& place) { return IsWithin(path, place); };
      if (std::ranges::any_of(SystemPaths(), shown)) Step(Kind::kMask, path);
    }
    return {};
  }

  // A file that must not change is bound read-only onto itself, and each folder between it and its tree is pinned: a mount
  // point cannot be renamed or removed, so no other file can take its place.
  Result<void> Protect() {
    std::set<std::string> pins;
    std::vector<std::string> locks;
    for (const HostEntry& entry : facts_.protect) {
      const Tree* tree = GrantOver(trees_, entry.path);
      if (tree == nullptr || tree->access == Access::kReadOnly) continue;
      if (entry.kind == EntryKind::kAbsent)
        return Fail(Code::kInvalid,
                    fmt::format("{} must exist before the workload starts, else the workload could create it: it lies "
                                "in a tree the workload may write",
                                entry.path));
      if (trees_.contains(entry.path))
        return Fail(Code::kInvalid, fmt::format("{} must not be writable to the workload, but is granted to it", entry.path));
      PinAncestors(entry.path, pins);
      locks.push_back(entry.path);
      plan_.must_be_read_only.push_back(entry.path);
    }
    for (const HostEntry& entry : facts_.run_later) {
      const Tree* tree = GrantOver(trees_, entry.path);
      if (tree == nullptr || tree->access == Access::kReadOnly || entry.kind == EntryKind::kAbsent || trees_.contains(entry.path))
        continue;
      PinAncestors(entry.path, pins);
      locks.push_back(entry.path);
    }
    for (const std::string& path : pins) Step(Kind::kPin, path, path, Access::kWritable);
    std::ranges::sort(locks);
    locks.erase(std::ranges::unique(locks).begin(), locks.end());
    for (const std::string& path : locks) Step(Kind::kLock, path, path);
    for (std::string& path : masks_) Step(Kind::kMask, std::move(path));
    return {};
  }

  void PinAncestors(std::string_view path, std::set<std::string>& pins) const {
    for (std::string folder = Parent(path); folder != "/" && !trees_.contains(folder); folder = Parent(folder))
      pins.insert(folder);
  }

  // A mount point can be neither renamed nor removed, but in the mount namespace of whoever tries: from one that lacks the mount,
  // by a descriptor of the folder, it can be both, and then the mount is gone everywhere (Linux 3.18 and later).
  Result<void> RefuseHeld() const {
    for (const MountStep& step : plan_.steps) {
      // A tree that is granted twice is the same below.
      const bool fixed = step.kind == Kind::kBind && step.access == Access::kReadOnly;
      const bool holds = fixed || step.kind == Kind::kPin || step.kind == Kind::kLock || step.kind == Kind::kMask;
      const Tree* tree = holds ? GrantOver(trees_, Parent(step.target)) : nullptr;
      if (tree == nullptr || tree->access == Access::kReadOnly) continue;
      return Fail(Code::kInvalid,
                  fmt::format("--allow-containers: {} is to be held as it is, and lies in a folder that the command may write "
                              "({}): in a mount namespace of its own it could put something else there. Keep it elsewhere, or "
                              "grant the folder read-only",
                              step.target, tree->origin));
    }
    return {};
  }

  void AddUnixSockets() {
    for (const std::string& path : spec_.unix_sockets)
      if (GrantOver(trees_, path) == nullptr) Step(Kind::kBind, path, path);
  }

  const LaunchSpec& spec_;
  const HostFacts& facts_;
  Trees trees_;
  MountPlan plan_;
  std::vector<std::string> masks_;
};

}  // namespace

const std::vector<std::string>& SystemPaths() {
  static const std::vector<std::string> kPaths = {"/bin",
                                                  "/etc",
                                                  "/gnu/store",
                                                  "/lib",
                                                  "/lib32",
                                                  "/lib64",
                                                  "/libx32",
                                                  "/nix/store",
                                                  "/opt",
                                                  "/sbin",
                                                  "/sys/devices/system/cpu",
                                                  "/sys/devices/system/node",
                                                  "/usr"};
  return kPaths;
}

const std::vector<std::string>& SecretPaths() {
  static const std::vector<std::string> kPaths = {"/etc/gshadow",
                                                  "/etc/gshadow-",
                                                  "/etc/krb5.keytab",
                                                  "/etc/shadow",
                                                  "/etc/shadow-",
                                                  "/etc/ssl/private",
                                                  "/etc/security/opasswd",
                                                  "/etc/ssh/ssh_host_dsa_key",
                                                  "/etc/ssh/ssh_host_ecdsa_key",
                                                  "/etc/ssh/ssh_host_ed25519_key",
                                                  "/etc/ssh/ssh_host_rsa_key",
                                                  "/etc/kubernetes",
                                                  "/etc/docker/key.json",
                                                  "/etc/rancher",
                                                  "/etc/wireguard"};
  return kPaths;
}

const std::vector<std::string>& RunLaterHomePaths() {
  static const std::vector<std::string> kPaths = {".bash_login",
                                                  ".bash_logout",
                                                  ".bash_profile",
                                                  ".bashrc",
                                                  ".config/autostart",
                                                  ".config/fish",
                                                  ".config/git",
                                                  ".config/systemd",
                                                  ".envrc",
                                                  ".gitconfig",
                                                  ".local/bin",
                                                  ".pam_environment",
                                                  ".profile",
                                                  ".ssh",
                                                  ".xprofile",
                                                  ".xsession",
                                                  ".xsessionrc",
                                                  ".zlogin",
                                                  ".zprofile",
                                                  ".zshenv",
                                                  ".zshrc",
                                                  "bin"};
  return kPaths;
}

bool IsWithin(std::string_view path, std::string_view tree) {
  if (!path.starts_with(tree)) return false;
  return path.size() == tree.size() || path[tree.size()] == '/';
}

Result<void> CheckGrants(const LaunchSpec& spec) {
  auto trees = CollectGrants(spec);
  return trees ? Result<void>() : std::unexpected(trees.error());
}

Result<MountPlan> PlanMounts(const LaunchSpec& spec, const HostFacts& facts) {
  auto trees = CollectGrants(spec);
  if (!trees) return std::unexpected(trees.error());
  return Planner(spec, facts, std::move(*trees)).Run();
}

}  // namespace sluice::supervisor
