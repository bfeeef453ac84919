#include "supervisor/io/launch_view.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>

#include "base/fault.h"
#include "base/unique_fd.h"
#include "supervisor/io/mount_calls.h"
#include "supervisor/io/shielded_tree.h"
#include "supervisor/io/tree_scan.h"

namespace sluice::supervisor {
namespace {

using Kind = MountStep::Kind;

constexpr uint64_t kTreeAttributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
constexpr uint64_t kScratchAttributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
constexpr uint64_t kProcAttributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
constexpr uint64_t kSealedAttributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
// Bounds of what a workload can put in memory through its scratch trees: each tmpfs takes half of memory at most.
constexpr const char* kScratchSize = "50%";
constexpr const char* kScratchInodes = "1000000";
constexpr const char* kRootSize = "4m";  // folders, links and overlays' content
constexpr std::string_view kMaskFile = "/.mask";
constexpr std::string_view kMaskFolder = "/.void";
// A mount for what is gone once the view is built: the old root, trees that are seen through shields, and the second layers of
// those. It goes as a whole, since each umount(2) waits until no processor can be looking at it any more.
constexpr const char* kStage = "/.stage";
constexpr const char* kStageFolder = ".stage";
constexpr const char* kOldRoot = ".stage/old";
constexpr const char* kNothing = "/.stage/nothing";
constexpr const char* kLayers = "/.stage/layers";

Result<void> MakeFolders(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST && errno != EROFS)
      return FailErrno(fmt::format("cannot create {} in the workload's view", folder), errno);
  }
  return {};
}

class ViewBuilder {
 public:
  ViewBuilder(const MountPlan& plan, const BareFolders& bare, const FillOverlay& fill) : plan_(plan), bare_(bare), fill_(fill) {}

  Result<void> Run() {
    sources_.resize(plan_.steps.size());
    // While the old root is still there: what comes from it, and the new procfs, which the kernel allows only beside another.
    for (size_t i = 0; i < plan_.steps.size(); ++i)
      if (auto opened = OpenSource(plan_.steps[i], sources_[i]); !opened) return opened;
    if (auto entered = EnterEmptyRoot(); !entered) return entered;
    if (auto made = MakeMasks(); !made) return made;
    for (size_t i = 0; i < plan_.steps.size(); ++i)
      if (auto done = Place(plan_.steps[i], sources_[i]); !done) return done;
    ::unlink(kMaskFile.data());
    ::rmdir(kMaskFolder.data());
    return {};
  }

 private:
  Result<void> OpenSource(const MountStep& step, UniqueFd& out) const {
    Result<UniqueFd> made = UniqueFd();
    uint64_t attributes = 0;
    switch (step.kind) {
      case Kind::kBind:
      case Kind::kShield:
        made = step.bare ? Bare(step.source) : CloneTree(step.source, CloneDepth::kRecursive);
        attributes = kTreeAttributes | (step.access == Access::kReadOnly ? uint64_t{MOUNT_ATTR_RDONLY} : 0);
        break;
      case Kind::kDevice:
        made = CloneTree(step.source, CloneDepth::kOnlyThis);
        attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
        break;
      case Kind::kScratch: {
        const std::string mode = fmt::format("{:o}", step.mode);
        made = NewFileSystem("tmpfs", {{"mode", mode.c_str()}, {"size", kScratchSize}, {"nr_inodes", kScratchInodes}},
                             kScratchAttributes);
        break;
      }
      case Kind::kProc:
        made = NewFileSystem("proc", {}, step.access == Access::kReadOnly ? kSealedAttributes : kProcAttributes);
        break;
      case Kind::kTerminals:
        made = NewFileSystem("devpts", {{"mode", "0620"}, {"ptmxmode", "0666"}}, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
        break;
      case Kind::kGroups:
        made = NewFileSystem("cgroup2", {}, kSealedAttributes);
        break;
      default:
        return {};  // made from the view itself
    }
    if (!made) return std::unexpected(made.error());
    if (attributes != 0)
      if (auto set = SetAttributes(made->get(), attributes, step.source); !set) return set;
    out = std::move(*made);
    return {};
  }

  Result<UniqueFd> Bare(const std::string& folder) const {
    UniqueFd copy(::fcntl(bare_.at(folder).get(), F_DUPFD_CLOEXEC, 0));
    if (!copy) return FailErrno(fmt::format("cannot show {} to the workload", folder), errno);
    return copy;
  }

  static Result<void> EnterEmptyRoot() {
    // Without access times: the command's process follows links in it while it is sealed, and a mount that anybody writes to, be
    // it only such a time, cannot be made read-only (EBUSY).
    auto root = NewFileSystem("tmpfs", {{"mode", "0755"}, {"size", kRootSize}},
                              MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
    if (!root) return std::unexpected(root.error());
    // Any folder will do: the old root goes away with it.
    if (auto attached = Attach(root->get(), "/usr"); !attached) return attached;
    if (::fchdir(root->get()) != 0) return FailErrno("cannot enter the workload's root", errno);
    // Not a folder of the root's: one that is removed under an overlay ends each listing of it.
    auto stage =
        NewFileSystem("tmpfs", {{"mode", "0755"}, {"size", "64k"}}, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (!stage) return std::unexpected(stage.error());
    if (::mkdir(kStageFolder, 0755) != 0) return FailErrno("cannot prepare the workload's root", errno);
    if (auto attached = Attach(stage->get(), kStageFolder); !attached) return attached;
    if (::mkdir(kOldRoot, 0755) != 0) return FailErrno("cannot prepare the workload's root", errno);
    if (Faulty("view.root", [] { return ::syscall(SYS_pivot_root, ".", kOldRoot); }) != 0)
      return FailErrno("cannot change the root", errno);
    if (::chdir("/") != 0) return FailErrno("cannot enter the new root", errno);
    return {};
  }

  static Result<void> MakeMasks() {
    const UniqueFd file(::open(kMaskFile.data(), O_CREAT | O_EXCL | O_RDONLY | O_CLOEXEC, 0));
    if (!file || ::mkdir(kMaskFolder.data(), 0) != 0 || ::mkdir(kNothing, 0755) != 0 || ::mkdir(kLayers, 0755) != 0)
      return FailErrno("cannot create masks", errno);
    return {};
  }

  Result<void> Place(const MountStep& step, const UniqueFd& source) {
    switch (step.kind) {
      case Kind::kBind:
      case Kind::kDevice:
      case Kind::kScratch:
      case Kind::kTerminals:
      case Kind::kGroups:
        return PlaceSource(step, source.get());
      case Kind::kProc:
        if (auto placed = PlaceSource(step, source.get()); !placed || step.access == Access::kReadOnly || step.whole)
          return placed;
        return SealKernelFiles(step.target);
      case Kind::kShield:
        return PlaceShield(step, source.get());
      case Kind::kLink:
        if (auto made = MakeFolders(step.target); !made) return made;
        if (::symlink(step.source.c_str(), step.target.c_str()) != 0)
          return FailErrno(fmt::format("cannot link {}", step.target), errno);
        return {};
      case Kind::kFolder:
        if (auto made = MakeFolders(step.target); !made) return made;
        if (::mkdir(step.target.c_str(), 0755) != 0 && errno != EEXIST)
          return FailErrno(fmt::format("cannot create {}", step.target), errno);
        return {};
      case Kind::kPin:
        return BindOnto(step.source, step.target, kTreeAttributes);
      case Kind::kLock:
        return BindOnto(step.source, step.target, kTreeAttributes | MOUNT_ATTR_RDONLY);
      case Kind::kMask:
        return Mask(step.target);
      case Kind::kOverlay:
        return PlaceOverlay(step);
    }
    return {};
  }

  static Result<void> PlaceSource(const MountStep& step, int source) {
    struct stat about{};
    if (::fstat(source, &about) != 0) return FailErrno(fmt::format("cannot look at {}", step.source), errno);
    if (auto made = MakeTarget(step.target, S_ISDIR(about.st_mode)); !made) return made;
    return Attach(source, step.target);
  }

  // All of a procfs but the folders of processes: settings, devices and buses of the machine. Links lead to one or the other.
  static Result<void> SealKernelFiles(const std::string& proc) {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(proc.c_str()), ::closedir);
    if (!folder) return FailErrno(fmt::format("cannot list {}", proc), errno);
    bool settings = false;
    while (const dirent* entry = ::readdir(folder.get())) {
      const std::string_view name = entry->d_name;
      if (name.find_first_not_of("0123456789") == std::string_view::npos || name == "." || name == "..") continue;
      const std::string path = fmt::format("{}/{}", proc, name);
      struct stat about{};
      if (::lstat(path.c_str(), &about) != 0) return FailErrno(fmt::format("cannot look at {}", path), errno);
      if (S_ISLNK(about.st_mode)) continue;
      if (auto sealed = BindOnto(path, path, kSealedAttributes); !sealed) return sealed;
      settings = settings || name == "sys";
    }
    return settings ? Result<void>() : Fail(Code::kInternal, fmt::format("{} was not listed whole", proc));
  }

  Result<void> PlaceShield(const MountStep& step, int source) {
    if (auto made = MakeTarget(step.target, true); !made) return made;
    const std::string behind = fmt::format("{}/behind{}", kStage, ++shields_);
    if (::mkdir(behind.c_str(), 0755) != 0) return FailErrno(fmt::format("cannot shield {}", step.target), errno);
    if (auto attached = Attach(source, behind); !attached) return attached;
    const Reader reader = ReaderOf(behind);
    const auto layer = LayerFor(step.target, behind);
    if (!layer) return std::unexpected(layer.error());
    if (const auto shield = ShieldTree(behind, *layer, reader)) return Attach(shield->get(), step.target);
    // The tree itself, then. What lies in it now can be hidden; what is bound or written later cannot.
    if (::move_mount(AT_FDCWD, behind.c_str(), AT_FDCWD, step.target.c_str(), 0) != 0)
      return FailErrno(fmt::format("cannot mount {} in the workload's view", step.target), errno);
    const auto hidden = FindHidden(step.target, reader, plan_.granted);
    if (!hidden) return std::unexpected(hidden.error());
    for (const std::string& path : *hidden)
      if (auto masked = Mask(path); !masked) return masked;
    return {};
  }

  // What lies under a shield's tree, which is mounted at `behind`: nothing, or the mount points that overlays in it lack.
  Result<std::string> LayerFor(const std::string& tree, const std::string& behind) const {
    const std::string layer = kLayers + tree;
    bool used = false;
    for (const MountStep& step : plan_.steps) {
      if (step.kind != Kind::kOverlay || !IsWithin(step.target, tree)) continue;
      struct stat about{};
      if (::lstat((behind + step.target.substr(tree.size())).c_str(), &about) == 0) continue;
      used = true;
      if (auto made = MakeTarget(kLayers + step.target, false); !made) return std::unexpected(made.error());
    }
    return used ? layer : std::string(kNothing);
  }

  // A mount point of the right kind; what is there already stays.
  static Result<void> MakeTarget(const std::string& target, bool folder) {
    struct stat about{};
    if (::lstat(target.c_str(), &about) == 0) return {};
    if (auto made = MakeFolders(target); !made) return made;
    if (folder) {
      if (::mkdir(target.c_str(), 0755) != 0)
        return FailErrno(fmt::format("cannot create {} in the workload's view", target), errno);
      return {};
    }
    const UniqueFd file(::open(target.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644));
    if (!file) return FailErrno(fmt::format("cannot create {} in the workload's view", target), errno);
    return {};
  }

  static Result<void> BindOnto(const std::string& source, const std::string& target, uint64_t attributes) {
    auto clone = CloneTree(source, CloneDepth::kRecursive);
    if (!clone) return std::unexpected(clone.error());
    if (auto set = SetAttributes(clone->get(), attributes, source); !set) return set;
    return Attach(clone->get(), target);
  }

  static Result<void> Mask(const std::string& target) {
    struct stat about{};
    if (::lstat(target.c_str(), &about) != 0) return {};  // gone meanwhile
    return BindOnto(std::string(S_ISDIR(about.st_mode) ? kMaskFolder : kMaskFile), target, kSealedAttributes);
  }

  Result<void> PlaceOverlay(const MountStep& step) {
    const std::string content_path = fmt::format("/.overlay{}", step.overlay);
    {
      const UniqueFd file(::open(content_path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444));
      if (!file) return FailErrno("cannot create an overlay", errno);
      if (auto filled = fill_(step.overlay, file.get()); !filled) return filled;
    }
    auto target = OverlayTarget(step.target);
    auto bound = target ? BindOnto(content_path, *target, kSealedAttributes) : std::unexpected(target.error());
    if (!bound && !step.optional) return bound;
    ::unlink(content_path.c_str());
    return {};
  }

  // Follows links inside the view, and makes what a dangling one points to: /etc/resolv.conf often leads into /run.
  Result<std::string> OverlayTarget(std::string path) const {
    constexpr int kMaxLinks = 16;
    for (int i = 0; i < kMaxLinks; ++i) {
      struct stat about{};
      if (::lstat(path.c_str(), &about) != 0) {
        for (const std::string& tree : plan_.granted)
          if (IsWithin(path, tree)) return Fail(Code::kNotFound, fmt::format("{} must exist to be replaced in the view", path));
        auto made = MakeTarget(path, false);
        if (made) return path;
        if (made.error().sys_errno != EROFS) return std::unexpected(made.error());
        return Fail(Code::kNotFound, fmt::format("{} must exist to be replaced in the view: create it, empty will do", path));
      }
      if (!S_ISLNK(about.st_mode)) return path;
      std::string link(4096, '\0');
      const ssize_t size = ::readlink(path.c_str(), link.data(), link.size());
      if (size <= 0) return FailErrno(fmt::format("cannot read the link {}", path), errno);
      link.resize(static_cast<size_t>(size));
      path = link.front() == '/' ? link : path.substr(0, path.rfind('/') + 1) + link;
    }
    return Fail(Code::kInvalid, fmt::format("too many links at {}", path));
  }

  const MountPlan& plan_;
  const BareFolders& bare_;
  const FillOverlay& fill_;
  std::vector<UniqueFd> sources_;
  int shields_ = 0;
};

}  // namespace

Result<void> EnterView(const MountPlan& plan, const BareFolders& bare, const FillOverlay& fill) {
  return ViewBuilder(plan, bare, fill).Run();
}

Result<void> SealView(const MountPlan& plan) {
  if (Faulty("view.leave", [] { return ::umount2(kStage, MNT_DETACH); }) != 0)
    return FailErrno("cannot leave the old root", errno);
  ::rmdir(kStage);
  mount_attr change{};
  change.attr_set = MOUNT_ATTR_RDONLY;
  if (Faulty("view.seal", [&] { return ::mount_setattr(AT_FDCWD, "/", 0, &change, sizeof change); }) != 0)
    return FailErrno("cannot seal the workload's root", errno);
  for (const std::string& path : plan.must_be_read_only) {
    // Not by opening it: of a program that runs, such as this one, the kernel says ETXTBSY whatever the mount is.
    struct statvfs mount{};
    if (::statvfs(path.c_str(), &mount) != 0 || (mount.f_flag & ST_RDONLY) == 0)
      return Fail(Code::kInternal, fmt::format("{} would be writable to the workload", path));
  }
  return {};
}

}  // namespace sluice::supervisor
