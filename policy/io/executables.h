#pragma once

// Whether the executables that `by` and `under` name are what the kernel will report: a process is known by the resolved path
// of its binary, so a rule that names a symlink or a script would never match.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "policy/finding.h"
#include "policy/rule.h"
#include "policy/snapshot.h"

namespace sluice::policy {

/// Paths without wildcards that exist on this machine. An error names the real file and has the rule's span.
[[nodiscard]] Result<void> CheckExecutables(const std::vector<Rule>& rules);

/// For policies of other tools, whose authors write links: replaces each by the file it leads to and says so. What is a script
/// is told too; no process is one.
void ResolveExecutables(std::vector<Rule>* rules, std::vector<Finding>* remarks);

/// Rules of which no program can be had now: every one that `by` or `under` names is a path that is not on this machine.
/// It may come later. Without a code: `lint` looks at no machine.
[[nodiscard]] std::vector<Finding> MissingExecutables(const Snapshot& snapshot);

/// SHA-256 of a text, as 64 digits: what names a policy or a finding.
[[nodiscard]] Result<std::string> TextDigest(std::string_view text);

/// SHA-256 of a file's content, for the question "would this program be allowed". At most 1 GiB.
[[nodiscard]] Result<std::array<uint8_t, 32>> FileDigest(const std::string& path);

}  // namespace sluice::policy
