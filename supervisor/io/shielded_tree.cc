#include "supervisor/io/shielded_tree.h"

#include <grp.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "supervisor/io/mount_calls.h"

namespace sluice::supervisor {
namespace {

constexpr uid_t kNobody = 65534;

// Makes this thread nobody for the file system while it lives: no group, and no capability over files, which the kernel takes
// away with the user. An overlay keeps those rights for good.
class AsNobody {
 public:
  Result<void> Enter() {
    const int count = ::getgroups(0, nullptr);
    groups_.resize(count < 0 ? 0 : static_cast<size_t>(count));
    if (count < 0 || ::getgroups(count, groups_.data()) != count) return FailErrno("getgroups", errno);
    dumpable_ = ::prctl(PR_GET_DUMPABLE);
    ::prctl(PR_GET_PDEATHSIG, &death_signal_);
    // Not the C library's setgroups, which would have every thread of a process that was copied do the same.
    if (::syscall(SYS_setgroups, 0, nullptr) != 0) return FailErrno("setgroups", errno);
    entered_ = true;
    ::setfsgid(kNobody);
    ::setfsuid(kNobody);
    // They do not say that they failed; asking for no valid id answers with the present one.
    if (static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1))) != kNobody ||
        static_cast<gid_t>(::setfsgid(static_cast<gid_t>(-1))) != kNobody)
      return Fail(Code::kUnsupported, "this user namespace has no user nobody");
    return {};
  }

  Result<void> Leave() {
    if (!entered_) return {};
    ::setfsuid(::geteuid());
    ::setfsgid(::getegid());
    // The kernel cleared both when the user changed.
    if (dumpable_ == 1) ::prctl(PR_SET_DUMPABLE, 1);
    if (::prctl(PR_SET_PDEATHSIG, death_signal_) != 0) return FailErrno("prctl(PR_SET_PDEATHSIG)", errno);
    if (::syscall(SYS_setgroups, groups_.size(), groups_.data()) != 0) return FailErrno("cannot take the groups back", errno);
    return {};
  }

 private:
  std::vector<gid_t> groups_;
  int dumpable_ = 0;
  int death_signal_ = 0;
  bool entered_ = false;
};

Result<UniqueFd> Overlay(const std::string& tree, const std::string& empty) {
  // Inode numbers that agree with the device's, for programs that compare both. Nothing in the tree may redirect.
  return NewFileSystem("overlay", {{"lowerdir", (tree + ":" + empty).c_str()}, {"redirect_dir", "nofollow"}, {"xino", "on"}},
                       MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

}  // namespace

Result<UniqueFd> ShieldTree(const std::string& tree, const std::string& empty, Reader reader) {
  if (reader == Reader::kSelf) return Overlay(tree, empty);
  AsNobody nobody;
  auto entered = nobody.Enter();
  Result<UniqueFd> made = entered ? Overlay(tree, empty) : std::unexpected(entered.error());
  if (auto left = nobody.Leave(); !left) ::_exit(1);  // in between there is no going on
  return made;
}

}  // namespace sluice::supervisor
