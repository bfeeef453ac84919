#pragma once

// Remarks that take a proof: rules that grant nothing, rules that others grant already, and denies that refuse nothing.

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "policy/finding.h"
#include "policy/snapshot.h"

namespace sluice::prover {

/// Codes: "shadowed" (an allow that denies leave nothing of), "redundant" (an allow that adds nothing to the others), "moot" (one
/// that looks inside what an opaque rule lets through whole), "idle-deny" (a deny that refuses nothing which an allow grants),
/// "not-compared" (once, where the policy is too large). Each rule is compared with those it may meet, under a bound of steps for
/// the whole policy.
[[nodiscard]] std::vector<policy::Finding> LintReach(const policy::Snapshot& snapshot, WallTime now);

}  // namespace sluice::prover
