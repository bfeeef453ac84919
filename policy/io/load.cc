#include "policy/io/load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <unordered_map>

#include "base/path_error.h"
#include "base/read_to_end.h"
#include "base/unique_fd.h"
#include "policy/compiled.h"
#include "policy/document.h"
#include "policy/import/import.h"
#include "policy/io/executables.h"
#include "policy/io/foreign.h"
#include "policy/io/preset_store.h"
#include "policy/io/yaml.h"
#include "policy/routes.h"
#include "policy/rule_text.h"

namespace sluice::policy {
namespace {

constexpr size_t kMaxFiles = 64;
constexpr size_t kMaxRules = 100'000;
constexpr size_t kMaxAssertions = 1'000;

// At most 1 MiB; a pipe or a device is not a policy.
Result<std::string> ReadWhole(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!fd) return FailPath(fmt::format("cannot open {}", path), errno);
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return FailErrno(fmt::format("cannot read {}", path), errno);
  if (!S_ISREG(info.st_mode)) return Fail(Code::kInvalid, fmt::format("{} is not a regular file", path));
  auto text = ReadToEnd(fd.get(), kMaxFileBytes, path);
  // What is larger the parser refuses, with its place.
  if (!text && text.error().code == Code::kExhausted) return std::string(kMaxFileBytes + 1, '\0');
  return text;
}

std::string Folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// A shell's <(...) is a pipe under a name that leads nowhere.
Error CannotOpen(const std::string& path, int error) {
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0 && S_ISFIFO(info.st_mode))
    return {
        Code::kInvalid,
        fmt::format("{} is a pipe, and a policy is a file, which can be read again: write it to one, or hand it to `sluice run "
                    "--policy-fd N`",
                    path),
        0, std::nullopt};
  return PathError(fmt::format("cannot open {}", path), error);
}

std::string RealPath(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return "";
  std::string result(real);
  std::free(real);
  return result;
}

// Reads the top file and what it includes, each once, depth first.
class Loader {
 public:
  explicit Loader(const LoadOptions& options) : options_(options) {}

  Result<void> Add(const std::string& path, FileRole role, const IncludeName* from) {
    if (role == FileRole::kTop) source_.read_from = std::chrono::system_clock::now();
    const std::string real = options_.read ? std::filesystem::path(path).lexically_normal().string() : RealPath(path);
    if (real.empty()) return Misplaced(from, CannotOpen(path, errno));
    if (role == FileRole::kTop) {
      root_ = Folder(real);
    } else if (!real.starts_with(root_) || (root_.empty() && real.starts_with(".."))) {
      return Misplaced(
          from, Error{Code::kInvalid, fmt::format("the include `{}` leads out of the policy's folder", from->path), 0, {}});
    }
    if (std::find(chain_.begin(), chain_.end(), real) != chain_.end())
      return Misplaced(from, Error{Code::kInvalid, fmt::format("the include `{}` leads back to itself", from->path), 0, {}});
    if (std::find(source_.files.begin(), source_.files.end(), real) != source_.files.end()) return {};
    if (source_.files.size() >= kMaxFiles)
      return Misplaced(from, Error{Code::kExhausted, fmt::format("more than {} files", kMaxFiles), 0, {}});
    source_.files.push_back(real);
    source_.file_names.push_back(options_.read ? real : std::filesystem::absolute(path).string());
    const auto text = options_.read ? options_.read(real) : ReadWhole(real);
    if (!text) return Misplaced(from, text.error());
    chain_.push_back(real);
    auto added = AddText(*text, path, role, real.substr(root_.size()));
    chain_.pop_back();
    return added;
  }

  Result<void> AddText(std::string_view text, const std::string& path, FileRole role, const std::string& label) {
    const std::string name = options_.name_prefix + path;
    const auto node = role == FileRole::kTop ? ParsePolicyTree(text, name) : ParseYaml(text, name);
    if (!node) return std::unexpected(node.error());
    if (const auto kind = role == FileRole::kTop ? DetectKind(*node) : std::nullopt)
      return AddImported(ImportPolicy(*kind, *node, {name, label, text}), label);
    auto document = ReadDocument(*node, role, label);
    if (!document) return std::unexpected(document.error());
    if (role == FileRole::kTop) {
      source_.name = document->name.empty() ? label : document->name;
      source_.mode = document->mode;
      source_.settings = document->settings;
    }
    if (auto added = AddNamed(std::move(document->credentials), "credential", &source_.credentials); !added) return added;
    if (auto added = AddNamed(std::move(document->proxies), "proxy", &source_.proxies); !added) return added;
    for (const PresetUse& use : document->presets) {
      if (auto added = AddPreset(use, VersionNeed::kWritten); !added) return added;
    }
    for (Rule& rule : document->rules) {
      if (auto added = AddRule(std::move(rule)); !added) return added;
    }
    for (Assertion& assertion : document->assertions) {
      if (auto added = AddAssertion(std::move(assertion)); !added) return added;
    }
    for (const IncludeName& include : document->includes) {
      if (root_.empty() && !options_.read)
        return Misplaced(&include, Error{Code::kInvalid, "a policy that is not a file cannot include one", 0, {}});
      if (auto added = Add(Folder(path) + include.path, FileRole::kIncluded, &include); !added) return added;
    }
    return {};
  }

  // A top file in another tool's language: it includes nothing, and its rules come first.
  Result<void> AddImported(Result<Imported> imported, const std::string& label) {
    if (!imported) return std::unexpected(imported.error());
    source_.name = imported->name.empty() ? label : imported->name;
    source_.origin = ImportTitle(imported->kind);
    for (ImportRemark& remark : imported->remarks) source_.remarks.push_back(std::move(remark.finding));
    foreign_rules_ = imported->rules.size();
    for (Rule& rule : imported->rules) {
      if (auto added = AddRule(std::move(rule)); !added) return added;
    }
    return {};
  }

  Result<void> AddAllows(const std::vector<std::string>& texts) {
    for (size_t i = 0; i < texts.size(); ++i) {
      SourceSpan span{"--allow", static_cast<uint32_t>(i + 1), 1, static_cast<uint32_t>(texts[i].size())};
      auto rule = ParseCompact(Effect::kAllow, texts[i]);
      if (!rule) {
        Error error = std::move(rule.error());
        if (error.span) span.column = error.span->column;
        error.message = fmt::format("{} (in '{}')", error.message, texts[i]);
        error.span = std::move(span);
        return std::unexpected(std::move(error));
      }
      rule->span = std::move(span);
      rule->id = fmt::format("--allow:{}", i + 1);
      if (auto added = AddRule(std::move(*rule)); !added) return added;
    }
    return {};
  }

  Result<void> AddPresetTexts(const std::vector<std::string>& texts) {
    for (size_t i = 0; i < texts.size(); ++i) {
      auto use = ParsePresetUse(texts[i], SourceSpan{"--preset", static_cast<uint32_t>(i + 1), 1, 0});
      if (!use) return std::unexpected(use.error());
      use->id = fmt::format("--preset:{}", i + 1);
      if (auto added = AddPreset(*use, VersionNeed::kNewestByDefault); !added) return added;
    }
    return {};
  }

  Result<SnapshotPtr> Finish() {
    if (options_.check_executables) {
      // Links in what others wrote are resolved; in our own language they are errors that name the file.
      std::vector<Rule> own(source_.rules.begin() + static_cast<std::ptrdiff_t>(foreign_rules_), source_.rules.end());
      if (auto good = CheckExecutables(own); !good) return std::unexpected(good.error());
      source_.rules.resize(foreign_rules_);
      ResolveExecutables(&source_.rules, &source_.remarks);
      source_.rules.insert(source_.rules.end(), std::make_move_iterator(own.begin()), std::make_move_iterator(own.end()));
      std::vector<Rule> asserted;
      for (const Assertion& assertion : source_.assertions) asserted.push_back(assertion.rule);
      if (auto good = CheckExecutables(asserted); !good) return std::unexpected(good.error());
    }
    if (options_.default_proxy && source_.settings.via.empty()) {
      source_.settings.via = options_.default_proxy->name;
      source_.settings.via_at = options_.default_proxy->span;
      if (auto added = AddNamed<UpstreamProxy>({*options_.default_proxy}, "proxy", &source_.proxies); !added)
        return std::unexpected(added.error());
    }
    if (auto resolved = ResolveRoutes(&source_); !resolved) return std::unexpected(resolved.error());
    auto digest = TextDigest(DigestInput(source_));
    if (!digest) return std::unexpected(digest.error());
    source_.digest = *std::move(digest);
    return Compile(std::move(source_));
  }

  void SetName(std::string name) { source_.name = std::move(name); }

 private:
  static std::unexpected<Error> Misplaced(const IncludeName* from, Error error) {
    if (from != nullptr) error.span = from->span;
    return std::unexpected(std::move(error));
  }

  Result<void> AddPreset(const PresetUse& use, VersionNeed need) {
    auto rules = RulesOfPreset(use, need);
    if (!rules) return std::unexpected(rules.error());
    for (Rule& rule : *rules) {
      if (auto added = AddRule(std::move(rule)); !added) return added;
    }
    return {};
  }

  // Names are those of the whole composition.
  template <class T>
  static Result<void> AddNamed(std::vector<T> items, std::string_view what, std::vector<T>* all) {
    for (T& item : items) {
      for (const T& other : *all)
        if (other.name == item.name)
          return std::unexpected(
              Error{Code::kInvalid,
                    fmt::format("the {} `{}` is already defined at {}:{}", what, item.name, other.span.file, other.span.line), 0,
                    item.span});
      all->push_back(std::move(item));
    }
    return {};
  }

  // Rules and assertions have their ids in common: a finding names either.
  Result<void> TakeId(const Rule& rule) {
    const auto [it, fresh] = ids_.try_emplace(rule.id, rule.span);
    if (fresh) return {};
    return std::unexpected(
        Error{Code::kInvalid,
              fmt::format("the id `{}` is already that of the rule at {}:{}", rule.id, it->second.file, it->second.line), 0,
              rule.span});
  }

  Result<void> AddRule(Rule rule) {
    if (source_.rules.size() >= kMaxRules)
      return std::unexpected(Error{Code::kExhausted, fmt::format("more than {} rules", kMaxRules), 0, rule.span});
    if (auto taken = TakeId(rule); !taken) return taken;
    source_.rules.push_back(std::move(rule));
    return {};
  }

  Result<void> AddAssertion(Assertion assertion) {
    if (source_.assertions.size() >= kMaxAssertions)
      return std::unexpected(
          Error{Code::kExhausted, fmt::format("more than {} assertions", kMaxAssertions), 0, assertion.rule.span});
    if (auto taken = TakeId(assertion.rule); !taken) return taken;
    source_.assertions.push_back(std::move(assertion));
    return {};
  }

  const LoadOptions& options_;
  PolicySource source_;
  size_t foreign_rules_ = 0;  ///< how many of the rules were imported
  std::string root_;          ///< folder of the top file, real, with its slash
  std::vector<std::string> chain_;
  std::unordered_map<std::string, SourceSpan> ids_;
};

}  // namespace

Result<SnapshotPtr> LoadFile(const std::string& path, const LoadOptions& options) {
  Loader loader(options);
  if (auto added = loader.Add(path, FileRole::kTop, nullptr); !added) return std::unexpected(added.error());
  if (auto added = loader.AddAllows(options.extra_allows); !added) return std::unexpected(added.error());
  if (auto added = loader.AddPresetTexts(options.extra_presets); !added) return std::unexpected(added.error());
  return loader.Finish();
}

Result<SnapshotPtr> LoadRules(const LoadOptions& options) {
  Loader loader(options);
  loader.SetName("--allow");
  if (auto added = loader.AddAllows(options.extra_allows); !added) return std::unexpected(added.error());
  if (auto added = loader.AddPresetTexts(options.extra_presets); !added) return std::unexpected(added.error());
  return loader.Finish();
}

Result<SnapshotPtr> LoadText(std::string_view text, const std::string& name) {
  LoadOptions options;
  options.check_executables = false;
  return LoadText(text, name, options);
}

Result<SnapshotPtr> LoadText(std::string_view text, const std::string& name, const LoadOptions& options) {
  Loader loader(options);
  if (auto added = loader.AddText(text, name, FileRole::kTop, name); !added) return std::unexpected(added.error());
  return loader.Finish();
}

}  // namespace sluice::policy
