// What `sluice doctor` makes of machines that are not here, and how it tells.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "app/doctor/io/inside.h"
#include "app/doctor/judge.h"
#include "app/doctor/machine.h"
#include "app/doctor/place.h"
#include "app/doctor/report.h"

namespace sluice::app {
namespace {

using testing::Contains;
using testing::Field;
using testing::HasSubstr;

constexpr uint64_t kAllCapabilities = (uint64_t{1} << 41) - 1;
constexpr uint64_t kNetAdmin = uint64_t{1} << 12;

PlaceFacts Debian() {
  PlaceFacts facts;
  facts.machine = "x86_64";
  facts.release = "6.12.48+deb13-amd64";
  facts.version = "#1 SMP PREEMPT_DYNAMIC Debian 6.12.48-1";
  facts.proc_version =
      "Linux version 6.12.48+deb13-amd64 (debian-kernel@lists.debian.org) (x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19)) #1 SMP";
  facts.cgroup = "0::/user.slice/user-1000.slice/session-2.scope";
  facts.uid = 1000;
  return facts;
}

PlaceFacts Gvisor() {
  PlaceFacts facts;
  facts.machine = "x86_64";
  facts.release = "4.4.0";
  facts.version = "#1 SMP Sun Jan 10 15:06:54 PST 2016";
  facts.proc_version = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016";
  facts.kubernetes = true;
  facts.capabilities = 0xa80425fb;
  return facts;
}

PlaceFacts Docker() {
  PlaceFacts facts = Debian();
  facts.cgroup = "0::/";
  facts.dockerenv = true;
  facts.filtered = true;
  facts.masked_proc = true;
  facts.apparmor = "docker-default (enforce)";
  facts.uid = 0;
  facts.capabilities = 0xa80425fb;
  return facts;
}

struct PlaceCase {
  const char* name;
  PlaceFacts facts;
  Place place;
};

template <class Change>
PlaceFacts With(PlaceFacts facts, Change change) {
  change(facts);
  return facts;
}

std::vector<PlaceCase> PlaceCases() {
  return {
      {"Debian", Debian(), Place::kLinux},
      {"Ubuntu's own 4.4.0 is no gVisor",
       With(
           Debian(),
           [](PlaceFacts& f) { f.release = "4.4.0", f.proc_version = "Linux version 4.4.0 (root@builder) (gcc version 5.4.0)"; }),
       Place::kLinux},
      {"gVisor in a pod", Gvisor(), Place::kGvisor},
      {"gVisor with a newer release", With(Gvisor(), [](PlaceFacts& f) { f.release = "4.19.0-gvisor"; }), Place::kGvisor},
      {"gVisor that tells it in its log",
       With(Debian(), [](PlaceFacts& f) { f.kernel_log = "[    0.000000] Starting gVisor...\n"; }), Place::kGvisor},
      {"WSL 1",
       With(Debian(),
            [](PlaceFacts& f) {
              f.release = "4.4.0-19041-Microsoft";
              f.proc_version =
                  "Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com) (gcc version 5.4.0 (GCC) ) #488-Microsoft";
              f.wsl_interop = true;
            }),
       Place::kWsl1},
      {"WSL 2", With(Debian(), [](PlaceFacts& f) { f.release = "5.15.153.1-microsoft-standard-WSL2"; }), Place::kWsl2},
      {"WSL 2 with a kernel of one's own", With(Debian(), [](PlaceFacts& f) { f.wsl_interop = true; }), Place::kWsl2},
      {"Docker in WSL 2", With(Docker(), [](PlaceFacts& f) { f.release = "5.15.153.1-microsoft-standard-WSL2"; }),
       Place::kDocker},
      {"Docker on cgroup 2", Docker(), Place::kDocker},
      {"Docker on cgroup 1", With(Debian(), [](PlaceFacts& f) { f.cgroup = "9:pids:/docker/4f1c2a"; }), Place::kDocker},
      {"Podman", With(Debian(), [](PlaceFacts& f) { f.containerenv = "engine=\"podman-4.3.1\"\nrootless=1"; }), Place::kPodman},
      {"Podman by its variable", With(Debian(), [](PlaceFacts& f) { f.container = "podman"; }), Place::kPodman},
      {"Kubernetes by its cgroup", With(Debian(), [](PlaceFacts& f) { f.cgroup = "0::/kubepods.slice/kubepods-pod1.slice"; }),
       Place::kKubernetes},
      {"Kubernetes by its variable", With(Docker(), [](PlaceFacts& f) { f.kubernetes = true; }), Place::kKubernetes},
      {"LXC", With(Debian(), [](PlaceFacts& f) { f.container = "lxc"; }), Place::kLxc},
      {"nspawn", With(Debian(), [](PlaceFacts& f) { f.container = "systemd-nspawn"; }), Place::kNspawn},
      {"something else", With(Debian(), [](PlaceFacts& f) { f.container = "oci"; }), Place::kContainer},
  };
}

TEST(DoctorPlace, IsKnownByWhatThereIsToSee) {
  for (const PlaceCase& c : PlaceCases()) EXPECT_EQ(PlaceName(PlaceOf(c.facts)), std::string(PlaceName(c.place))) << c.name;
}

struct AdviceCase {
  const char* name;
  PlaceFacts facts;
  Lack lack;
  const char* says;
};

TEST(DoctorPlace, SaysWhatToAddThere) {
  const std::vector<AdviceCase> cases = {
      {"Docker", Docker(), Lack::kUserNamespaces, "--security-opt seccomp=unconfined"},
      {"Docker's /proc", Docker(), Lack::kProc, "systempaths=unconfined"},
      {"Docker, sidecar", Docker(), Lack::kNetAdmin, "--cap-add NET_ADMIN"},
      {"Podman", With(Debian(), [](PlaceFacts& f) { f.container = "podman"; }), Lack::kProc, "unmask=ALL"},
      {"Kubernetes", With(Docker(), [](PlaceFacts& f) { f.kubernetes = true; }), Lack::kUserNamespaces, "seccompProfile"},
      {"Kubernetes, sidecar", With(Docker(), [](PlaceFacts& f) { f.kubernetes = true; }), Lack::kNetAdmin, "add: [NET_ADMIN]"},
      {"LXC", With(Debian(), [](PlaceFacts& f) { f.container = "lxc"; }), Lack::kUserNamespaces, "security.nesting=true"},
      {"gVisor", Gvisor(), Lack::kUserNamespaces, "outside the sandbox"},
      {"WSL 1", With(Debian(), [](PlaceFacts& f) { f.release = "4.4.0-19041-Microsoft"; }), Lack::kNotifications,
       "wsl --set-version"},
      {"Ubuntu 24.04", With(Debian(), [](PlaceFacts& f) { f.apparmor_restricts_userns = true; }), Lack::kUserNamespaces,
       "packaging/apparmor/sluice"},
      {"Debian 10", With(Debian(), [](PlaceFacts& f) { f.unprivileged_userns = 0; }), Lack::kUserNamespaces,
       "sysctl -w kernel.unprivileged_userns_clone=1"},
      {"hardened", With(Debian(), [](PlaceFacts& f) { f.max_user_namespaces = 0; }), Lack::kUserNamespaces,
       "user.max_user_namespaces"},
      {"a chroot", With(Debian(), [](PlaceFacts& f) { f.chrooted = true; }), Lack::kUserNamespaces, "outside of it"},
      {"Yama 3", With(Debian(), [](PlaceFacts& f) { f.ptrace_scope = 3; }), Lack::kTracing, "next boot"},
      {"Yama 2", With(Debian(), [](PlaceFacts& f) { f.ptrace_scope = 2; }), Lack::kTracing, "only root may"},
  };
  for (const AdviceCase& c : cases) EXPECT_THAT(WhatToAdd(c.facts, c.lack), HasSubstr(c.says)) << c.name;
}

TEST(DoctorPlace, WhatRootMayIsNotBlamedOnUsersSettings) {
  PlaceFacts root = Debian();
  root.uid = 0;
  root.capabilities = kAllCapabilities;
  root.unprivileged_userns = 0;
  root.apparmor_restricts_userns = true;
  EXPECT_EQ(WhatToAdd(root, Lack::kUserNamespaces), "");
}

MachineFacts Machine() {
  MachineFacts facts;
  facts.place = Debian();
  facts.place.uid = 0;
  facts.place.capabilities = kAllCapabilities;
  facts.landlock_abi = 6;
  facts.cgroup = {
      .unified = true, .path = "/", .writable = true, .controllers = "cpu memory pids", .pids_max = {}, .pids_now = {}};
  facts.descriptors_hard = 1048576;
  return facts;
}

Check Named(const std::vector<Check>& checks, const std::string& name) {
  const auto found = std::ranges::find(checks, name, &Check::name);
  return found == checks.end() ? Check{.name = "no " + name} : *found;
}

struct MachineCase {
  const char* name;
  void (*change)(MachineFacts&);
  const char* check;
  Finding finding;
  const char* says;  ///< in what was found or the advice
};

TEST(DoctorJudge, WeighsWhatAMachineHas) {
  const std::vector<MachineCase> cases = {
      {"all there", [](MachineFacts&) {}, "landlock", Finding::kOk, "ABI 6"},
      {"Debian 12's kernel", [](MachineFacts& f) { f.landlock_abi = 2; }, "landlock", Finding::kMissing, "bookworm-backports"},
      {"Landlock off", [](MachineFacts& f) { f.landlock_abi = 0; }, "landlock", Finding::kMissing, "lsm=landlock"},
      {"Linux 6.7", [](MachineFacts& f) { f.landlock_abi = 4; }, "landlock", Finding::kLimited, "Linux 6.12"},
      {"another machine", [](MachineFacts& f) { f.place.machine = "aarch64"; }, "kernel", Finding::kMissing, "x86-64"},
      {"gVisor", [](MachineFacts& f) { f.place = Gvisor(); }, "kernel", Finding::kMissing, "gVisor"},
      {"no rights over the network", [](MachineFacts& f) { f.place.capabilities &= ~kNetAdmin; }, "capabilities.net-admin",
       Finding::kMissing, "CAP_NET_ADMIN"},
      {"a pod's sidecar", [](MachineFacts& f) { f.place.capabilities = kNetAdmin; }, "capabilities.net-raw", Finding::kLimited,
       "AF_XDP"},
      {"beside a service mesh",
       [](MachineFacts& f) { f.mesh = supervisor::KnownMesh(std::vector<nft::ChainName>{{"nat", "ISTIO_OUTPUT"}}, {}); },
       "nft-fence.mesh", Finding::kLimited, "excludeOutboundIPRanges"},
      {"no cgroup 2", [](MachineFacts& f) { f.cgroup = {}; }, "cgroup", Finding::kLimited, "rlimits"},
      {"not delegated", [](MachineFacts& f) { f.cgroup.writable = false; }, "cgroup", Finding::kLimited, "Delegate=yes"},
      {"no descriptors", [](MachineFacts& f) { f.descriptors_hard = 128; }, "descriptors", Finding::kMissing, "at least 256"},
      {"few descriptors", [](MachineFacts& f) { f.descriptors_hard = 1024; }, "descriptors", Finding::kLimited,
       "170 connections"},
      {"few processes", [](MachineFacts& f) { f.cgroup.pids_max = 100, f.cgroup.pids_now = 60; }, "processes", Finding::kMissing,
       "pids.max 100"},
      {"some processes", [](MachineFacts& f) { f.processes_limit = 200; }, "processes", Finding::kLimited, "RLIMIT_NPROC 200"},
  };
  for (const MachineCase& c : cases) {
    MachineFacts facts = Machine();
    c.change(facts);
    const Check check = Named(JudgeMachine(facts), c.check);
    EXPECT_EQ(FindingName(check.finding), std::string(FindingName(c.finding))) << c.name << ": " << check.found;
    EXPECT_THAT(check.found + " " + check.advice, HasSubstr(c.says)) << c.name;
  }
}

supervisor::NotifyFeatures AllFeatures() {
  return {.listener = true,
          .reply = true,
          .id_valid = true,
          .carry_on = true,
          .add_fd = true,
          .add_fd_at = true,
          .add_fd_send = true,
          .wait_killable = true,
          .sync_wake_up = true,
          .tsync_esrch = true,
          .one_listener = true,
          .pidfd_getfd = true,
          .thread_pidfd = true,
          .read_memory = true,
          .netns_cookie = true};
}

TEST(DoctorJudge, NotificationsThatCannotBeHadAreNamed) {
  supervisor::NotifyFeatures none;
  none.fault = "SECCOMP_FILTER_FLAG_NEW_LISTENER";
  none.fault_errno = ENOSYS;
  const auto checks = JudgeNotifications(none, Debian());
  ASSERT_EQ(checks.size(), 1U);
  EXPECT_EQ(checks[0].finding, Finding::kMissing);
  EXPECT_THAT(checks[0].found, HasSubstr("NEW_LISTENER"));
}

TEST(DoctorJudge, WhatOnlyAgeingKernelsLackIsALimit) {
  supervisor::NotifyFeatures old = AllFeatures();
  old.wait_killable = old.sync_wake_up = old.thread_pidfd = old.add_fd_send = false;
  for (const Check& check : JudgeNotifications(old, Debian())) EXPECT_NE(check.finding, Finding::kMissing) << check.name;
  EXPECT_EQ(Named(JudgeNotifications(old, Debian()), "notifications.wait-killable").finding, Finding::kLimited);
}

TEST(DoctorJudge, ASocketThatMayNotBeTakenIsAFaultOfTracing) {
  supervisor::NotifyFeatures refused;
  refused.listener = true;
  refused.fault = "pidfd_getfd";
  refused.fault_errno = EPERM;
  PlaceFacts yama = Debian();
  yama.ptrace_scope = 3;
  const auto checks = JudgeNotifications(refused, yama);
  EXPECT_EQ(Named(checks, "tracing.pidfd-getfd").finding, Finding::kMissing);
  EXPECT_THAT(Named(checks, "tracing.pidfd-getfd").advice, HasSubstr("ptrace_scope is 3"));
}

TEST(DoctorJudge, ANamespaceThatGivesNoRightsIsToldFromOneThatIsNotMade) {
  const std::vector<TrialInfo> trials = {{Feature::kMounts, "mounts.tmpfs", "tmpfs", "", ""}};
  supervisor::Tried tried;
  tried.made = FailErrno("unshare", EPERM);
  tried.step = supervisor::Making::kOtherNamespaces;
  PlaceFacts ubuntu = Debian();
  ubuntu.apparmor_restricts_userns = true;
  const auto checks = JudgeSandbox(tried, trials, ubuntu);
  EXPECT_THAT(Named(checks, "user-namespaces").found, HasSubstr("no rights"));
  EXPECT_THAT(Named(checks, "user-namespaces").advice, HasSubstr("AppArmor"));
  EXPECT_EQ(Named(checks, "mounts.tmpfs").finding, Finding::kNotTried);
}

TEST(DoctorJudge, AMaskedProcIsToldWhereItIsWhatFailed) {
  const std::vector<TrialInfo> trials = {{Feature::kMounts, "mounts.proc", "a fresh /proc", "", "unmount it"}};
  supervisor::Tried tried;
  tried.outcomes.push_back(Fail(Code::kUnsupported, "no fresh /proc"));
  EXPECT_THAT(Named(JudgeSandbox(tried, trials, Docker()), "mounts.proc").advice, HasSubstr("systempaths=unconfined"));
}

TEST(DoctorJudge, ASelfTestHoldsOnlyWhereBothSidesDo) {
  EXPECT_EQ(JudgeSelfTest(Feature::kSelfTestRun, {.tried = true, .allowed = true, .denied = true}).finding, Finding::kOk);
  EXPECT_EQ(JudgeSelfTest(Feature::kSelfTestRun, {.tried = true, .allowed = false, .denied = true}).finding, Finding::kMissing);
  const Check leaked = JudgeSelfTest(Feature::kSelfTestRun, {.tried = true, .allowed = true, .denied = false});
  EXPECT_EQ(leaked.finding, Finding::kMissing);
  EXPECT_THAT(leaked.found, HasSubstr("must be refused was not"));
  EXPECT_EQ(JudgeSelfTest(Feature::kSelfTestRun, {.detail = "no"}).finding, Finding::kNotTried);
}

TEST(DoctorInside, NothingSeenIsNothingProved) {
  EXPECT_FALSE(ParseSeen("").allowed);
  EXPECT_FALSE(ParseSeen("").denied);
  EXPECT_FALSE(ParseSeen("allowed ok\n").denied);
  EXPECT_TRUE(ParseSeen("allowed ok\ndenied refused\n").denied);
  EXPECT_FALSE(ParseSeen("allowed ok\ndenied refused\ndenied a connect to 192.0.2.1:9 was let through\ndenied refused\n").denied);
  EXPECT_FALSE(ParseSeen("allowed the connect: refused\nallowed ok\ndenied refused\n").allowed);
  EXPECT_FALSE(ParseSeen("denied\nallowed\n").allowed);
}

TEST(DoctorInside, LinesOfRuntimesThatAreNoneAreNothing) {
  EXPECT_TRUE(ParseRuntimes("no json\n[1]\n{\"name\":1}\n{}\n").empty());
  const auto runtimes = ParseRuntimes("{\"name\":\"curl\",\"path\":\"/usr/bin/curl\",\"trusts\":\"yes\",\"detail\":\"\"}\n");
  ASSERT_EQ(runtimes.size(), 1U);
  EXPECT_EQ(runtimes[0].trusts, Trusts::kYes);
}

DoctorReport ReportOf(std::vector<Check> checks) {
  DoctorReport report{
      .version = "1", .kernel = "Linux 6", .machine = "x86_64", .place = "linux", .place_text = "Linux", .uid = 0};
  report.checks = std::move(checks);
  return report;
}

TEST(DoctorReport, ExitsWithTheFirstFeatureThatAnAskedModeLacks) {
  const DoctorReport report = ReportOf({{Feature::kFenceRules, "nft-fence.fib", Finding::kMissing, "no", "add"},
                                        {Feature::kLandlock, "landlock", Finding::kMissing, "off", "on"},
                                        {Feature::kCgroup, "cgroup", Finding::kMissing, "none", ""}});
  const auto code = [&](std::vector<DoctorMode> modes) { return ExitCodeOf(report, modes); };
  EXPECT_EQ(code({DoctorMode::kRun}), 11);
  EXPECT_EQ(code({DoctorMode::kSidecar}), 19);
  EXPECT_EQ(code({DoctorMode::kSidecar, DoctorMode::kRun}), 11);
  EXPECT_EQ(code({DoctorMode::kProxy}), 0);
}

TEST(DoctorReport, WhatIsLimitedOrUntriedFailsNothing) {
  const DoctorReport report = ReportOf({{Feature::kLandlock, "landlock", Finding::kLimited, "ABI 4", ""},
                                        {Feature::kSelfTestRun, "self-test-run", Finding::kNotTried, "", ""}});
  EXPECT_EQ(ExitCodeOf(report, std::vector{DoctorMode::kRun}), 0);
}

TEST(DoctorReport, TextHasColoursOnlyWhereTheyAreAskedForAndNoControls) {
  DoctorReport report = ReportOf({{Feature::kLandlock, "landlock", Finding::kMissing, "bad \x1b[31m thing", "add"}});
  report.runtimes.push_back({"curl", "/usr/bin/curl", Trusts::kNo, "\x1b]0;x"});
  const Asked asked{{DoctorMode::kRun}, {DoctorMode::kRun}};
  EXPECT_EQ(DoctorText(report, asked, false).find('\x1b'), std::string::npos);
  EXPECT_NE(DoctorText(report, asked, true).find("\x1b[31m"), std::string::npos);
  EXPECT_THAT(DoctorText(report, asked, false), HasSubstr("no        sluice run: landlock (exit 11)"));
  EXPECT_EQ(DoctorJson(report, asked).find("\\u001b"), std::string::npos);
}

std::string ReadPage(const char* name) {
  std::ifstream file(std::string(SLUICE_SOURCE_DIR) + "/docs/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(DoctorReport, ThePageAndTheSchemaNameEveryFeatureAndCode) {
  const std::string page = ReadPage("doctor.md");
  const auto schema = nlohmann::json::parse(ReadPage("doctor.schema.json"));
  std::set<std::string> names;
  std::set<int> codes;
  for (const FeatureInfo& info : Features()) {
    names.insert(info.name);
    EXPECT_TRUE(codes.insert(info.exit_code).second) << info.name << " shares its exit code";
    std::string needed_by;
    for (const DoctorMode mode : kDoctorModes)
      if ((info.needed_by >> static_cast<unsigned>(mode) & 1) != 0)
        needed_by += (needed_by.empty() ? "" : ", ") + std::string(ModeName(mode));
    if (needed_by == "run, sidecar, proxy, agent") needed_by = "all";
    if (needed_by.empty()) needed_by = "none";
    const std::string row = "| " + std::to_string(info.exit_code) + " | " + info.name + " | " + needed_by + " |";
    EXPECT_THAT(page, HasSubstr(row));
  }
  const auto listed = schema["$defs"]["feature"]["enum"].get<std::set<std::string>>();
  EXPECT_EQ(listed, names);
}

}  // namespace
}  // namespace sluice::app
