#pragma once

// Whether a policy's author wrote a name out, whichever of the rules happened to match first. What is written out carries
// nothing, and is meant.

#include <string_view>

#include "policy/snapshot.h"

namespace sluice::dns {

/// Some allow's host is exactly this name.
[[nodiscard]] bool IsSpelled(const policy::Snapshot& snapshot, std::string_view canonical_name);
/// Some allow that holds the name has a host that ends in `domain`.
[[nodiscard]] bool IsSpelledUnder(const policy::Snapshot& snapshot, std::string_view canonical_name, std::string_view domain);

}  // namespace sluice::dns
