#include "app/doctor/io/doctor.h"

#include <fmt/format.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <utility>

#include "app/doctor/io/facts.h"
#include "app/doctor/io/inside.h"
#include "app/doctor/io/live.h"
#include "app/doctor/io/probes.h"
#include "app/doctor/judge.h"
#include "app/doctor/report.h"
#include "base/log.h"
#include "supervisor/io/notify_probe.h"

namespace sluice::app {
namespace {

constexpr const char* kExamples = R"(
Examples:
  sluice doctor
  sluice doctor --mode sidecar --mode proxy
  sluice doctor --mode run --no-live --format json

Everything is tried in processes and namespaces of its own, which are gone afterwards; nothing leaves this machine.

Exit code: 0, or that of the first feature that a named mode lacks (without --mode: that `run` lacks). docs/doctor.md lists them:
10 kernel, 11 landlock, 12 notifications, 13 tracing, 14 user-namespaces, 15 mounts, 16 network-namespaces, 17 ipv6,
18 nft-capture, 19 nft-fence, 20 conntrack, 21 socket-diagnosis, 22 capabilities, 24 descriptors, 25 processes,
30 to 34 a self-test; 2 bad input.)";

bool Contains(const std::vector<DoctorMode>& modes, DoctorMode mode) { return std::ranges::find(modes, mode) != modes.end(); }

Asked AskedBy(const DoctorOptions& options) {
  if (options.modes.empty()) return {{std::begin(kDoctorModes), std::end(kDoctorModes)}, {DoctorMode::kRun}};
  Asked asked;
  for (const DoctorMode mode : kDoctorModes)
    if (std::ranges::find(options.modes, ModeName(mode)) != options.modes.end()) asked.shown.push_back(mode);
  asked.judged = asked.shown;
  return asked;
}

void Append(std::vector<Check>* to, std::vector<Check> checks) {
  to->insert(to->end(), std::make_move_iterator(checks.begin()), std::make_move_iterator(checks.end()));
}

// In the order of the features' codes; what no asked mode needs is shown where all are.
void Settle(DoctorReport* report, const Asked& asked) {
  const bool all = asked.shown.size() == std::size(kDoctorModes);
  std::erase_if(report->checks, [&](const Check& check) {
    const uint8_t needed_by = InfoOf(check.feature).needed_by;
    return !all && needed_by != 0 && std::ranges::none_of(asked.shown, [needed_by](DoctorMode mode) {
      return (needed_by >> static_cast<unsigned>(mode) & 1) != 0;
    });
  });
  std::vector<Check> sorted;
  for (const FeatureInfo& info : Features())
    for (Check& check : report->checks)
      if (check.feature == info.feature) sorted.push_back(std::move(check));
  report->checks = std::move(sorted);
}

// A self-test of what cannot work says nothing that was not said.
bool CanStart(const DoctorReport& report, DoctorMode mode) { return VerdictOf(report, mode).can; }

void RunLive(DoctorReport* report, const Asked& asked) {
  const char* path = std::getenv("PATH");
  const LiveTests live(path == nullptr ? "" : path);
  const auto test = [&](DoctorMode mode, Feature feature, auto run) {
    if (!Contains(asked.shown, mode)) return;
    const bool can = CanStart(*report, mode);
    report->checks.push_back(JudgeSelfTest(feature, can ? run() : SelfTest{.detail = "not tried: what it needs is missing"}));
  };
  test(DoctorMode::kRun, Feature::kSelfTestRun, [&] { return live.Run(); });
  if (Contains(asked.shown, DoctorMode::kRun)) {
    Check rootless = JudgeSelfTest(Feature::kSelfTestRootless, live.RunRootless());
    // That root may and nobody else is no fault of root's.
    if (rootless.finding == Finding::kMissing) rootless.finding = Finding::kLimited;
    report->checks.push_back(std::move(rootless));
  }
  test(DoctorMode::kProxy, Feature::kSelfTestProxy, [&] { return live.Proxy(); });
  test(DoctorMode::kSidecar, Feature::kSelfTestSidecar, [&] { return live.Sidecar(); });
  test(DoctorMode::kAgent, Feature::kSelfTestAgent, [&] { return live.Agent(); });
  if (Contains(asked.shown, DoctorMode::kAgent)) report->checks.push_back(JudgeContainerRuntimes(live.ContainerRuntimes()));
  if (!Contains(asked.shown, DoctorMode::kRun) || !CanStart(*report, DoctorMode::kRun)) return;
  report->runtimes = live.TrustOfRuntimes();
  report->checks.push_back(JudgeTrust(report->runtimes));
}

DoctorReport Examine(const DoctorOptions& options, const Asked& asked) {
  const MachineFacts facts = GatherMachineFacts();
  const Place place = PlaceOf(facts.place);
  DoctorReport report{.version = SLUICE_VERSION,
                      .kernel = "Linux " + facts.place.release,
                      .machine = facts.place.machine,
                      .place = PlaceName(place),
                      .place_text = PlaceText(place),
                      .uid = facts.place.uid};
  if (std::string remark = PlaceRemark(facts.place); !remark.empty()) report.remarks.push_back(std::move(remark));
  Append(&report.checks, JudgeMachine(facts));
  if (!IsImitation(place)) {
    Append(&report.checks, JudgeNotifications(supervisor::ProbeNotifications(), facts.place));
    Append(&report.checks, ProbeSandbox(facts.place));
    if (Contains(asked.shown, DoctorMode::kSidecar)) Append(&report.checks, ProbeFence(facts.place));
    if (!options.no_live) RunLive(&report, asked);
  }
  Settle(&report, asked);
  return report;
}

}  // namespace

int RunDoctor(const DoctorOptions& options) {
  signal(SIGPIPE, SIG_IGN);
  if (!options.inside.empty()) return RunInside(options.inside);
  const Asked asked = AskedBy(options);
  const DoctorReport report = Examine(options, asked);
  const std::string text = options.format == "json" ? DoctorJson(report, asked) : DoctorText(report, asked, StdoutHasColor());
  std::fputs(text.c_str(), stdout);
  return ExitCodeOf(report, asked.judged);
}

std::pair<CLI::App*, std::function<int()>> AddDoctor(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("doctor", "Find out what this machine can enforce");
  sub->footer(kExamples);
  auto options = std::make_shared<DoctorOptions>();
  sub->add_option("--mode", options->modes,
                  "What is to run here: run, sidecar, proxy, agent; repeatable (default: all are looked at)")
      ->check(CLI::IsMember({"run", "sidecar", "proxy", "agent"}))
      ->type_name("MODE")
      ->allow_extra_args(false);
  sub->add_option("--format", options->format, "text (default) or json, as docs/doctor.schema.json says")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("FORMAT");
  sub->add_flag("--no-live", options->no_live, "Leave out what starts programs: the self-tests, and who trusts the authority");
  sub->add_option("--inside", options->inside)->group("");
  return {sub, [options] { return RunDoctor(*options); }};
}

}  // namespace sluice::app
