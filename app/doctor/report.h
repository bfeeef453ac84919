#pragma once

// What `sluice doctor` found, as values: which check needs which feature, what follows for each mode, the exit code, and both
// forms in which it is printed. Pure.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::app {

/// What is asked for; each asks for other features.
enum class DoctorMode : uint8_t { kRun, kSidecar, kProxy, kAgent };
inline constexpr DoctorMode kDoctorModes[] = {DoctorMode::kRun, DoctorMode::kSidecar, DoctorMode::kProxy, DoctorMode::kAgent};
[[nodiscard]] const char* ModeName(DoctorMode mode);

/// A feature of the machine, with an exit code of its own: docs/doctor.md lists them, in this order.
enum class Feature : uint8_t {
  kKernel,
  kLandlock,
  kNotifications,
  kTracing,
  kUserNamespaces,
  kMounts,
  kNetwork,
  kIpv6,
  kCaptureRules,
  kFenceRules,
  kConntrack,
  kSocketDiagnosis,
  kCapabilities,
  kCgroup,
  kDescriptors,
  kProcesses,
  kSelfTestRun,
  kSelfTestRootless,
  kSelfTestProxy,
  kSelfTestSidecar,
  kSelfTestAgent,
  kTrust,
  kContainerRuntimes,
};
struct FeatureInfo {
  Feature feature;
  const char* name;  ///< "landlock"
  int exit_code;
  uint8_t needed_by;  ///< bits of 1 << DoctorMode; the others only show it
};
[[nodiscard]] std::span<const FeatureInfo> Features();
[[nodiscard]] const FeatureInfo& InfoOf(Feature feature);

enum class Finding : uint8_t {
  kOk,
  kLimited,   ///< works, with less: the text says what is lost
  kMissing,   ///< a mode that needs it does not start
  kNotTried,  ///< could not be found out here, or was not asked for
};
[[nodiscard]] const char* FindingName(Finding finding);

/// One thing that was tried. A feature has one or more, and is missing where one of them is.
struct Check {
  Feature feature = Feature::kKernel;
  std::string name{};  ///< "nft-fence.owner"; unique
  Finding finding = Finding::kNotTried;
  std::string found{};   ///< what was seen: "ABI 7"
  std::string advice{};  ///< what to add; empty where there is nothing to do
};

/// A program on PATH, and whether it believes the sandbox's authority.
enum class Trusts : uint8_t { kYes, kNo, kHidden, kUntried };
[[nodiscard]] const char* TrustsName(Trusts trusts);
struct Runtime {
  std::string name{};
  std::string path{};
  Trusts trusts = Trusts::kUntried;
  std::string detail{};
};

/// A container runtime on PATH, and whether it is known to hand notifications over (SCMP_ACT_NOTIFY).
enum class Notifies : uint8_t { kUnknown, kYes };
struct ContainerRuntime {
  std::string name{};
  std::string path{};
  std::string version{};
  Notifies notifies = Notifies::kUnknown;
};

struct DoctorReport {
  std::string version{};  ///< of sluice
  std::string kernel{};
  std::string machine{};
  std::string place{};       ///< PlaceName
  std::string place_text{};  ///< for people
  unsigned uid = 0;
  std::vector<std::string> remarks{};
  std::vector<Check> checks{};
  std::vector<Runtime> runtimes{};
};

struct ModeVerdict {
  DoctorMode mode = DoctorMode::kRun;
  bool can = false;
  int exit_code = 0;
  std::vector<Feature> missing{};  ///< in the order of their codes
};
[[nodiscard]] ModeVerdict VerdictOf(const DoctorReport& report, DoctorMode mode);

/// Of the features of these modes the first that is missing; 0.
[[nodiscard]] int ExitCodeOf(const DoctorReport& report, std::span<const DoctorMode> asked);

struct Asked {
  std::vector<DoctorMode> shown{};
  std::vector<DoctorMode> judged{};  ///< those that the exit code speaks of
};
/// In the form of docs/doctor.schema.json.
[[nodiscard]] std::string DoctorJson(const DoctorReport& report, const Asked& asked);
[[nodiscard]] std::string DoctorText(const DoctorReport& report, const Asked& asked, bool color);

}  // namespace sluice::app
