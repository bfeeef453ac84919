#pragma once

// A witness asked of the enforcer's own decisions. Nothing is reported that does not hold here.

#include "policy/snapshot.h"
#include "prover/prove.h"

namespace sluice::prover {

struct Answer {
  bool reached = false;                             ///< what the witness says, the way that it travels included
  bool let_out = false;                             ///< whichever way it travels
  std::string way{};                                ///< the name of the way that it travels, where the witness speaks of one
  bool asks_body = false;                           ///< the body bears on the answer
  policy::Reason reason = policy::Reason::kNoRule;  ///< where it is not reached
  policy::RuleRef rule = policy::RuleRef::kNone;    ///< the rule that decided
};
[[nodiscard]] Answer Replay(const policy::Snapshot& snapshot, const Witness& witness);
/// The same of a way that `winner` gives the witness: whether `snapshot` gives it too.
[[nodiscard]] Answer ReplayWay(const policy::Snapshot& snapshot, const policy::Snapshot& winner, const Witness& witness);

/// Whether the one deny that the snapshot holds covers the witness, whatever layer it closes.
[[nodiscard]] bool Denies(const policy::Snapshot& never, const Witness& witness);

}  // namespace sluice::prover
