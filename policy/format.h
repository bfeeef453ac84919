#pragma once

// The canonical form of a policy file: keys in one order, rules in the compact form where they fit, lists on one line where they
// fit, comments and single blank lines kept. Never changes the meaning: what would is left as it was written.

#include <string>
#include <string_view>

#include "policy/node.h"

namespace sluice::policy {

/// `text` is what `root` was read from (io/yaml.h). Fails where the file is no policy, with a span. The result ends in a newline
/// and formats to itself.
[[nodiscard]] Result<std::string> FormatPolicy(std::string_view text, const Node& root);

}  // namespace sluice::policy
