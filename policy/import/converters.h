#pragma once

// One converter a kind; import.cc picks.

#include "policy/import/builder.h"

namespace sluice::policy {

[[nodiscard]] Result<void> ImportOpenShell(const Node& root, const ImportInput& input, ImportBuilder* out);
[[nodiscard]] Result<void> ImportSandboxRuntime(const Node& root, const ImportInput& input, ImportBuilder* out);
[[nodiscard]] Result<void> ImportOpenSandbox(const Node& root, const ImportInput& input, ImportBuilder* out);
[[nodiscard]] Result<void> ImportAwf(const Node& root, const ImportInput& input, ImportBuilder* out);
[[nodiscard]] Result<void> ImportHardenRunner(const Node& root, const ImportInput& input, ImportBuilder* out);
[[nodiscard]] Result<void> ImportSmokescreen(const Node& root, const ImportInput& input, ImportBuilder* out);
[[nodiscard]] Result<void> ImportCilium(const Node& root, const ImportInput& input, ImportBuilder* out);

/// Lists without a tree: each entry is a scalar with its place.
[[nodiscard]] Result<void> ImportAwfList(const std::vector<Node>& entries, ImportBuilder* out);
[[nodiscard]] Result<void> ImportHardenRunnerList(const std::vector<Node>& entries, ImportBuilder* out);

/// The words of `text` from line `first` up to, not with, line `last` (from 1), split at blanks and commas, `#` comments
/// dropped.
[[nodiscard]] std::vector<Node> WordsOfLines(std::string_view text, const std::string& file, uint32_t first, uint32_t last);

}  // namespace sluice::policy
