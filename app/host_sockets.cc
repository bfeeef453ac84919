#include "app/host_sockets.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <system_error>

#include "base/log.h"
#include "policy/glob.h"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;

// The folder below which every match lies.
fs::path LiteralFolder(const std::string& glob) {
  const size_t star = glob.find('*');
  const size_t slash = glob.rfind('/', star);
  return slash == 0 || slash == std::string::npos ? "/" : glob.substr(0, slash);
}

class Finder {
 public:
  Result<void> Find(const std::string& text) {
    const size_t before = found_.size();
    if (text.find('*') == std::string::npos) {
      if (auto added = Add(text); !added) return added;
    } else {
      const auto glob = policy::Glob::Path(text);
      if (!glob) return std::unexpected(glob.error());
      if (auto walked = Walk(LiteralFolder(text), *glob, text); !walked) return walked;
    }
    if (found_.size() == before) LogWarn("unix {}: no such socket on this host now, so the command will see none", text);
    return {};
  }

  HostSockets Take() { return std::move(found_); }

 private:
  Result<void> Walk(const fs::path& folder, const policy::Glob& glob, const std::string& text) {
    std::error_code error;
    const int depth = text.find("**") == std::string::npos ? Slashes(text) - Slashes(folder.string()) - 1 : INT_MAX;
    fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error);
    for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
      if (++seen_ > kMaxSocketEntries)
        return Fail(Code::kExhausted, fmt::format("unix {}: more than {} entries below {}, too many to look for sockets in", text,
                                                  kMaxSocketEntries, folder.string()));
      if (entry.depth() >= depth) entry.disable_recursion_pending();
      if (!glob.Matches(entry->path().native())) continue;
      if (auto added = Add(entry->path()); !added) return added;
    }
    return {};
  }

  static int Slashes(const std::string& path) { return path == "/" ? 0 : static_cast<int>(std::ranges::count(path, '/')); }

  Result<void> Add(const fs::path& path) {
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    if (error || !fs::is_socket(real, error)) return {};
    found_.emplace(real.native(), path.native());
    if (found_.size() > kMaxHostSockets)
      return Fail(Code::kExhausted, fmt::format("the unix rules name more than {} sockets of this host", kMaxHostSockets));
    return {};
  }

  HostSockets found_;
  size_t seen_ = 0;
};

}  // namespace

Result<HostSockets> FindHostSockets(const std::vector<std::string>& globs) {
  Finder finder;
  for (const std::string& glob : globs)
    if (auto found = finder.Find(glob); !found) return std::unexpected(found.error());
  return finder.Take();
}

}  // namespace sluice::app
