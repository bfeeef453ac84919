#include "app/includers.h"

#include <algorithm>
#include <filesystem>

#include "app/file.h"
#include "app/policy_files.h"
#include "policy/io/load.h"
#include "policy/io/yaml.h"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;

std::string Real(const std::string& path) {
  std::error_code ignored;
  return fs::weakly_canonical(path, ignored).string();
}

// Also of one that does not load: then its includer does not either, and that is to be told.
std::set<std::string> ReadBy(const std::string& policy) {
  std::set<std::string> files;
  policy::LoadOptions options;
  options.check_executables = false;
  options.read = [&](const std::string& path) {
    if (path != policy) files.insert({path, Real(path)});
    return ReadFile(path, policy::kMaxFileBytes);
  };
  (void)policy::LoadFile(policy, options);
  return files;
}

}  // namespace

const std::vector<Includers::Policy>& Includers::In(const std::string& folder) {
  const auto [known, fresh] = folders_.try_emplace(folder);
  if (!fresh) return known->second;
  std::error_code error;
  std::error_code ignored;
  for (fs::directory_iterator it(folder, error); !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with('.') || !IsNameOf(FileKind::kPolicy, name) || !it->is_regular_file(ignored)) continue;
    known->second.push_back({it->path().string(), ReadBy(it->path().string())});
  }
  return known->second;
}

std::vector<std::string> Includers::Of(const std::string& path) {
  std::error_code ignored;
  const std::string name = Absolute(path);
  const std::set<std::string> wanted{name, Real(name)};
  std::set<std::string> found;
  for (const std::string& each : wanted) {
    for (fs::path folder = fs::path(each).parent_path();; folder = folder.parent_path()) {
      for (const Policy& policy : In(folder.string()))
        if (policy.path != name &&
            std::ranges::any_of(wanted, [&](const std::string& file) { return policy.reads.contains(file); }))
          found.insert(fs::path(policy.path).lexically_relative(fs::current_path(ignored)).string());
      if (fs::exists(folder / ".git", ignored) || folder == folder.parent_path()) break;
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace sluice::app
