#pragma once

// Addresses that a name must not lead to unless a rule writes them out (docs/policy-language.md, "Addresses").

#include <optional>
#include <span>
#include <vector>

#include "base/ip.h"

namespace sluice::policy {

struct SpecialRange {
  Cidr range;        ///< a prefix unlocks the address only if it lies wholly inside this
  const char* name;  ///< "private", "metadata service", …
};

/// The narrowest special range that holds `address`, if one does. Forms that carry an IPv4 address (6to4, NAT64) are judged by
/// what they carry, and the range is then in that form. A metadata service or one of `host_addresses` is a range of one.
[[nodiscard]] std::optional<SpecialRange> FindSpecialRange(const IpAddress& address, std::span<const IpAddress> host_addresses);

/// The first address after the prefix; nothing after the last of all.
[[nodiscard]] std::optional<IpAddress> FirstAfter(const Cidr& prefix);
/// Every address at which FindSpecialRange's answer may change, the supervisor's own apart: between two neighbours, IPv4 in its
/// mapped place, it is constant.
[[nodiscard]] std::vector<IpAddress> SpecialRangeEdges();

}  // namespace sluice::policy
