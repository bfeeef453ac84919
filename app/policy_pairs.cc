#include "app/policy_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "app/git.h"
#include "app/includers.h"
#include "app/policy_files.h"
#include "policy/io/load.h"

namespace sluice::app {
namespace {

namespace fs = std::filesystem;

policy::LoadOptions OfThisFolder() {
  policy::LoadOptions options;
  options.check_executables = false;
  return options;
}

// Null: it does not load, and is among those. A file that several include is at fault once.
policy::SnapshotPtr Load(const std::string& path, const policy::LoadOptions& options, PolicyPairs* out) {
  auto loaded = policy::LoadFile(path, options);
  if (loaded) return *std::move(loaded);
  const bool told = std::ranges::any_of(out->unloaded, [&](const UnloadedPolicy& other) {
    return other.error.span == loaded.error().span && other.error.message == loaded.error().message;
  });
  if (!told) out->unloaded.push_back({path, std::move(loaded.error())});
  return nullptr;
}

policy::SnapshotPtr LoadHead(const std::string& path, PolicyPairs* out) { return Load(path, OfThisFolder(), out); }

Result<PolicyPairs> PairFolders(const std::string& base, const std::string& head) {
  auto bases = FilesBelow(base, FileKind::kPolicy);
  if (!bases) return std::unexpected(bases.error());
  auto heads = FilesBelow(head, FileKind::kPolicy);
  if (!heads) return std::unexpected(heads.error());
  if (bases->empty() && heads->empty())
    return Fail(Code::kInvalid, fmt::format("neither {} nor {} holds a policy (*.yaml, *.yml)", base, head));
  PolicyPairs out;
  std::map<std::string, PolicyPair> pairs;
  for (const std::string& file : *bases) {
    const std::string path = (fs::path(base) / file).string();
    pairs[file] = {path, LoadHead(path, &out), nullptr};
  }
  for (const std::string& file : *heads) {
    PolicyPair& pair = pairs[file];
    pair.name = (fs::path(head) / file).string();
    pair.head = LoadHead(pair.name, &out);
  }
  for (auto& [file, pair] : pairs) out.pairs.push_back(std::move(pair));
  return out;
}

// As FilesBelow passes them over.
bool IsHidden(const fs::path& below) {
  return std::any_of(below.begin(), below.end(), [](const fs::path& part) {
    const std::string name = part.string();
    return name.starts_with('.') && name != "." && name != "..";
  });
}

// Also a link that leads nowhere, and what this user may not look at: neither is gone, and reading it says what is wrong.
bool Stands(const std::string& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

class GitPairs {
 public:
  GitPairs(std::string revision, std::string commit) : revision_(std::move(revision)), commit_(std::move(commit)) {}

  Result<void> Add(const std::string& named) {
    // Git lists relative to the work directory, and both sides' names must meet.
    std::error_code error;
    const fs::path whole(named);
    std::string path = whole.is_absolute() ? whole.lexically_relative(fs::current_path(error)).string() : named;
    if (path.empty()) path = named;
    const auto old = GitList(commit_, path);
    if (!old) return std::unexpected(old.error());
    if (!IsFolder(path) && (Stands(path) || old->size() == 1)) return AddFile(path, !old->empty());
    std::map<std::string, bool> files;  // to whether the commit has it
    if (IsFolder(path)) {
      auto now = FilesBelow(path, FileKind::kPolicy);
      if (!now) return std::unexpected(now.error());
      for (const std::string& file : *now) files[(fs::path(path) / file).lexically_normal().string()] = false;
    }
    for (const std::string& file : *old) {
      if (!IsNameOf(FileKind::kPolicy, file) || IsHidden(fs::path(file).lexically_relative(path))) continue;
      if (files.contains(file) || !WasAcceptances(file)) files[file] = true;
    }
    if (files.empty()) return Fail(Code::kInvalid, fmt::format("no policy at {}, neither here nor in {}", path, revision_));
    if (files.size() > kMaxFolderFiles)
      return Fail(Code::kExhausted, fmt::format("{} holds more than {} policies", path, kMaxFolderFiles));
    for (const auto& [file, existed] : files) {
      if (auto added = AddFile(file, existed); !added) return added;
    }
    return {};
  }

  PolicyPairs Take() { return std::move(out_); }

 private:
  [[nodiscard]] bool WasAcceptances(const std::string& file) const {
    const auto text = OldText(file, "");
    return text && IsAcceptances(*text, file);
  }

  // The text that a checkout would have there. It lies in the folder, whatever links lead to it.
  [[nodiscard]] Result<std::string> OldText(const std::string& file, const std::string& folder) const {
    const auto real = GitRealPath(commit_, file);
    if (!real) return std::unexpected(real.error());
    if (!real->starts_with(folder))
      return Fail(Code::kInvalid, fmt::format("{} leads out of the policy's folder, to {}", file, *real));
    return GitFile(commit_, *real);
  }

  // A change of a file is one of each policy that includes it, which may have no line of its own changed.
  Result<void> AddFile(const std::string& path, bool existed) {
    // What was a policy before is one still: it does not load.
    if (HoldsAcceptances(path) && (!existed || WasAcceptances(path))) {
      TellAcceptances(path);
      return {};
    }
    AddPair(path, existed);
    for (const std::string& includer : includers_.Of(path)) {
      const auto old = GitList(commit_, includer);
      if (!old) return std::unexpected(old.error());
      AddPair(includer, !old->empty());
    }
    return {};
  }

  void AddPair(const std::string& path, bool existed) {
    if (!added_.insert(fs::path(path).lexically_normal().string()).second) return;
    PolicyPair pair;
    pair.name = path;
    if (existed) {
      policy::LoadOptions options = OfThisFolder();
      options.name_prefix = revision_ + ":";
      const std::string old = fs::path(path).lexically_normal().string();
      options.read = [this, top = GitRealPath(commit_, old)](const std::string& file) -> Result<std::string> {
        if (!top) return std::unexpected(top.error());
        return OldText(file, top->substr(0, top->rfind('/') + 1));
      };
      pair.base = Load(old, options, &out_);
    }
    if (Stands(path)) pair.head = LoadHead(path, &out_);
    out_.pairs.push_back(std::move(pair));
  }

  std::string revision_;
  std::string commit_;
  Includers includers_;
  std::set<std::string> added_;
  PolicyPairs out_;
};

}  // namespace

Result<PolicyPairs> PairPaths(const std::string& base, const std::string& head) {
  if (IsFolder(base) != IsFolder(head))
    return Fail(Code::kInvalid, fmt::format("compare two files or two folders: {} is a {}, {} is not",
                                            IsFolder(base) ? base : head, "folder", IsFolder(base) ? head : base));
  if (IsFolder(base)) return PairFolders(base, head);
  PolicyPairs out;
  PolicyPair pair{head, LoadHead(base, &out), nullptr};
  pair.head = LoadHead(head, &out);
  out.pairs.push_back(std::move(pair));
  return out;
}

Result<PolicyPairs> PairWithGit(const std::string& revision, const std::vector<std::string>& heads) {
  auto commit = GitCommit(revision);
  if (!commit) return std::unexpected(commit.error());
  GitPairs pairs(revision, *std::move(commit));
  for (const std::string& head : heads) {
    if (auto added = pairs.Add(head); !added) return std::unexpected(added.error());
  }
  return pairs.Take();
}

Result<PolicyPairs> HeadsAlone(const std::vector<std::string>& heads) {
  PolicyPairs out;
  for (const std::string& path : heads) {
    const auto files = FilesAt(path, FileKind::kPolicy);
    if (!files) return std::unexpected(files.error());
    for (const std::string& file : *files) {
      const policy::SnapshotPtr head = LoadHead(file, &out);
      out.pairs.push_back({file, head, head});
    }
  }
  return out;
}

}  // namespace sluice::app
