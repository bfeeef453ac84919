#pragma once

// What a rule gains, in the words of its author.

#include <set>
#include <string>
#include <vector>

#include "prover/prove.h"

namespace sluice::prover {

/// What was gathered over all cells.
struct Gathered {
  const Witness& witness;
  const std::vector<policy::PortRange>& ports;
  const std::set<std::string>& methods;
};

/// A hull of the gain: the rule's own values, narrowed to the ports and methods gained, except what the loser's rules and the
/// winner's denies take of it.
[[nodiscard]] Region RegionOf(const policy::Snapshot& winner, policy::RuleRef rule, const policy::Snapshot& loser,
                              const Gathered& gathered);

}  // namespace sluice::prover
