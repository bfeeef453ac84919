#pragma once

// Single rules of a policy's text, added, replaced and removed by their ids: the text stays its author's, in the canonical form
// of `sluice fmt`, comments included. Pure.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace sluice::app {

inline constexpr size_t kMaxEdits = 1000;  ///< rules named in one edit

struct PolicyEdit {
  std::vector<std::string> remove;                           ///< ids
  std::vector<std::pair<std::string, std::string>> replace;  ///< id, and the rule as a YAML flow map
  std::vector<std::string> add;                              ///< YAML flow maps, behind the rules that stand
};

/// {"remove": ["id"], "replace": {"id": RULE}, "add": [RULE]}: a RULE is a JSON object with the keys that a rule has in a policy
/// file. Duplicate and unknown keys are kInvalid.
[[nodiscard]] Result<PolicyEdit> ReadPolicyEdit(std::string_view json);
/// One RULE. A rule that names no id gets `id`, where that is one that an author could have given.
[[nodiscard]] Result<std::string> ReadRuleJson(std::string_view json, std::string_view id);

/// All or nothing. kNotFound: no rule has an id that is removed or replaced. `name` is what the file is called in ids and errors.
/// The result still has to be compiled.
[[nodiscard]] Result<std::string> EditPolicy(std::string_view text, const std::string& name, const PolicyEdit& edit);

/// Whether the id stands for a place ("policy.yaml:7") and so for another rule once lines have moved.
[[nodiscard]] bool IsPositionalId(std::string_view id);

}  // namespace sluice::app
