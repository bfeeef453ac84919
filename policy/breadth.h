#pragma once

// How wide a host pattern is, for lint: whether its wildcard crosses the border below which anyone may register a name (Mozilla's
// public suffix list, as libpsl carries it).

#include <string>
#include <string_view>

#include "policy/rule.h"

namespace sluice::policy {

enum class HostBreadth : uint8_t {
  kNamed,       ///< one name or address, or a wildcard below a registered domain
  kSuffix,      ///< names of different owners: "*.github.io", "**.co.uk", "*.com"
  kEverything,  ///< "**"
};
struct Breadth {
  HostBreadth breadth = HostBreadth::kNamed;
  std::string suffix{};  ///< kSuffix: the public suffix that the wildcard stands below
};
[[nodiscard]] Breadth BreadthOf(const HostPattern& host);

/// Whether the text is a name with a registrable domain: what a comment means when it names a host.
[[nodiscard]] bool IsRegistrableName(std::string_view name);

}  // namespace sluice::policy
