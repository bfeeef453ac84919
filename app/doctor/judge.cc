#include "app/doctor/judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "app/host.h"
#include "supervisor/landlock_rules.h"

namespace sluice::app {
namespace {

constexpr unsigned kNetAdmin = 12;
constexpr unsigned kNetRaw = 13;
constexpr unsigned kSysPtrace = 19;
constexpr unsigned kSysAdmin = 21;
/// Processes and threads of a sandbox without its command: workers, resolver, writer, notifier, the sandbox's own.
constexpr uint64_t kOwnProcesses = 64;
/// Below it, "limited": a browser or a package manager opens hundreds of connections.
constexpr uint64_t kPlentyOfDescriptors = 4096;

Check Ok(Feature feature, std::string name, std::string found) {
  return {feature, std::move(name), Finding::kOk, std::move(found), {}};
}
Check Limited(Feature feature, std::string name, std::string found, std::string advice) {
  return {feature, std::move(name), Finding::kLimited, std::move(found), std::move(advice)};
}
Check Missing(Feature feature, std::string name, std::string found, std::string advice) {
  return {feature, std::move(name), Finding::kMissing, std::move(found), std::move(advice)};
}

Check JudgeKernel(const PlaceFacts& place) {
  const std::string found = fmt::format("{} {}", place.release, place.machine);
  if (IsImitation(PlaceOf(place))) return Missing(Feature::kKernel, "kernel", found, PlaceRemark(place));
  if (place.machine != "x86_64")
    return Missing(Feature::kKernel, "kernel", found, "this version of sluice knows the system calls of x86-64 alone");
  return Ok(Feature::kKernel, "kernel", found);
}

Check JudgeLandlock(int abi) {
  constexpr const char* kName = "landlock";
  if (abi == 0)
    return Missing(
        Feature::kLandlock, kName, "off",
        "add landlock to the kernel's list of security modules: boot with lsm=landlock,... (CONFIG_SECURITY_LANDLOCK)");
  if (abi < supervisor::kRequiredLandlockAbi)
    return Missing(
        Feature::kLandlock, kName, fmt::format("ABI {}: files alone", abi),
        fmt::format("ABI {} can refuse TCP connects: Linux 6.7 or later (Debian: linux-image-amd64 of bookworm-backports)",
                    supervisor::kRequiredLandlockAbi));
  if (abi < supervisor::kScopeLandlockAbi)
    return Limited(Feature::kLandlock, kName, fmt::format("ABI {}: files and TCP", abi),
                   "signals and abstract sockets are held in by namespaces alone; Linux 6.12 adds a second lock");
  if (abi < supervisor::kUnixLandlockAbi)
    return Ok(Feature::kLandlock, kName, fmt::format("ABI {}: files, TCP, signals, abstract sockets", abi));
  return Ok(Feature::kLandlock, kName, fmt::format("ABI {}: files, TCP, signals, abstract and path sockets", abi));
}

void JudgeCapabilities(const PlaceFacts& place, std::vector<Check>* checks) {
  const bool net_admin = Holds(place, kNetAdmin);
  Check check{Feature::kCapabilities, "capabilities.net-admin", net_admin ? Finding::kOk : Finding::kMissing,
              net_admin ? "CAP_NET_ADMIN" : "no CAP_NET_ADMIN", net_admin ? "" : WhatToAdd(place, Lack::kNetAdmin)};
  checks->push_back(std::move(check));
  if (Holds(place, kNetRaw)) {
    checks->push_back(Ok(Feature::kCapabilities, "capabilities.net-raw", "CAP_NET_RAW"));
  } else {
    checks->push_back(Limited(Feature::kCapabilities, "capabilities.net-raw", "no CAP_NET_RAW",
                              "a sidecar then guards no AF_XDP queues: give the workload no CAP_NET_RAW either"));
  }
  const bool others = Holds(place, kSysPtrace) && Holds(place, kSysAdmin);
  checks->push_back(others
                        ? Ok(Feature::kCapabilities, "capabilities.others", "CAP_SYS_PTRACE and CAP_SYS_ADMIN")
                        : Limited(Feature::kCapabilities, "capabilities.others", "no CAP_SYS_PTRACE or no CAP_SYS_ADMIN",
                                  "containers that another user started cannot be supervised from here, and a sidecar tells no "
                                  "processes apart (rules with `by`)"));
}

Check JudgeCgroup(const CgroupFacts& cgroup) {
  constexpr const char* kName = "cgroup";
  if (!cgroup.unified)
    return Limited(Feature::kCgroup, kName, "cgroup 2 is not mounted at /sys/fs/cgroup",
                   "limits of a run are held by version 1 where memory and pids are in it, else by rlimits; boot with "
                   "systemd.unified_cgroup_hierarchy=1");
  if (!cgroup.writable)
    return Limited(
        Feature::kCgroup, kName, fmt::format("cgroup 2, {} is not delegated", cgroup.path.empty() ? "/" : cgroup.path),
        "limits of a run fall back to rlimits; start it with systemd-run --user --scope -p Delegate=yes, or Delegate=yes in "
        "its unit");
  return Ok(Feature::kCgroup, kName, fmt::format("cgroup 2, delegated: {}", cgroup.controllers));
}

Check JudgeDescriptors(uint64_t hard) {
  constexpr const char* kName = "descriptors";
  const std::string found = fmt::format("RLIMIT_NOFILE {}", hard);
  if (hard < kMinDescriptors)
    return Missing(
        Feature::kDescriptors, kName, found,
        fmt::format("at least {} are needed, a connection takes two to six: raise the hard limit (ulimit -Hn, LimitNOFILE=)",
                    kMinDescriptors));
  if (hard < kPlentyOfDescriptors)
    return Limited(
        Feature::kDescriptors, kName, found,
        fmt::format("room for about {} connections at a time: raise the hard limit (ulimit -Hn, LimitNOFILE=)", hard / 6));
  return Ok(Feature::kDescriptors, kName, found);
}

Check JudgeProcesses(const MachineFacts& facts) {
  constexpr const char* kName = "processes";
  uint64_t room = UINT64_MAX;
  std::string what = "no limit";
  const auto take = [&](std::optional<uint64_t> limit, uint64_t used, std::string_view text) {
    if (!limit) return;
    const uint64_t left = *limit > used ? *limit - used : 0;
    if (left >= room) return;
    room = left;
    what = fmt::format("{} {}", text, *limit);
  };
  take(facts.threads_max, 0, "kernel.threads-max");
  take(facts.processes_limit, 0, "RLIMIT_NPROC");
  take(facts.cgroup.pids_max, facts.cgroup.pids_now.value_or(0), "pids.max");
  if (room < kOwnProcesses)
    return Missing(
        Feature::kProcesses, kName, fmt::format("{}: room for {}", what, room),
        fmt::format("a sandbox takes about {} threads beside its command: raise it (TasksMax=, ulimit -u, --pids-limit)",
                    kOwnProcesses));
  if (room < 4 * kOwnProcesses)
    return Limited(Feature::kProcesses, kName, fmt::format("{}: room for {}", what, room),
                   "a command that starts many processes will be refused some (TasksMax=, ulimit -u, --pids-limit)");
  return Ok(Feature::kProcesses, kName, what);
}

// Of a fault of a probe what a person can do about it.
std::string Because(const Error& error) { return error.message; }

Check FromTrial(const TrialInfo& info, const Result<void>* outcome, const PlaceFacts& place) {
  if (outcome == nullptr) return {info.feature, info.name, Finding::kNotTried, "not tried: what it needs is missing", {}};
  if (*outcome) return Ok(info.feature, info.name, info.what);
  std::string advice = info.advice;
  if (info.feature == Feature::kMounts && place.masked_proc && info.name == "mounts.proc") advice = WhatToAdd(place, Lack::kProc);
  if (!info.without.empty()) return Limited(info.feature, info.name, Because(outcome->error()), info.without);
  return Missing(info.feature, info.name, Because(outcome->error()), advice);
}

std::vector<Check> FromTrials(const supervisor::Tried& tried, const std::vector<TrialInfo>& trials, const PlaceFacts& place) {
  std::vector<Check> checks;
  for (size_t i = 0; i < trials.size(); ++i)
    checks.push_back(FromTrial(trials[i], i < tried.outcomes.size() ? &tried.outcomes[i] : nullptr, place));
  return checks;
}

}  // namespace

std::vector<Check> JudgeMachine(const MachineFacts& facts) {
  std::vector<Check> checks;
  checks.push_back(JudgeKernel(facts.place));
  checks.push_back(JudgeLandlock(facts.landlock_abi));
  JudgeCapabilities(facts.place, &checks);
  checks.push_back(JudgeCgroup(facts.cgroup));
  checks.push_back(JudgeDescriptors(facts.descriptors_hard));
  checks.push_back(JudgeProcesses(facts));
  if (facts.mesh)
    checks.push_back(Limited(Feature::kFenceRules, "nft-fence.mesh",
                             fmt::format("{} is in this network: {}", facts.mesh->name, facts.mesh->sign), facts.mesh->advice));
  return checks;
}

std::vector<Check> JudgeNotifications(const supervisor::NotifyFeatures& features, const PlaceFacts& place) {
  std::vector<Check> checks;
  const std::string fault =
      features.fault_errno != 0 ? fmt::format("{}: {}", features.fault, std::strerror(features.fault_errno)) : features.fault;
  if (!features.listener) {
    checks.push_back(Missing(Feature::kNotifications, "notifications.listener", fault, WhatToAdd(place, Lack::kNotifications)));
    return checks;
  }
  if (!features.pidfd_getfd) {
    checks.push_back(Missing(Feature::kTracing, "tracing.pidfd-getfd",
                             fault.empty() ? "the taken socket was not the caller's" : fault, WhatToAdd(place, Lack::kTracing)));
    if (!features.reply) {
      checks.push_back(
          {Feature::kNotifications, "notifications.listener", Finding::kNotTried, "not tried: no descriptor may be taken", {}});
      return checks;
    }
  } else {
    checks.push_back(Ok(Feature::kTracing, "tracing.pidfd-getfd", "a caller's socket is connected in its place"));
  }
  const auto needed = [&](Feature feature, const char* name, bool has, const char* what, const char* since) {
    checks.push_back(has ? Ok(feature, name, what) : Missing(feature, name, fmt::format("no: {}", what), since));
  };
  const auto wanted = [&](Feature feature, const char* name, bool has, const char* what, const char* without) {
    checks.push_back(has ? Ok(feature, name, what) : Limited(feature, name, fmt::format("no: {}", what), without));
  };
  needed(Feature::kTracing, "tracing.memory", features.read_memory, "a caller's memory is read",
         "process_vm_readv needs CONFIG_CROSS_MEMORY_ATTACH, and a seccomp profile that allows it");
  needed(Feature::kTracing, "tracing.netns-cookie", features.netns_cookie, "a socket tells its namespace",
         "SO_NETNS_COOKIE needs Linux 5.14");
  wanted(Feature::kTracing, "tracing.thread-pidfd", features.thread_pidfd, "PIDFD_THREAD",
         "a thread that unshared its descriptors may not connect before Linux 6.9");
  needed(Feature::kNotifications, "notifications.reply", features.reply, "NEW_LISTENER, NOTIF_RECV, NOTIF_SEND",
         "Linux 5.0 or later");
  needed(Feature::kNotifications, "notifications.id-valid", features.id_valid, "NOTIF_ID_VALID", "Linux 5.0 or later");
  needed(Feature::kNotifications, "notifications.continue", features.carry_on, "CONTINUE", "Linux 5.5 or later");
  needed(Feature::kNotifications, "notifications.one-listener", features.one_listener, "a second listener is refused",
         "Linux 5.0 or later");
  wanted(Feature::kNotifications, "notifications.wait-killable", features.wait_killable, "WAIT_KILLABLE_RECV",
         "programs see EINTR more often than natively before Linux 5.19");
  wanted(Feature::kNotifications, "notifications.sync-wake-up", features.sync_wake_up, "SYNC_WAKE_UP",
         "connects wait longer on a busy machine before Linux 6.6");
  wanted(Feature::kNotifications, "notifications.tsync", features.tsync_esrch, "TSYNC beside a listener (TSYNC_ESRCH)",
         "of no use to sluice's own launcher; agents that filter running threads need Linux 5.7");
  wanted(Feature::kNotifications, "notifications.addfd", features.add_fd && features.add_fd_at && features.add_fd_send,
         "ADDFD, ADDFD_SETFD, ADDFD_SEND",
         "of no use to this version of sluice, which acts on the caller's own socket; Linux 5.14");
  return checks;
}

std::vector<Check> JudgeSandbox(const supervisor::Tried& tried, const std::vector<TrialInfo>& trials, const PlaceFacts& place) {
  std::vector<Check> checks;
  if (tried.made) {
    checks.push_back(
        Ok(Feature::kUserNamespaces, "user-namespaces", "user, network, mount, pid, IPC and UTS namespaces, identities mapped"));
  } else {
    const Error& error = tried.made.error();
    std::string found;
    switch (tried.step) {
      case supervisor::Making::kUserNamespace:
        found = fmt::format("no user namespace may be made: {}", std::strerror(error.sys_errno));
        break;
      case supervisor::Making::kMaps:
        found = fmt::format("identities cannot be mapped in a user namespace: {}", error.message);
        break;
      case supervisor::Making::kOtherNamespaces:
        found = fmt::format("a user namespace gives no rights over others: {}", std::strerror(error.sys_errno));
        break;
      case supervisor::Making::kChild:
        found = error.message;
        break;
    }
    checks.push_back(Missing(Feature::kUserNamespaces, "user-namespaces", found, WhatToAdd(place, Lack::kUserNamespaces)));
  }
  for (Check& check : FromTrials(tried, trials, place)) checks.push_back(std::move(check));
  return checks;
}

std::vector<Check> JudgeFence(const supervisor::Tried& tried, const std::vector<TrialInfo>& trials, const PlaceFacts& place,
                              const std::string& where) {
  std::vector<Check> checks = FromTrials(tried, trials, place);
  for (Check& check : checks) {
    if (check.finding == Finding::kOk && !where.empty() && check.name == "nft-fence.ruleset") check.found += ", " + where;
    if (check.finding == Finding::kNotTried && !tried.made)
      check.found = fmt::format("not tried: {}", tried.made.error().message);
  }
  return checks;
}

Check JudgeSelfTest(Feature feature, const SelfTest& test) {
  const char* name = InfoOf(feature).name;
  if (!test.tried) return {feature, name, Finding::kNotTried, test.detail, {}};
  if (test.allowed && test.denied) return Ok(feature, name, "what is allowed went through, what is not was refused");
  std::string found = test.allowed ? "" : "what is allowed did not go through";
  if (!test.denied) found += fmt::format("{}what must be refused was not", found.empty() ? "" : "; ");
  if (!test.detail.empty()) found += ": " + test.detail;
  return Missing(feature, name, found, test.denied ? "" : "run nothing here that must be held until this is understood");
}

Check JudgeTrust(const std::vector<Runtime>& runtimes) {
  constexpr const char* kName = "trust";
  std::vector<std::string_view> trusting;
  std::vector<std::string_view> refusing;
  for (const Runtime& runtime : runtimes) {
    if (runtime.trusts == Trusts::kYes) trusting.emplace_back(runtime.name);
    if (runtime.trusts == Trusts::kNo) refusing.emplace_back(runtime.name);
  }
  if (trusting.empty() && refusing.empty())
    return {Feature::kTrust,
            kName,
            Finding::kNotTried,
            runtimes.empty() ? "no program was tried" : "none of the programs could be tried",
            {}};
  if (refusing.empty()) return Ok(Feature::kTrust, kName, fmt::format("{}", fmt::join(trusting, " ")));
  return Limited(Feature::kTrust, kName, fmt::format("not by {}", fmt::join(refusing, " ")),
                 "requests of theirs that a rule must see inside fail in the TLS handshake: use a `tls` rule for what they "
                 "reach, or add the "
                 "certificate that SSL_CERT_FILE names to their own store");
}

Check JudgeContainerRuntimes(const std::vector<ContainerRuntime>& runtimes) {
  constexpr const char* kName = "container-runtimes";
  if (runtimes.empty())
    return {
        Feature::kContainerRuntimes, kName, Finding::kNotTried, "no runc, crun, youki, podman, docker or containerd on PATH", {}};
  std::vector<std::string> found;
  bool notifies = false;
  for (const ContainerRuntime& runtime : runtimes) {
    const bool known = runtime.notifies == Notifies::kYes;
    notifies = notifies || known;
    const std::string version = runtime.version.empty() ? runtime.name : runtime.version;
    found.push_back(version + (known ? " (hands notifications over)" : ""));
  }
  std::string text = fmt::format("{}", fmt::join(found, ", "));
  if (notifies) return Ok(Feature::kContainerRuntimes, kName, std::move(text));
  return Limited(
      Feature::kContainerRuntimes, kName, std::move(text),
      "none of them says that it knows SCMP_ACT_NOTIFY: runc 1.1 and crun 0.19 do, built with libseccomp 2.5 or later");
}

}  // namespace sluice::app
