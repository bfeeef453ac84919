#pragma once

// What the workload sees of the file system, decided before anything is mounted. The view starts empty and is filled by an
// allow-list: read-only system trees, the granted trees, private scratch space. Pure: the host's facts come in as values.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "supervisor/launch_spec.h"

namespace sluice::supervisor {

enum class EntryKind : uint8_t { kAbsent, kDirectory, kFile, kSymlink };

/// A path of the host as it stands, not followed.
struct HostEntry {
  std::string path;
  EntryKind kind = EntryKind::kAbsent;
  std::string link;  ///< of a symbolic link
};

/// A folder of a system tree that cannot be shown as one: something is mounted below it. `entries` are shown one by one.
struct OpenedFolder {
  std::string path;
  std::vector<HostEntry> entries;
};

/// Something that is mounted on a folder of a system tree which is at hand without it.
struct MountedEntry {
  HostEntry entry;
  bool shown = false;  ///< else it is hidden, and so is what it covers
};

/// What the plan needs to know of the host. All paths absolute and canonical but where a comment says otherwise.
struct HostFacts {
  std::vector<HostEntry> system;      ///< the entries of SystemPaths(), and of SecretPaths()
  std::vector<HostEntry> protect;     ///< LaunchSpec::protect, resolved; kAbsent where nothing is there
  std::vector<std::string> sockets;   ///< sockets and FIFOs found below granted trees
  std::vector<OpenedFolder> opened;   ///< of system trees, a parent before what lies below it
  std::vector<std::string> bare;      ///< folders of system trees that are at hand without what is mounted below them
  std::vector<MountedEntry> mounted;  ///< below those, a parent before what lies below it
  std::vector<HostEntry> run_later;   ///< found in writable trees, run by the user's own tools later (git hooks and the like)
};

/// Trees and links every program needs, shown read-only where the host has them.
[[nodiscard]] const std::vector<std::string>& SystemPaths();
/// Hidden inside those trees whatever their modes say: password hashes and private keys.
[[nodiscard]] const std::vector<std::string>& SecretPaths();
/// Below a writable home directory: what shells, sshd and the session run later.
[[nodiscard]] const std::vector<std::string>& RunLaterHomePaths();

enum class Access : uint8_t { kReadOnly, kWritable };

struct MountStep {
  enum class Kind : uint8_t {
    kBind,       ///< `source` of the host, recursive, with `access`
    kShield,     ///< `source` of the host, read-only, through a file system of its own: no socket or FIFO in it leads out
    kDevice,     ///< a device node of the host
    kScratch,    ///< an empty writable tmpfs, `mode`
    kProc,       ///< a new procfs of the pid namespace; writable, it is so in the folders of processes alone
    kTerminals,  ///< a new devpts
    kGroups,     ///< the sandbox's own control groups (version 2), read-only
    kLink,       ///< a symbolic link to `source`
    kFolder,     ///< an empty folder that mounts below it need; stays read-only
    kPin,        ///< the folder bound onto itself, so that it cannot be renamed away
    kLock,       ///< the file or folder bound onto itself read-only
    kMask,       ///< hidden: nothing can be read of it or connected through it
    kOverlay,    ///< read-only file with overlays[overlay].content
  };
  Kind kind = Kind::kBind;
  std::string target;
  std::string source;
  Access access = Access::kReadOnly;
  uint32_t mode = 0755;
  size_t overlay = 0;
  bool optional = false;  ///< of an overlay: as FileOverlay's
  bool bare = false;      ///< of a shield: `source` without what is mounted below it
  bool whole = false;     ///< of a procfs: writable as the kernel has it, with nothing laid over it
  bool operator==(const MountStep&) const = default;
};

struct MountPlan {
  std::vector<MountStep> steps;                ///< in the order to be done
  std::vector<std::string> writable;           ///< trees the workload may write: granted and scratch
  std::vector<std::string> granted;            ///< trees of the host in the view, read-only or writable
  std::vector<std::string> unix_sockets;       ///< of the host, which a rule opens
  std::vector<std::string> must_be_read_only;  ///< verified after mounting, before anything runs
  bool writable_processes = false;             ///< the workload may write its own processes' files in /proc
  bool own_mounts = false;                     ///< the workload may mount in namespaces of its own
  std::string work_directory;
};

/// Bounds of a view; a plan beyond them is refused (kExhausted).
inline constexpr size_t kMaxGrantedTrees = 256;
inline constexpr size_t kMaxMountSteps = 16384;

/// Whether the grants can be given at all; PlanMounts checks the same. Before the host is looked at, since "/" would be walked.
[[nodiscard]] Result<void> CheckGrants(const LaunchSpec& spec);

/// kInvalid: a grant that would open what the view exists to close (/, /proc, /dev, …), two grants that disagree, a
/// protected path that would stay writable, or a hidden one that lies in a granted tree. For a workload with mounts of its own,
/// anything that a mount would hold in a tree that it may write, too.
[[nodiscard]] Result<MountPlan> PlanMounts(const LaunchSpec& spec, const HostFacts& facts);

/// Whether `path` is `tree` or lies below it. Both absolute, without a final slash.
[[nodiscard]] bool IsWithin(std::string_view path, std::string_view tree);

}  // namespace sluice::supervisor
