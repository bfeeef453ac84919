#pragma once

// One proof as JSON, as the administration and the library give it: what `sluice prove --format json` says of a pair, and a
// summary.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "policy/snapshot.h"
#include "prover/prove.h"

namespace sluice::app {

/// `steps` bounds the search; what it does not reach is Verdict::kUnknown, which is no pass. Blocks for as long as that takes.
[[nodiscard]] nlohmann::json ProofJson(const std::string& name, const policy::SnapshotPtr& base, const policy::SnapshotPtr& head,
                                       uint64_t steps, prover::Verdict* verdict);

}  // namespace sluice::app
