#pragma once

// YAML text to a Node, through libfyaml. Refuses whatever reads differently in another YAML reader (docs/policy-language.md,
// exact point 20): tags, anchors, aliases, directives, more than one document, duplicate and merge keys, scalars over several
// lines, tabs, invisible characters, " #x" after a plain value; and nesting deeper than kMaxDepth.

#include <string>
#include <string_view>

#include "policy/node.h"

namespace sluice::policy {

inline constexpr size_t kMaxFileBytes = 1024 * 1024;
inline constexpr size_t kMaxDepth = 16;

/// Refuses what is not UTF-8, tabs, and characters that a reader of the file cannot see.
[[nodiscard]] Result<void> CheckCharacters(std::string_view text, const std::string& file);

/// `file` is what errors call it. An empty file is an empty mapping.
[[nodiscard]] Result<Node> ParseYaml(std::string_view text, const std::string& file);

}  // namespace sluice::policy
