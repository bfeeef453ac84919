#pragma once

// Policies of other tools, read as native rules. Each kind has one converter: a pure function from the tree of the file to rules
// whose places are places of that file, and remarks where the meaning is not what a reader of either language may expect.
// What the tool would refuse and Sluice cannot is an error with its place, never a rule that grants more. docs/import.md says
// field by field what becomes of what.
//
//   if (const auto kind = DetectKind(*tree)) auto imported = ImportPolicy(*kind, *tree, {"p.yaml", "p.yaml", text, ""});

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policy/finding.h"
#include "policy/node.h"
#include "policy/rule.h"

namespace sluice::policy {

enum class ImportKind : uint8_t { kOpenShell, kSandboxRuntime, kOpenSandbox, kAwf, kHardenRunner, kSmokescreen, kCilium };

/// "openshell": what `--from` takes.
[[nodiscard]] std::string_view ImportWord(ImportKind kind);
/// "an OpenShell policy".
[[nodiscard]] std::string_view ImportTitle(ImportKind kind);
[[nodiscard]] std::optional<ImportKind> ParseImportKind(std::string_view word);
[[nodiscard]] std::span<const std::string_view> ImportWords();

/// What the file is, told by its shape; nothing for a native policy and for what is none of them.
[[nodiscard]] std::optional<ImportKind> DetectKind(const Node& root);

struct ImportInput {
  std::string file;         ///< as errors call it
  std::string label;        ///< names the file in rule ids
  std::string_view text;    ///< the whole file, for places inside block scalars
  std::string_view only{};  ///< the service, job or the like where the file holds several
};

struct ImportRemark {
  Finding finding;       ///< code import-note, import-narrower, import-wider or import-nothing
  bool of_file = false;  ///< about the whole file; else it stands before the rule at `before`
  size_t before = 0;
};

struct Imported {
  ImportKind kind = ImportKind::kOpenShell;
  std::string name;         ///< as the file gives it, else empty
  std::vector<Rule> rules;  ///< each with an id
  std::vector<ImportRemark> remarks;
};

[[nodiscard]] Result<Imported> ImportPolicy(ImportKind kind, const Node& root, const ImportInput& input);
/// A plain list, one entry a line, for the kinds that have such files (gh-aw-firewall domains, harden-runner endpoints).
[[nodiscard]] Result<Imported> ImportList(ImportKind kind, const ImportInput& input);

/// The native policy, remarks as comments. Loaded again it has the same rules.
[[nodiscard]] std::string WriteNative(const Imported& imported, std::string_view source);

}  // namespace sluice::policy
