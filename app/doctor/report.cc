#include "app/doctor/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace sluice::app {
namespace {

constexpr uint8_t Bit(DoctorMode mode) { return static_cast<uint8_t>(1U << static_cast<unsigned>(mode)); }
constexpr uint8_t kRun = Bit(DoctorMode::kRun);
constexpr uint8_t kSidecar = Bit(DoctorMode::kSidecar);
constexpr uint8_t kProxy = Bit(DoctorMode::kProxy);
constexpr uint8_t kAgent = Bit(DoctorMode::kAgent);
constexpr uint8_t kNone = 0;

constexpr auto kFeatures = std::to_array<FeatureInfo>({
    {Feature::kKernel, "kernel", 10, kRun | kSidecar | kProxy | kAgent},
    {Feature::kLandlock, "landlock", 11, kRun},
    {Feature::kNotifications, "notifications", 12, kRun | kAgent},
    {Feature::kTracing, "tracing", 13, kRun | kAgent},
    {Feature::kUserNamespaces, "user-namespaces", 14, kRun},
    {Feature::kMounts, "mounts", 15, kRun},
    {Feature::kNetwork, "network-namespaces", 16, kRun},
    {Feature::kIpv6, "ipv6", 17, kRun},
    {Feature::kCaptureRules, "nft-capture", 18, kRun | kAgent},
    {Feature::kFenceRules, "nft-fence", 19, kSidecar},
    {Feature::kConntrack, "conntrack", 20, kSidecar},
    {Feature::kSocketDiagnosis, "socket-diagnosis", 21, kRun},
    {Feature::kCapabilities, "capabilities", 22, kSidecar},
    {Feature::kCgroup, "cgroup", 23, kNone},
    {Feature::kDescriptors, "descriptors", 24, kRun | kSidecar | kProxy | kAgent},
    {Feature::kProcesses, "processes", 25, kRun | kSidecar | kProxy | kAgent},
    {Feature::kSelfTestRun, "self-test-run", 30, kRun},
    {Feature::kSelfTestRootless, "self-test-rootless", 31, kNone},
    {Feature::kSelfTestProxy, "self-test-proxy", 32, kProxy},
    {Feature::kSelfTestSidecar, "self-test-sidecar", 33, kSidecar},
    {Feature::kSelfTestAgent, "self-test-agent", 34, kAgent},
    {Feature::kTrust, "trust", 40, kNone},
    {Feature::kContainerRuntimes, "container-runtimes", 41, kNone},
});

struct Palette {
  const char* ok = "";
  const char* limited = "";
  const char* missing = "";
  const char* faint = "";
  const char* off = "";
};

Palette PaletteFor(bool color) {
  if (!color) return {};
  return {"\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[2m", "\x1b[0m"};
}

const char* ColorOf(const Palette& palette, Finding finding) {
  switch (finding) {
    case Finding::kOk:
      return palette.ok;
    case Finding::kLimited:
      return palette.limited;
    case Finding::kMissing:
      return palette.missing;
    case Finding::kNotTried:
      return palette.faint;
  }
  return "";
}

std::string Word(const char* color, std::string_view word, const char* off) { return fmt::format("{}{:<9}{}", color, word, off); }

std::vector<std::string_view> ModesOf(Feature feature) {
  std::vector<std::string_view> modes;
  for (const DoctorMode mode : kDoctorModes)
    if ((InfoOf(feature).needed_by & Bit(mode)) != 0) modes.emplace_back(ModeName(mode));
  return modes;
}

std::string VerdictText(const ModeVerdict& verdict, const Palette& palette) {
  if (verdict.can)
    return fmt::format("  {} {}\n", Word(palette.ok, "yes", palette.off), fmt::format("sluice {}", ModeName(verdict.mode)));
  std::string missing;
  for (const Feature feature : verdict.missing) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", InfoOf(feature).name);
  return fmt::format("  {} sluice {}: {} (exit {})\n", Word(palette.missing, "no", palette.off), ModeName(verdict.mode), missing,
                     verdict.exit_code);
}

nlohmann::ordered_json CheckJson(const Check& check) {
  nlohmann::ordered_json out{{"feature", InfoOf(check.feature).name},        {"name", check.name},
                             {"finding", FindingName(check.finding)},        {"needed_by", ModesOf(check.feature)},
                             {"exit_code", InfoOf(check.feature).exit_code}, {"found", Printable(check.found)}};
  if (!check.advice.empty()) out["advice"] = Printable(check.advice);
  return out;
}

}  // namespace

const char* ModeName(DoctorMode mode) {
  switch (mode) {
    case DoctorMode::kRun:
      return "run";
    case DoctorMode::kSidecar:
      return "sidecar";
    case DoctorMode::kProxy:
      return "proxy";
    case DoctorMode::kAgent:
      return "agent";
  }
  return "?";
}

std::span<const FeatureInfo> Features() { return kFeatures; }

const FeatureInfo& InfoOf(Feature feature) { return *std::ranges::find(kFeatures, feature, &FeatureInfo::feature); }

const char* FindingName(Finding finding) {
  switch (finding) {
    case Finding::kOk:
      return "ok";
    case Finding::kLimited:
      return "limited";
    case Finding::kMissing:
      return "missing";
    case Finding::kNotTried:
      return "not-tried";
  }
  return "?";
}

const char* TrustsName(Trusts trusts) {
  switch (trusts) {
    case Trusts::kYes:
      return "yes";
    case Trusts::kNo:
      return "no";
    case Trusts::kHidden:
      return "hidden";
    case Trusts::kUntried:
      return "not-tried";
  }
  return "?";
}

ModeVerdict VerdictOf(const DoctorReport& report, DoctorMode mode) {
  ModeVerdict verdict{.mode = mode, .can = true};
  for (const FeatureInfo& info : kFeatures) {
    if ((info.needed_by & Bit(mode)) == 0) continue;
    const bool missing = std::ranges::any_of(
        report.checks, [&](const Check& check) { return check.feature == info.feature && check.finding == Finding::kMissing; });
    if (!missing) continue;
    if (verdict.can) verdict.exit_code = info.exit_code;
    verdict.can = false;
    verdict.missing.push_back(info.feature);
  }
  return verdict;
}

int ExitCodeOf(const DoctorReport& report, std::span<const DoctorMode> asked) {
  int first = 0;
  for (const DoctorMode mode : asked) {
    const int code = VerdictOf(report, mode).exit_code;
    if (code != 0 && (first == 0 || code < first)) first = code;
  }
  return first;
}

std::string DoctorJson(const DoctorReport& report, const Asked& asked) {
  using Json = nlohmann::ordered_json;
  Json out{{"version", 1},
           {"sluice", report.version},
           {"kernel", Printable(report.kernel)},
           {"machine", Printable(report.machine)},
           {"place", report.place},
           {"uid", report.uid},
           {"exit_code", ExitCodeOf(report, asked.judged)}};
  out["asked"] = Json::array();
  for (const DoctorMode mode : asked.judged) out["asked"].push_back(ModeName(mode));
  out["modes"] = Json::array();
  for (const DoctorMode mode : asked.shown) {
    const ModeVerdict verdict = VerdictOf(report, mode);
    Json missing = Json::array();
    for (const Feature feature : verdict.missing) missing.push_back(InfoOf(feature).name);
    out["modes"].push_back(
        {{"mode", ModeName(mode)}, {"can", verdict.can}, {"exit_code", verdict.exit_code}, {"missing", std::move(missing)}});
  }
  out["remarks"] = Json::array();
  for (const std::string& remark : report.remarks) out["remarks"].push_back(Printable(remark));
  out["checks"] = Json::array();
  for (const Check& check : report.checks) out["checks"].push_back(CheckJson(check));
  out["runtimes"] = Json::array();
  for (const Runtime& runtime : report.runtimes)
    out["runtimes"].push_back({{"name", runtime.name},
                               {"path", Printable(runtime.path)},
                               {"trusts", TrustsName(runtime.trusts)},
                               {"detail", Printable(runtime.detail)}});
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string DoctorText(const DoctorReport& report, const Asked& asked, bool color) {
  const Palette palette = PaletteFor(color);
  std::string text = fmt::format("sluice {} on {}, {}, {}{}\n", report.version, Printable(report.kernel),
                                 Printable(report.machine), report.uid == 0 ? "as root" : fmt::format("as user {}", report.uid),
                                 report.place == "linux" ? "" : fmt::format(", in {}", report.place_text));
  for (const std::string& remark : report.remarks)
    text += fmt::format("  {}{}{}\n", palette.limited, Printable(remark), palette.off);
  size_t widest = 0;
  for (const Check& check : report.checks) widest = std::max(widest, check.name.size());
  text += '\n';
  for (const Check& check : report.checks) {
    text += fmt::format("  {} {:<{}}  {}\n", Word(ColorOf(palette, check.finding), FindingName(check.finding), palette.off),
                        check.name, widest, Printable(check.found));
    if (!check.advice.empty())
      text += fmt::format("            {:<{}}  {}> {}{}\n", "", widest, palette.faint, Printable(check.advice), palette.off);
  }
  if (!report.runtimes.empty()) {
    text += "\nprograms that believe the sandbox's authority\n\n";
    for (const Runtime& runtime : report.runtimes) {
      const char* shade = runtime.trusts == Trusts::kYes  ? palette.ok
                          : runtime.trusts == Trusts::kNo ? palette.missing
                                                          : palette.faint;
      text +=
          fmt::format("  {} {:<9} {}{}\n", Word(shade, TrustsName(runtime.trusts), palette.off), runtime.name,
                      Printable(runtime.path), runtime.detail.empty() ? "" : fmt::format("  ({})", Printable(runtime.detail)));
    }
  }
  text += "\nwhat can be enforced here\n\n";
  for (const DoctorMode mode : asked.shown) text += VerdictText(VerdictOf(report, mode), palette);
  return text;
}

}  // namespace sluice::app
