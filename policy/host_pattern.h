#pragma once

// Hosts as policies write them: names in any script, wildcards, literals and prefixes. IDNA 2008 with UTS 46 non-transitional
// mapping, for policy text alone; names at run time are never mapped.

#include <string_view>

#include "policy/rule.h"

namespace sluice::policy {

/// Errors carry a column inside `text`.
[[nodiscard]] Result<HostPattern> ParseHostPattern(std::string_view text);

}  // namespace sluice::policy
