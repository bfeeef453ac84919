#pragma once

// Remarks on a policy that loads all the same: what `sluice lint` prints beside errors.

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "policy/snapshot.h"

namespace sluice::policy {

/// A remark on a policy that loads all the same.
struct Finding {
  enum class Severity : uint8_t { kNote, kWarning, kError };
  Severity severity = Severity::kWarning;
  std::string code;  ///< "opaque-allow-meets-deny"
  std::string message;
  SourceSpan span;
  SourceSpan other{};   ///< the second place, where there is one
  SourceSpan origin{};  ///< the preset's line, for a rule that a preset made
};

/// What is worth a remark, in the order of the file. Quadratic in the rules of one host, and stops at kMaxFindings.
inline constexpr size_t kMaxFindings = 1000;
[[nodiscard]] std::vector<Finding> Lint(const Snapshot& snapshot, WallTime now);
/// How wide each allow is, beside its neighbours: "everything", "broad-host", "any-request", "expires-soon", "missing-by".
[[nodiscard]] std::vector<Finding> LintBreadth(const Snapshot& snapshot, WallTime now);
/// Those of them that `sluice run` says too, since they are cheap to find and a slip of the pen: "unknown-method".
[[nodiscard]] std::vector<Finding> UnknownMethods(const Snapshot& snapshot);

}  // namespace sluice::policy
