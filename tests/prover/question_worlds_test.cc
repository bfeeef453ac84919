// `never` and `always` beside brute force, over the same worlds as the comparison of policies.

#include <random>

#include "tests/prover/small_world.h"
#include "tests/prover/support.h"

namespace sluice::prover {
namespace {

constexpr int kRounds = 60;
const Options kOptions{.at = kNow};

policy::SnapshotPtr Only(const policy::Rule& rule) { return SmallPolicy{.rules = {rule}}.Compiled(); }

// As an assertion has it: without an end, and without a way to travel.
policy::Rule DrawAssertion(const World& world, const Draw& draw, bool always) {
  policy::Rule rule = DrawRule(world, draw);
  for (int i = 0; i < 64 && rule.allow != always; ++i) rule = DrawRule(world, draw);
  rule.until.reset();
  rule.with.clear();
  rule.via.clear();
  rule.pins.clear();
  return rule;
}

void CheckNeverOf(const World& world, const SmallPolicy& policy, const policy::Rule& rule) {
  const auto snapshot = policy.Compiled();
  const auto never = Only(rule);
  const Proof proof = CheckNever(*snapshot, rule, kOptions);
  const auto shown = [&] { return Shown(policy) + "never " + policy::CanonicalText(rule) + "\n" + Shown(proof); };
  if (IsGivenUp(world, proof)) return;
  ASSERT_NE(proof.verdict, Verdict::kUnknown) << shown();
  for (const Witness& tuple : world.tuples)
    if (IsReached(*snapshot, tuple) && IsDenied(*never, tuple))
      ASSERT_FALSE(proof.gains.empty()) << "missed: " << tuple.Text() << "\n" << shown();
  for (const Difference& gain : proof.gains)
    ASSERT_TRUE(IsReached(*snapshot, gain.witness) && IsDenied(*never, gain.witness)) << gain.witness.Text() << "\n" << shown();
}

void CheckAlwaysOf(const World& world, const SmallPolicy& policy, const policy::Rule& rule) {
  const auto snapshot = policy.Compiled();
  const auto wanted = Only(rule);
  const Proof proof = CheckAlways(*snapshot, rule, kOptions);
  const auto shown = [&] { return Shown(policy) + "always " + policy::CanonicalText(rule) + "\n" + Shown(proof); };
  if (IsGivenUp(world, proof)) return;
  ASSERT_NE(proof.verdict, Verdict::kUnknown) << shown();
  for (const Witness& tuple : world.tuples)
    if (IsReached(*wanted, tuple) && !IsReached(*snapshot, tuple))
      ASSERT_FALSE(proof.losses.empty()) << "missed: " << tuple.Text() << "\n" << shown();
  for (const Difference& loss : proof.losses)
    ASSERT_TRUE(IsReached(*wanted, loss.witness) && !IsReached(*snapshot, loss.witness)) << loss.witness.Text() << "\n"
                                                                                         << shown();
}

class Questions : public testing::TestWithParam<size_t> {};

TEST_P(Questions, AgreeWithBruteForce) {
  const World& world = Worlds()[GetParam()];
  std::mt19937 random(5);
  const Draw draw = [&](size_t n) { return random() % n; };
  for (int round = 0; round < kRounds && !HasFatalFailure(); ++round) {
    const SmallPolicy policy = DrawPolicy(world, draw);
    CheckNeverOf(world, policy, DrawAssertion(world, draw, false));
    CheckAlwaysOf(world, policy, DrawAssertion(world, draw, true));
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Questions, testing::Range(size_t{0}, Worlds().size()),
                         [](const auto& info) { return Worlds()[info.param].name; });

}  // namespace
}  // namespace sluice::prover
