#pragma once

// Whether two patterns have something in common, for lint. Never says no wrongly; where it cannot tell cheaply it says yes.

#include "policy/rule.h"

namespace sluice::policy {

[[nodiscard]] bool GlobsOverlap(const Glob& a, const Glob& b);
/// The glob with `suffix` after it, for the requests of a git repository.
[[nodiscard]] bool GlobOverlapsSuffixed(const Glob& path, const Glob& repo, std::string_view suffix);
/// Whether one connection can be in both, by name or by address.
[[nodiscard]] bool ConnectionsOverlap(const Rule& allow, const Rule& deny);
[[nodiscard]] bool PortsOverlap(const std::vector<PortRange>& a, const std::vector<PortRange>& b);

}  // namespace sluice::policy
