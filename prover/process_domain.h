#pragma once

// Who may ask: one process for each way in which `by` and `under` of some rules can match.

#include <optional>
#include <vector>

#include "policy/rule.h"
#include "prover/budget.h"
#include "prover/prove.h"

namespace sluice::prover {

/// The process as the enforcer would see it; nothing for one that could not be read.
[[nodiscard]] std::optional<policy::Process> AsProcess(const WitnessProcess& witness);

/// How many ancestors may be of interest at once: one, for which an allow lets something out; and where an allow may also keep
/// something in, or have it travel another way, one of the other policy's.
enum class Lineage : uint8_t { kOne, kTwo };

/// Easy ones first: a path, then odd processes. `executables` closes the world of paths.
[[nodiscard]] std::vector<WitnessProcess> ProcessAtoms(const std::vector<const policy::Rule*>& rules,
                                                       const std::optional<std::vector<ManifestEntry>>& executables,
                                                       Lineage lineage, Budget* budget);

}  // namespace sluice::prover
