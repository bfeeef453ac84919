#pragma once

// Whether two patterns have something in common, for lint. Never says no wrongly; where it cannot tell cheaply it says yes.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/rule.h"

namespace sluice::policy {

[[nodiscard]] bool GlobsOverlap(const Glob& a, const Glob& b);
/// The glob with `suffix` after it, for the requests of a git repository.
[[nodiscard]] bool GlobOverlapsSuffixed(const Glob& path, const Glob& repo, std::string_view suffix);
/// Whether one connection can be in both, by name or by address.
[[nodiscard]] bool ConnectionsOverlap(const Rule& allow, const Rule& deny);
[[nodiscard]] bool PrefixesOverlap(const std::vector<Cidr>& a, const std::vector<Cidr>& b);
/// `by` of two rules. A digest and a path may be the same file.
[[nodiscard]] bool ProcessesOverlap(const Rule& a, const Rule& b);
/// Both kGlob.
[[nodiscard]] bool HostGlobsOverlap(const HostPattern& a, const HostPattern& b);
[[nodiscard]] bool PortsOverlap(const std::vector<PortRange>& a, const std::vector<PortRange>& b);

/// A path glob with what may follow it: a byte, or one of the wildcards, a symbol each.
using PathPattern = std::vector<int>;
enum class PathCase : uint8_t {
  kExact,
  kFolded,       ///< ASCII letters in lower case, for repositories
  kFoldedBelow,  ///< the same, and anything after it
};
[[nodiscard]] PathPattern PatternOf(const Glob& path, std::string_view suffix, PathCase fold);
[[nodiscard]] PathPattern AnyPath();
/// Whether each text of `inner` is one of some `outer`. Never says yes wrongly; where it cannot tell cheaply it says no.
[[nodiscard]] bool PathsHold(const std::vector<PathPattern>& outer, const PathPattern& inner);
/// A text of both; nothing where there is none. Never says nothing wrongly: where it cannot tell cheaply the text is "/".
[[nodiscard]] std::optional<std::string> CommonText(const PathPattern& a, const PathPattern& b);

}  // namespace sluice::policy
