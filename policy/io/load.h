#pragma once

// Reads a policy file and its includes from disk and compiles them.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/credential.h"
#include "policy/finding.h"
#include "policy/snapshot.h"

namespace sluice::policy {

struct LoadOptions {
  std::vector<std::string> extra_allows{};   ///< `--allow` texts, compiled as rules of a file named "--allow"
  std::vector<std::string> extra_presets{};  ///< `--preset` texts: "npm:host=registry.corp.example", the newest without a version
  /// `--via`: the upstream proxy of every allow that names none and no address, where the policy's own settings name none either.
  std::optional<UpstreamProxy> default_proxy{};
  /// Whether `by` paths are checked against this machine (a symlink or script there is an error). Off for `lint` elsewhere.
  bool check_executables = true;
  /// Reads a file in the file system's place, as `prove` does with an older commit's: gets a lexically normal path. Nothing:
  /// the file system, with symlinks followed and checked.
  std::function<Result<std::string>(const std::string& path)> read{};
  std::string name_prefix{};  ///< stands before each file's name in places: "origin/main:"
};

/// Errors carry a span. At most 1 MiB a file, 64 files, 100,000 rules.
[[nodiscard]] Result<SnapshotPtr> LoadFile(const std::string& path, const LoadOptions& options = {});
/// `--allow` and `--preset` texts alone, without a file.
[[nodiscard]] Result<SnapshotPtr> LoadRules(const LoadOptions& options);

/// A policy held in memory; `name` is what its errors call it. It cannot include others.
[[nodiscard]] Result<SnapshotPtr> LoadText(std::string_view text, const std::string& name);
/// The same with `default_proxy` and `check_executables` of the options.
[[nodiscard]] Result<SnapshotPtr> LoadText(std::string_view text, const std::string& name, const LoadOptions& options);

/// "policy.yaml:7:12: unknown verb `gti`; did you mean `git`?", then the line, read again from the file, and a caret. `color`:
/// ANSI.
[[nodiscard]] std::string RenderError(const Error& error, bool color);

}  // namespace sluice::policy
