#pragma once

// From what was gathered and tried to the checks of the report. Pure, so that machines that are not here can be judged in tests.

#include <cstdint>
#include <string>
#include <vector>

#include "app/doctor/machine.h"
#include "app/doctor/report.h"
#include "supervisor/io/notify_probe.h"
#include "supervisor/io/throw_away.h"

namespace sluice::app {

/// Kernel, Landlock, capabilities, cgroup and limits.
[[nodiscard]] std::vector<Check> JudgeMachine(const MachineFacts& facts);

[[nodiscard]] std::vector<Check> JudgeNotifications(const supervisor::NotifyFeatures& features, const PlaceFacts& place);

/// A trial and what it stands for.
struct TrialInfo {
  Feature feature = Feature::kNetwork;
  std::string name{};     ///< of the check
  std::string what{};     ///< what works where it succeeds
  std::string without{};  ///< empty: it is needed; else what is lost without it
  std::string advice{};
};
/// The namespaces of a sandbox, and what was tried in them.
[[nodiscard]] std::vector<Check> JudgeSandbox(const supervisor::Tried& tried, const std::vector<TrialInfo>& trials,
                                              const PlaceFacts& place);
/// What was tried for the fence. `where`: "in a network namespace of its own".
[[nodiscard]] std::vector<Check> JudgeFence(const supervisor::Tried& tried, const std::vector<TrialInfo>& trials,
                                            const PlaceFacts& place, const std::string& where);

/// How a live self-test went: what was to be let through and was, what was to be refused and was.
struct SelfTest {
  bool tried = false;
  bool allowed = false;
  bool denied = false;
  std::string detail{};  ///< what was seen, or why it was not tried
};
[[nodiscard]] Check JudgeSelfTest(Feature feature, const SelfTest& test);

/// One check over all of the programs that were found.
[[nodiscard]] Check JudgeTrust(const std::vector<Runtime>& runtimes);
/// Of those that start containers themselves one must know SCMP_ACT_NOTIFY; the others are told.
[[nodiscard]] Check JudgeContainerRuntimes(const std::vector<ContainerRuntime>& runtimes);

}  // namespace sluice::app
