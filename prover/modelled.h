#pragma once

// What of the language the prover has no model of. It is answered with "unknown", never with a guess.

#include <string>

#include "policy/compiled.h"

namespace sluice::prover {

/// Why the rule cannot be compared, one sentence without its stop; empty where it can.
[[nodiscard]] std::string WhyNotModelled(const policy::Rule& rule);
/// The same of a whole policy.
[[nodiscard]] std::string WhyNotModelled(const policy::Snapshot& policy);

}  // namespace sluice::prover
