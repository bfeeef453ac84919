#include "supervisor/io/neighbour_rights.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/stat.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <optional>

#include "supervisor/io/small_file.h"
#include "supervisor/proc_text.h"

namespace sluice::supervisor {
namespace {

struct Namespaces {
  std::array<struct stat, 3> all{};  ///< of network, users and mounts

  static std::optional<Namespaces> Of(const std::string& process) {
    Namespaces found;
    size_t i = 0;
    for (const char* kind : {"net", "user", "mnt"})
      if (::stat(fmt::format("{}/ns/{}", process, kind).c_str(), &found.all[i++]) != 0) return std::nullopt;
    return found;
  }
  [[nodiscard]] bool Share(const Namespaces& other, size_t kind) const {
    return all[kind].st_ino == other.all[kind].st_ino && all[kind].st_dev == other.all[kind].st_dev;
  }
};

}  // namespace

// A name cannot begin a line: the kernel escapes its newlines.
uint64_t PermittedCapabilities(std::string_view status) {
  constexpr std::string_view kLine = "\nCapPrm:\t";
  const size_t at = status.find(kLine);
  uint64_t held = 0;
  if (at == std::string_view::npos) return held;
  const std::string_view digits = status.substr(at + kLine.size());
  std::from_chars(digits.data(), digits.data() + digits.size(), held, 16);
  return held;
}

NeighbourRights FindNeighbourRights() {
  NeighbourRights rights;
  const auto own = Namespaces::Of("/proc/self");
  if (!own) return rights;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const std::string pid = at->path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto theirs = Namespaces::Of(at->path().string());
    if (!theirs || !theirs->Share(*own, 0) || !theirs->Share(*own, 1) || theirs->Share(*own, 2)) continue;
    const auto text = ReadSmallFile(at->path().string() + "/status");
    const auto status = text ? ParseProcStatus(*text) : std::nullopt;
    if (!status) continue;
    const std::string who = fmt::format("process {} ({})", pid, status->name);
    const uint64_t held = PermittedCapabilities(*text);
    if ((held >> CAP_NET_ADMIN & 1) != 0 && rights.net_admin.empty()) rights.net_admin = who;
    if ((held >> CAP_NET_RAW & 1) != 0 && rights.net_raw.empty()) rights.net_raw = who;
  }
  return rights;
}

}  // namespace sluice::supervisor
