#pragma once

// Every host that some pattern tells from another: one name for each set of host patterns that a canonical name can match.

#include <string>
#include <vector>

#include "policy/rule.h"
#include "prover/budget.h"

namespace sluice::prover {

/// The shortest name of each atom, shortest first. The address literals, which are no names, are the caller's.
[[nodiscard]] std::vector<std::string> HostAtoms(const std::vector<const policy::HostPattern*>& hosts, Budget* budget);

}  // namespace sluice::prover
