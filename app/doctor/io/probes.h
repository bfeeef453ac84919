#pragma once

// Tries what a sandbox and a fence are made of, in namespaces that are gone afterwards. Forks: one thread.

#include <vector>

#include "app/doctor/io/facts.h"
#include "app/doctor/report.h"

namespace sluice::app {

/// Namespaces, mounts, the capture's network and rules, as `run` makes them.
[[nodiscard]] std::vector<Check> ProbeSandbox(const PlaceFacts& place);

/// The fence's rules, sets and flows, as `sidecar` makes them: in a network namespace of its own, and where none can be made
/// here, in tables that are switched off.
[[nodiscard]] std::vector<Check> ProbeFence(const PlaceFacts& place);

}  // namespace sluice::app
