#pragma once

// `prove --accept FILE`: regions that someone has answered for, with a reason and an end; and `--exe-manifest FILE`, the
// executables that exist where a policy runs.

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "policy/rule.h"
#include "prover/prove.h"

namespace sluice::app {

struct Acceptance {
  policy::Rule region;  ///< read as an allow
  std::string owner;
  std::string reason;
  WallTime expires{};  ///< first instant at which it counts no longer
};

/// Errors carry a span. At most 1,000 entries.
inline constexpr size_t kMaxAcceptances = 1000;
[[nodiscard]] Result<std::vector<Acceptance>> ReadAcceptances(const std::string& file);

/// A line each: "/usr/bin/node", "/usr/bin/nodejs -> /usr/bin/node", or what sha256sum prints; `#` begins a comment. At most
/// 100,000 lines.
inline constexpr size_t kMaxManifestLines = 100'000;
[[nodiscard]] Result<std::vector<prover::ManifestEntry>> ReadManifest(const std::string& file);

}  // namespace sluice::app
