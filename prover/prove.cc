#include "prover/prove.h"

#include "policy/compiled.h"
#include "prover/walk.h"

namespace sluice::prover {
namespace {

policy::SnapshotPtr SnapshotOf(std::vector<policy::Rule> rules) {
  policy::PolicySource source;
  source.rules = std::move(rules);
  return policy::Compile(std::move(source));
}

// The verdict of what was found, or why there is none.
void Conclude(Proof* proof, const Budget& budget, bool replay_failed) {
  proof->steps = budget.used();
  proof->replay_failed = replay_failed;
  if (replay_failed) {
    proof->why_unknown = "a witness did not hold when it was replayed: a fault of the prover";
  } else if (budget.exhausted()) {
    proof->why_unknown = budget.why();
  } else if (proof->gains.empty()) {
    proof->verdict = proof->losses.empty() ? Verdict::kEqual : Verdict::kNarrowed;
  } else {
    proof->verdict = proof->losses.empty() ? Verdict::kWidened : Verdict::kIncomparable;
  }
}

}  // namespace

Proof Compare(const policy::Snapshot& base, const policy::Snapshot& head, const Options& options) {
  Budget budget(options.limit);
  Requests requests(&budget);
  Classes classes;
  const Side base_side = classes.MakeSide(base, SideKind::kPolicy, &requests.rules());
  const Side head_side = classes.MakeSide(head, SideKind::kPolicy, &requests.rules());
  const policy::SnapshotPtr accepted = options.accepted.empty() ? nullptr : SnapshotOf(options.accepted);
  std::optional<Side> accepted_side;
  if (accepted) accepted_side = classes.MakeSide(*accepted, SideKind::kPolicy, &requests.rules());
  Findings gains(head, base, accepted.get());
  Findings losses(base, head, nullptr);
  Walk(base_side, head_side, accepted_side ? &*accepted_side : nullptr, options, &requests, &budget).Run(&gains, &losses);
  Proof proof;
  proof.gains = gains.Take();
  proof.losses = losses.Take();
  Conclude(&proof, budget, gains.replay_failed() || losses.replay_failed());
  return proof;
}

Proof CheckNever(const policy::Snapshot& policy, const policy::Rule& never, const Options& options) {
  Budget budget(options.limit);
  Requests requests(&budget);
  Classes classes;
  policy::Rule deny = never;
  deny.allow = false;
  const policy::SnapshotPtr except = SnapshotOf({std::move(deny)});
  const Side all_but = classes.MakeSide(*except, SideKind::kAllBut, &requests.rules());
  const Side side = classes.MakeSide(policy, SideKind::kPolicy, &requests.rules());
  Findings gains(policy, *except, nullptr);
  gains.LoserIsAllBut();
  Walk(all_but, side, nullptr, options, &requests, &budget).Run(&gains, nullptr);
  Proof proof;
  proof.gains = gains.Take();
  Conclude(&proof, budget, gains.replay_failed());
  return proof;
}

Proof CheckAlways(const policy::Snapshot& policy, const policy::Rule& always, const Options& options) {
  Budget budget(options.limit);
  Requests requests(&budget);
  Classes classes;
  const policy::SnapshotPtr wanted = SnapshotOf({always});
  const Side base = classes.MakeSide(*wanted, SideKind::kPolicy, &requests.rules());
  const Side head = classes.MakeSide(policy, SideKind::kPolicy, &requests.rules());
  Findings losses(*wanted, policy, nullptr);
  Walk(base, head, nullptr, options, &requests, &budget).Run(nullptr, &losses);
  Proof proof;
  proof.losses = losses.Take();
  Conclude(&proof, budget, losses.replay_failed());
  return proof;
}

}  // namespace sluice::prover
