#pragma once

// JSON (RFC 8259) as the same tree that YAML gives, with places. Tabs may indent it, as many editors do; duplicate keys,
// comments, trailing commas and invisible characters are refused.

#include <string>
#include <string_view>

#include "policy/node.h"

namespace sluice::policy {

/// Strings are quoted scalars; numbers, booleans and null plain ones.
[[nodiscard]] Result<Node> ParseJson(std::string_view text, const std::string& file);

}  // namespace sluice::policy
