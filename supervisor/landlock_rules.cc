#include "supervisor/landlock_rules.h"

#include <fmt/format.h>

namespace sluice::supervisor {
namespace {

// include/uapi/linux/landlock.h
constexpr uint64_t kExecute = 1U << 0;
constexpr uint64_t kWriteFile = 1U << 1;
constexpr uint64_t kReadFile = 1U << 2;
constexpr uint64_t kReadDir = 1U << 3;
constexpr uint64_t kMakeChar = 1U << 6;
constexpr uint64_t kMakeBlock = 1U << 11;
constexpr uint64_t kFirstAbi = (1U << 13) - 1;
constexpr uint64_t kRefer = 1U << 13;        // ABI 2
constexpr uint64_t kTruncate = 1U << 14;     // ABI 3
constexpr uint64_t kIoctlDev = 1U << 15;     // ABI 5
constexpr uint64_t kResolveUnix = 1U << 16;  // ABI 9
constexpr uint64_t kConnectTcp = 1U << 1;
constexpr uint64_t kScopeAbstractUnix = 1U << 0;
constexpr uint64_t kScopeSignal = 1U << 1;

constexpr uint64_t AllFs(int abi) {
  uint64_t all = kFirstAbi;
  if (abi >= 2) all |= kRefer;
  if (abi >= 3) all |= kTruncate;
  if (abi >= 5) all |= kIoctlDev;
  if (abi >= kUnixLandlockAbi) all |= kResolveUnix;
  return all;
}

}  // namespace

Result<LandlockHandled> HandledBy(int abi, LandlockFiles files) {
  if (abi < kRequiredLandlockAbi)
    return Fail(Code::kUnsupported,
                fmt::format("this kernel's Landlock is ABI {}; {} is needed (Linux 6.7, CONFIG_SECURITY_LANDLOCK "
                            "and \"landlock\" in the lsm= list)",
                            abi, kRequiredLandlockAbi));
  LandlockHandled handled;
  if (files == LandlockFiles::kHeld) handled.access_fs = AllFs(abi);
  handled.access_net = kConnectTcp;
  if (abi >= kScopeLandlockAbi) handled.scoped = kScopeAbstractUnix | kScopeSignal;
  return handled;
}

std::vector<LandlockRule> RulesFor(const MountPlan& plan, int abi) {
  std::vector<LandlockRule> rules;
  if (plan.own_mounts) return rules;
  rules.push_back({"/", kExecute | kReadFile | kReadDir});
  // No device can be made in a user namespace; the domain says so too. The workload's own sockets need no rule.
  for (const std::string& tree : plan.writable) rules.push_back({tree, AllFs(abi) & ~(kMakeChar | kMakeBlock | kResolveUnix)});
  if (abi >= kUnixLandlockAbi)
    for (const std::string& socket : plan.unix_sockets) rules.push_back({socket, kResolveUnix});
  for (const char* device : {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"})
    rules.push_back({device, StandardFileAccess(abi)});
  rules.push_back({"/dev/pts", StandardFileAccess(abi)});
  // uid_map and its like; the rest of /proc is mounted read-only.
  if (plan.writable_processes) rules.push_back({"/proc", (kWriteFile | kTruncate) & AllFs(abi)});
  return rules;
}

uint64_t StandardFileAccess(int abi) { return (kWriteFile | kReadFile | kTruncate | kIoctlDev) & AllFs(abi); }

}  // namespace sluice::supervisor
