#pragma once

// User and group maps of a user namespace (user_namespaces(7)). Sluice's namespaces are identity maps: an id inside is the
// same id outside, so that the workload sees its own files as its own.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::supervisor {

struct IdRange {
  uint32_t first = 0;
  uint32_t count = 0;
  bool operator==(const IdRange&) const = default;
};

/// Ranges the kernel takes in one map.
inline constexpr size_t kMaxIdRanges = 340;

/// The ids that exist in this namespace, from the text of /proc/self/uid_map or gid_map. Nothing: not such a text.
[[nodiscard]] std::optional<std::vector<IdRange>> ParseIdMap(std::string_view text);

/// The text to write for an identity map of these ranges.
[[nodiscard]] std::string FormatIdentityMap(const std::vector<IdRange>& ranges);

}  // namespace sluice::supervisor
