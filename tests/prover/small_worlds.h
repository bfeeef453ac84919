#pragma once

// The worlds by name, without their tuples.

#include "tests/prover/small_world.h"

namespace sluice::prover {

// Of bodies.
[[nodiscard]] World Graphql();
[[nodiscard]] World Calls();
[[nodiscard]] World Pushes();
[[nodiscard]] World Batches();
[[nodiscard]] World Joined();
[[nodiscard]] World Besides();
[[nodiscard]] World Schemes();

// Of ways.
[[nodiscard]] World Travels();
[[nodiscard]] World Bound();
[[nodiscard]] World Remote();
[[nodiscard]] World Lineages();

}  // namespace sluice::prover
