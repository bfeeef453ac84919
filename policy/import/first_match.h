#pragma once

// Lists in which the first entry that matches decides, as rules in which a deny always wins. A deny is written only where it can
// decide something: before an allow that it overlaps, and not behind one that covers it.

#include <string>
#include <vector>

#include "policy/import/builder.h"

namespace sluice::policy {

struct FirstMatchEntry {
  Effect effect = Effect::kAllow;
  HostPattern host;
  const Node* at = nullptr;
};

/// What no entry matches is denied. `tool` is named in the remarks.
[[nodiscard]] Result<void> AddFirstMatch(const std::vector<FirstMatchEntry>& entries, std::string_view tool, ImportBuilder* out);

}  // namespace sluice::policy
