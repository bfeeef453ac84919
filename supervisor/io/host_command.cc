#include "supervisor/io/host_command.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "supervisor/mount_plan.h"

namespace sluice::supervisor {
namespace {

bool IsProgram(const std::string& path) {
  struct stat about{};
  return ::stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

bool IsVisible(const LaunchSpec& spec, const std::string& path) {
  const auto covers = [&](const std::string& tree) { return IsWithin(path, tree); };
  return covers(spec.work_directory) || std::ranges::any_of(spec.read_write, covers) ||
         std::ranges::any_of(spec.read_only, covers) || std::ranges::any_of(SystemPaths(), covers);
}

// A visible link to a hidden program: the program is what must be granted.
std::string Followed(const LaunchSpec& spec, const std::string& path) {
  if (!IsVisible(spec, path)) return path;
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return path;
  std::string target(real);
  ::free(real);
  return target;
}

}  // namespace

std::string VariableOf(const LaunchSpec& spec, std::string_view name) {
  const auto it = std::ranges::find(spec.environment, name, &std::pair<std::string, std::string>::first);
  return it == spec.environment.end() ? std::string() : it->second;
}

std::optional<std::string> FindOnHost(const LaunchSpec& resolved) {
  const std::string& name = resolved.argv.front();
  if (name.empty()) return std::nullopt;
  if (name.find('/') != std::string::npos) {
    const std::string path = name.front() == '/' ? name : resolved.work_directory + "/" + name;
    return IsProgram(path) ? std::optional(Followed(resolved, path)) : std::nullopt;
  }
  const std::string path = VariableOf(resolved, "PATH");
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find(':', start), path.size());
    const std::string candidate = path.substr(start, end - start) + "/" + name;
    if (candidate.front() == '/' && IsProgram(candidate)) return Followed(resolved, candidate);
    start = end + 1;
  }
  return std::nullopt;
}

}  // namespace sluice::supervisor
