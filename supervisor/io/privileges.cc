#include "supervisor/io/privileges.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/keyctl.h>
#include <linux/landlock.h>
#include <linux/securebits.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/fault.h"
#include "base/unique_fd.h"
#include "supervisor/landlock_rules.h"

namespace sluice::supervisor {
namespace {

// Each bit together with its lock (SECBIT_X_LOCKED is the next bit up).
constexpr unsigned long kSecureBits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                                      SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
                                      SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

Result<void> EmptyBoundingSet() {
  for (unsigned long capability = 0; ::prctl(PR_CAPBSET_DROP, capability) == 0; ++capability) {
  }
  if (errno != EINVAL) return FailErrno("cannot empty the bounding set", errno);  // EINVAL: past the last capability
  if (Faulty("launch.secure-bits", [] { return ::prctl(PR_SET_SECUREBITS, kSecureBits); }) != 0)
    return FailErrno("cannot lock the secure bits", errno);
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0) return FailErrno("cannot clear the ambient set", errno);
  return {};
}

// One byte: file dumps are cut to nothing, and a core_pattern that pipes to a program of the host is not started at all.
void LimitCores() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_CORE, &limit) != 0) return;
  const rlim_t one = std::min<rlim_t>(limit.rlim_max, 1);
  limit.rlim_cur = limit.rlim_max = one;
  ::setrlimit(RLIMIT_CORE, &limit);
}

Result<void> AddRule(int ruleset, int parent, uint64_t access, const std::string& what) {
  landlock_path_beneath_attr rule{};
  rule.allowed_access = access;
  rule.parent_fd = parent;
  const auto add = [&] { return ::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0); };
  if (Faulty("landlock.rule", add) != 0) return FailErrno(fmt::format("cannot add a Landlock rule for {}", what), errno);
  return {};
}

// /dev/stdout of a workload whose output is a file opens that file anew, wherever it lies. There is no rule for one in memory
// (EBADFD): what is open stays so, and it is not opened anew.
Result<void> AllowStandardFiles(int ruleset, int abi) {
  for (int fd = 0; fd <= 2; ++fd) {
    struct stat about{};
    if (::fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) continue;
    auto added = AddRule(ruleset, fd, StandardFileAccess(abi), fmt::format("descriptor {}", fd));
    if (!added && added.error().sys_errno != EBADFD) return added;
  }
  return {};
}

}  // namespace

Result<void> DropCapabilities() {
  cap_t none = cap_init();
  const int set = Faulty("launch.capabilities", [&] { return cap_set_proc(none); });
  const int error = errno;
  cap_free(none);
  if (set != 0) return FailErrno("cannot drop capabilities", error);
  return {};
}

Result<void> DropPrivileges() {
  if (Faulty("launch.no-new-privs", [] { return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); }) != 0)
    return FailErrno("cannot set no_new_privs", errno);
  if (auto emptied = EmptyBoundingSet(); !emptied) return emptied;
  if (auto dropped = DropCapabilities(); !dropped) return dropped;
  LimitCores();
  // Keys of the user's session stay out of reach. A kernel without keyrings has none to hide.
  if (Faulty("launch.keyring", [] { return ::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr); }) < 0 && errno != ENOSYS)
    return FailErrno("cannot leave the session keyring", errno);
  return {};
}

Result<void> KeepReadingOnly(NetworkRights network) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return FailErrno("cannot set no_new_privs", errno);
  cap_t now = cap_get_proc();
  cap_t kept = cap_init();
  for (const cap_value_t capability : {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_NET_ADMIN, CAP_NET_RAW}) {
    const bool of_network = capability == CAP_NET_ADMIN || capability == CAP_NET_RAW;
    if (of_network && network == NetworkRights::kNone) continue;
    cap_flag_value_t held = CAP_CLEAR;
    if (now == nullptr || cap_get_flag(now, capability, CAP_PERMITTED, &held) != 0 || held != CAP_SET) continue;
    cap_set_flag(kept, CAP_PERMITTED, 1, &capability, CAP_SET);
    cap_set_flag(kept, CAP_EFFECTIVE, 1, &capability, CAP_SET);
  }
  const int set = cap_set_proc(kept);
  const int error = errno;
  cap_free(now);
  cap_free(kept);
  if (set != 0) return FailErrno("cannot drop capabilities", error);
  LimitCores();
  return {};
}

Result<void> ForbidDumps() {
#ifndef SLUICE_SANITIZED  // the leak checker traces its own process
  if (::prctl(PR_SET_DUMPABLE, 0) != 0) return FailErrno("prctl(PR_SET_DUMPABLE)", errno);
#endif
  return {};
}

int LandlockAbi() {
  const long abi = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return abi < 0 ? 0 : static_cast<int>(abi);
}

Result<void> EnterLandlock(const MountPlan& plan, int abi) {
  const auto handled = HandledBy(abi, plan.own_mounts ? LandlockFiles::kLeftToMounts : LandlockFiles::kHeld);
  if (!handled) return std::unexpected(handled.error());
  // The kernel takes a shorter structure from those who know fewer fields, and refuses unknown ones only when set.
  const size_t size = handled->scoped != 0 ? sizeof *handled : sizeof *handled - sizeof handled->scoped;
  const UniqueFd ruleset(
      static_cast<int>(Faulty("landlock.make", [&] { return ::syscall(SYS_landlock_create_ruleset, &*handled, size, 0); })));
  if (!ruleset) return FailErrno("cannot create a Landlock ruleset", errno);
  for (const LandlockRule& rule : RulesFor(plan, abi)) {
    const UniqueFd path(::open(rule.path.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW));
    if (!path) return FailErrno(fmt::format("cannot open {} for Landlock", rule.path), errno);
    if (auto added = AddRule(ruleset.get(), path.get(), rule.access, rule.path); !added) return added;
  }
  if (!plan.own_mounts)
    if (auto allowed = AllowStandardFiles(ruleset.get(), abi); !allowed) return allowed;
  if (Faulty("landlock.enter", [&] { return ::syscall(SYS_landlock_restrict_self, ruleset.get(), 0); }) != 0)
    return FailErrno("cannot enter the Landlock domain", errno);
  return {};
}

}  // namespace sluice::supervisor
