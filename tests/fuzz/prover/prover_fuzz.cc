// Two small policies drawn from the bytes, compared by the prover and by brute force: what one reaches beside the other is never
// missed, and every finding holds.

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "prover/replay.h"
#include "tests/prover/small_world.h"

namespace {

using namespace sluice;
using namespace sluice::prover;

struct Side {
  SmallPolicy policy;
  policy::SnapshotPtr snapshot;
  Bits reach;
};

[[noreturn]] void Fail(const char* what, const Side& base, const Side& head, const std::string& witness) {
  std::fprintf(stderr, "%s: %s\nbase\n%shead\n%s", what, witness.c_str(), Shown(base.policy).c_str(), Shown(head.policy).c_str());
  std::abort();
}

void Check(const World& world, const Side& winner, const Side& loser, const std::vector<Difference>& found) {
  for (size_t t = 0; t < world.tuples.size() && found.empty(); ++t)
    if (winner.reach[t] && !loser.reach[t]) Fail("missed", loser, winner, world.tuples[t].Text());
  for (const Difference& difference : found)
    if (!Replay(*winner.snapshot, difference.witness).reached ||
        ReplayWay(*loser.snapshot, *winner.snapshot, difference.witness).reached)
      Fail("does not hold", loser, winner, difference.witness.Text());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  size_t at = 0;
  const Draw draw = [&](size_t n) { return at < size ? data[at++] % n : size_t{0}; };
  const World& world = Worlds()[draw(Worlds().size())];
  Side base{DrawPolicy(world, draw), nullptr, {}};
  Side head{DrawEdit(world, base.policy, draw), nullptr, {}};
  for (Side* side : {&base, &head}) {
    side->snapshot = side->policy.Compiled();
    side->reach = ReachOf(world, *side->snapshot);
  }
  const Proof proof = Compare(*base.snapshot, *head.snapshot, {.at = kNow});
  if (IsGivenUp(world, proof)) return 0;
  if (proof.verdict == Verdict::kUnknown) Fail("unknown", base, head, proof.why_unknown);
  Check(world, head, base, proof.gains);
  Check(world, base, head, proof.losses);
  return 0;
}
