#pragma once

// One entry of `rules:` or of `assert:`.

#include <span>
#include <string>
#include <string_view>

#include "policy/node.h"
#include "policy/rule.h"

namespace sluice::policy {

/// What may stand in an entry of `rules:`, `allow` and `deny` among it, and in the long form of a target.
[[nodiscard]] std::span<const std::string_view> RuleKeys();
[[nodiscard]] std::span<const std::string_view> TargetKeys();

[[nodiscard]] Result<Rule> ReadRule(const Node& node, const std::string& label);
[[nodiscard]] Result<Assertion> ReadAssertion(const Node& node, const std::string& label);

/// Text from a node, refusing what another YAML reader may take for something else.
[[nodiscard]] Result<std::string> ReadText(const Node& node, std::string_view slot);
/// An error at the node.
[[nodiscard]] std::unexpected<Error> NodeError(const Node& node, std::string message);
/// An error inside the node's text: line 1 and a column there become places of the file.
[[nodiscard]] std::unexpected<Error> MovedInto(const Node& node, Error error);

}  // namespace sluice::policy
