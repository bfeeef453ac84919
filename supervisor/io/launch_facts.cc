#include "supervisor/io/launch_facts.h"

#include <fmt/format.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>

#include "supervisor/io/tree_scan.h"

namespace sluice::supervisor {
namespace {

constexpr int kLinksFollowed = 40;  // as the kernel

struct Freer {
  void operator()(char* text) const { ::free(text); }
};

Result<std::string> Canonical(const std::string& path) {
  const std::unique_ptr<char, Freer> real(::realpath(path.c_str(), nullptr));
  if (!real) return FailErrno(path, errno);
  return std::string(real.get());
}

}  // namespace

HostEntry Look(std::string path) {
  HostEntry entry{.path = std::move(path), .kind = EntryKind::kAbsent, .link = {}};
  struct stat about{};
  if (::lstat(entry.path.c_str(), &about) != 0) return entry;
  entry.kind = S_ISDIR(about.st_mode) ? EntryKind::kDirectory : EntryKind::kFile;
  if (!S_ISLNK(about.st_mode)) return entry;
  entry.kind = EntryKind::kSymlink;
  std::string link(PATH_MAX, '\0');
  const ssize_t size = ::readlink(entry.path.c_str(), link.data(), link.size());
  link.resize(size < 0 ? 0 : static_cast<size_t>(size));
  entry.link = std::move(link);
  return entry;
}

namespace {

Result<void> CanonicalAll(std::vector<std::string>& paths, const char* option) {
  for (std::string& path : paths) {
    auto real = Canonical(path);
    if (!real) {
      Error error = real.error();
      error.message = fmt::format("{} {}", option, error.message);
      return std::unexpected(std::move(error));
    }
    path = std::move(*real);
  }
  return {};
}

// The path with its folder made canonical and its last name kept: where the file is, or would be created.
std::string CanonicalPlace(const std::string& path) {
  if (auto real = Canonical(path)) return *real;
  const size_t slash = path.rfind('/');
  const auto folder = Canonical(slash == 0 ? "/" : path.substr(0, slash));
  return folder ? (*folder == "/" ? "" : *folder) + path.substr(slash) : path;
}

std::vector<std::string> WritableTrees(const LaunchSpec& spec) {
  std::vector<std::string> trees = spec.read_write;
  trees.push_back(spec.work_directory);
  return trees;
}

// A link on the way to a file: where it stands, and what the path is with the link followed.
struct LinkOnTheWay {
  std::string place;
  std::string folder;
  std::string followed;
};

std::optional<LinkOnTheWay> FirstLink(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const HostEntry entry = Look(path.substr(0, slash));
    if (entry.kind == EntryKind::kSymlink) {
      const std::string folder = path.substr(0, entry.path.rfind('/') + 1);
      const std::string rest = slash == std::string::npos ? "" : path.substr(slash);
      const std::string target = entry.link.starts_with('/') ? entry.link : folder + entry.link;
      return LinkOnTheWay{entry.path, folder, target + rest};
    }
    if (slash == std::string::npos) return std::nullopt;
  }
}

}  // namespace

Result<void> RefuseLinksInTrees(const std::string& path, const std::vector<std::string>& trees) {
  int links = 0;
  for (auto link = FirstLink(path); link; link = FirstLink(link->followed)) {
    if (++links > kLinksFollowed) return Fail(Code::kInvalid, fmt::format("too many links at {}", path));
    const auto folder = Canonical(link->folder);
    for (const std::string& tree : trees)
      if (folder && IsWithin(*folder, tree))
        return Fail(Code::kInvalid,
                    fmt::format("{} is a link in a tree the workload may write ({}): name the file itself", link->place, tree));
  }
  return {};
}

namespace {

// A protected file reached through a link in a tree the workload writes: the link could be pointed elsewhere. Links that lead
// to such a link as well.
Result<void> RefuseReplaceableLinks(const LaunchSpec& resolved, const LaunchSpec& given) {
  for (const std::string& protect : given.protect)
    if (auto fine = RefuseLinksInTrees(protect, WritableTrees(resolved)); !fine) return fine;
  return {};
}

}  // namespace

Result<LaunchSpec> ResolvePaths(const LaunchSpec& spec) {
  if (spec.argv.empty()) return Fail(Code::kInvalid, "no command to run");
  LaunchSpec resolved = spec;
  auto work = Canonical(spec.work_directory);
  if (!work) return std::unexpected(work.error());
  resolved.work_directory = std::move(*work);
  if (auto done = CanonicalAll(resolved.read_write, "--rw"); !done) return std::unexpected(done.error());
  if (auto done = CanonicalAll(resolved.read_only, "--ro"); !done) return std::unexpected(done.error());
  if (auto done = CanonicalAll(resolved.unix_sockets, "unix"); !done) return std::unexpected(done.error());
  for (std::string& path : resolved.protect) path = CanonicalPlace(path);
  return resolved;
}

Result<HostFacts> GatherFacts(const LaunchSpec& resolved, const LaunchSpec& given, BareFolders& bare) {
  if (auto fine = RefuseReplaceableLinks(resolved, given); !fine) return std::unexpected(fine.error());
  HostFacts facts;
  for (const std::string& path : SystemPaths()) facts.system.push_back(Look(path));
  for (const std::string& path : SecretPaths()) facts.system.push_back(Look(path));
  for (const std::string& path : resolved.protect) facts.protect.push_back(Look(path));
  OpenFolders(resolved, facts, bare);
  if (auto scanned = ScanTrees(resolved, facts); !scanned) return std::unexpected(scanned.error());
  return facts;
}

}  // namespace sluice::supervisor
