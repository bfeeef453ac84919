#include "app/policy_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "app/file.h"
#include "base/log.h"
#include "base/printable.h"
#include "policy/io/yaml.h"

namespace sluice::app {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostTold = 5;  ///< of what was passed over

class Walk {
 public:
  Walk(const std::string& top, FileKind kind) : top_(top), kind_(kind) {}

  Result<void> Into(const fs::path& folder) {
    std::error_code error;
    fs::directory_iterator it(folder, error);
    for (; !error && it != fs::directory_iterator(); it.increment(error)) {
      if (auto taken = TakeEntry(*it); !taken) return taken;
    }
    // A part that nobody has read must not pass for one without faults.
    if (error) return Fail(Code::kInvalid, fmt::format("cannot read the folder {}: {}", folder.string(), error.message()));
    return {};
  }

  // What a person may take for read.
  void TellSkipped() {
    if (skipped_.empty()) return;
    std::ranges::sort(skipped_);
    const size_t told = std::min(skipped_.size(), kMostTold);
    const std::string more = told < skipped_.size() ? fmt::format(" and {} more", skipped_.size() - told) : "";
    LogInfo("{}: passed over {}{}: hidden, or a link to a folder; what is named itself is read", Printable(top_),
            fmt::join(skipped_.begin(), skipped_.begin() + static_cast<std::ptrdiff_t>(told), ", "), more);
  }

  std::vector<std::string> Take() {
    std::ranges::sort(files_);
    return std::move(files_);
  }

 private:
  Result<void> TakeEntry(const fs::directory_entry& entry) {
    std::error_code ignored;
    const std::string name = entry.path().filename().string();
    const std::string below = entry.path().lexically_relative(top_).string();
    const bool folder = entry.is_directory(ignored);
    const bool hidden = name.starts_with('.');
    if (folder && !hidden && !entry.is_symlink(ignored)) return Into(entry.path());
    // Git's own folder holds nobody's policies.
    if (folder || (hidden && IsNameOf(kind_, name))) {
      if (name != ".git") skipped_.push_back(Printable(below));
      return {};
    }
    if (hidden || !IsNameOf(kind_, name)) return {};
    // A link that leads nowhere is kept, so that reading it says so.
    if (!entry.is_regular_file(ignored) && !entry.is_symlink(ignored)) return {};
    if (kind_ == FileKind::kPolicy && HoldsAcceptances(entry.path().string())) return {};
    if (files_.size() >= kMaxFolderFiles)
      return Fail(Code::kExhausted, fmt::format("{} holds more than {} files to read", top_, kMaxFolderFiles));
    files_.push_back(below);
    return {};
  }

  std::string top_;
  FileKind kind_;
  std::vector<std::string> files_;    ///< relative to the top
  std::vector<std::string> skipped_;  ///< the same
};

}  // namespace

bool IsFolder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool IsNameOf(FileKind kind, const std::string& path) {
  const bool test = path.ends_with(".test.yaml") || path.ends_with(".test.yml");
  if (kind == FileKind::kPolicyTest) return test;
  return !test && (path.ends_with(".yaml") || path.ends_with(".yml"));
}

bool IsAcceptances(const std::string& text, const std::string& name) {
  // Most files are ruled out unparsed.
  if (text.find("accepted") == std::string::npos) return false;
  const auto root = policy::ParseYaml(text, name);
  if (!root || root->kind != policy::Node::Kind::kMapping) return false;
  const auto is = [](std::string_view key) { return [key](const policy::Member& member) { return member.key.text == key; }; };
  return std::ranges::any_of(root->members, is("accepted")) &&
         std::ranges::all_of(root->members, [&](const auto& member) { return is("accepted")(member) || is("version")(member); });
}

bool HoldsAcceptances(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  const auto text = ReadFile(path, policy::kMaxFileBytes);
  return text && IsAcceptances(*text, path);
}

void TellAcceptances(const std::string& path) {
  LogInfo("{}: passed over: it is for `prove --accept`, and no policy", Printable(path));
}

Result<std::vector<std::string>> FilesBelow(const std::string& folder, FileKind kind) {
  Walk walk(folder, kind);
  if (auto walked = walk.Into(folder); !walked) return std::unexpected(walked.error());
  walk.TellSkipped();
  return walk.Take();
}

Result<std::vector<std::string>> FilesAt(const std::string& path, FileKind kind) {
  if (kind == FileKind::kPolicy && HoldsAcceptances(path)) {
    TellAcceptances(path);
    return std::vector<std::string>{};
  }
  if (!IsFolder(path)) return std::vector<std::string>{path};
  auto below = FilesBelow(path, kind);
  if (!below) return below;
  if (below->empty())
    return Fail(Code::kInvalid, kind == FileKind::kPolicy ? fmt::format("{} holds no policy (*.yaml, *.yml)", path)
                                                          : fmt::format("{} holds no policy test (*.test.yaml)", path));
  for (std::string& file : *below) file = (fs::path(path) / file).string();
  return below;
}

}  // namespace sluice::app
