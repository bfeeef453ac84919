#pragma once

// One small policy with what it reaches, written down tuple by tuple, and the comparison of two with what the prover says.

#include "tests/prover/small_world.h"
#include "tests/prover/support.h"

namespace sluice::prover {

struct Member {
  SmallPolicy policy;
  policy::SnapshotPtr snapshot;
  Bits reach;
  std::vector<policy::SnapshotPtr> alone;  ///< each allow beside the policy's denies; null for a deny
  std::vector<Bits> by_rule;               ///< what they reach
  std::vector<WayTexts> ways{};            ///< by tuple, in a world that has them
};
[[nodiscard]] Member MemberOf(const World& world, SmallPolicy policy);

/// A way with the name that a finding of it has: of the credential, the field that the other takes, the proxy; else empty.
using GainedWay = std::pair<Way, std::string>;
/// How one lets a tuple out that the other does not.
[[nodiscard]] std::vector<GainedWay> WaysGained(const Member& winner, const Member& loser, size_t t);
/// Whether one reaches something that the other does not, or reaches it another way.
[[nodiscard]] bool Gains(const World& world, const Member& winner, const Member& loser);

/// Fails where the prover misses something, or says what does not hold. Where it may give up, and does, `given_up` is counted.
void CheckPair(const World& world, const Member& base, const Member& head, size_t* given_up);

}  // namespace sluice::prover
