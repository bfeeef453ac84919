// The prover against brute force: small policies over small worlds, in which each policy's reach is written down tuple by tuple
// through the enforcer's decisions. Verdicts and the rules that grant must be the same.

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <random>

#include "tests/prover/small_world.h"
#include "tests/prover/support.h"

namespace sluice::prover {
namespace {

constexpr size_t kFamily = 24;  // policies compared each with each

struct Member {
  SmallPolicy policy;
  policy::SnapshotPtr snapshot;
  Bits reach;
  std::vector<policy::SnapshotPtr> alone;  ///< each allow beside the policy's denies
  std::vector<Bits> by_rule;               ///< what they reach
  std::vector<WayTexts> ways{};            ///< by tuple, in a world that has them
};

Member MemberOf(const World& world, SmallPolicy policy) {
  Member member{.policy = std::move(policy), .snapshot = nullptr, .reach = {}, .alone = {}, .by_rule = {}};
  member.snapshot = member.policy.Compiled();
  member.reach = ReachOf(world, *member.snapshot);
  if (world.ways) member.ways = WaysOf(world, *member.snapshot);
  for (const policy::Rule& rule : member.policy.rules) {
    SmallPolicy alone{.rules = {}, .ways = world.ways, .via = member.policy.via};
    if (rule.allow) alone.rules.push_back(rule);
    for (const policy::Rule& deny : member.policy.rules)
      if (rule.allow && !deny.allow) alone.rules.push_back(deny);
    member.alone.push_back(alone.Compiled());
    member.by_rule.push_back(ReachOf(world, *member.alone.back()));
  }
  return member;
}

// Which rules grant something that the other policy refuses, at the outermost layer where it does.
std::set<uint32_t> Granting(const World& world, const Member& winner, const Member& loser) {
  std::map<size_t, std::set<Layer>> gained;  // opaque layers, by connection
  const auto gain = [&](size_t t) { return winner.reach[t] && !loser.reach[t]; };
  for (size_t t = 0; t < world.tuples.size(); ++t)
    if (gain(t) && (world.tuples[t].layer == Layer::kTcp || world.tuples[t].layer == Layer::kTls))
      gained[world.cells[t]].insert(world.tuples[t].layer);
  std::set<uint32_t> rules;
  std::set<uint32_t> lookups;
  for (size_t t = 0; t < world.tuples.size(); ++t) {
    const Witness& tuple = world.tuples[t];
    if (!gain(t)) continue;
    const auto outer = gained.find(world.cells[t]);
    if (outer != gained.end() && world.cells[t] != 0) {
      if (outer->second.contains(Layer::kTcp) && tuple.layer != Layer::kTcp && tuple.layer != Layer::kUdp) continue;
      if (outer->second.contains(Layer::kTls) && tuple.layer == Layer::kHttp && tuple.scheme == policy::Scheme::kHttps) continue;
    }
    for (uint32_t r = 0; r < winner.by_rule.size(); ++r)
      if (winner.by_rule[r][t]) (tuple.layer == Layer::kDns ? lookups : rules).insert(r);
  }
  rules.insert(lookups.begin(), lookups.end());
  return rules;
}

std::string Both(const World& world, const Member& base, const Member& head, const Proof& proof) {
  return world.name + "\nbase\n" + Shown(base.policy) + "head\n" + Shown(head.policy) + Shown(proof);
}

// Whether the winner lets something out another way than the loser: with a credential that the loser does not add, with what the
// workload has in a field that the loser's takes, through another proxy, to a key that the loser does not accept.
bool WayGained(const Member& winner, const Member& loser, size_t t) {
  const WayTexts& mine = winner.ways[t];
  const WayTexts& other = loser.ways[t];
  if (!mine.reached) return false;
  if (!mine.credential.empty() && mine.credential != other.credential) return true;
  if (!other.reached) return false;
  if (!other.replaced.empty() && mine.replaced != other.replaced) return true;
  const bool pinned = !other.pins.empty() && (mine.pins.empty() || !std::includes(other.pins.begin(), other.pins.end(),
                                                                                  mine.pins.begin(), mine.pins.end()));
  return mine.proxy != other.proxy || pinned;
}

// One side's findings: brute force finds nothing more, and each holds as the enforcer decides, for the rule that it names too.
void CheckSide(const World& world, const Member& winner, const Member& loser, const std::vector<Difference>& found,
               const std::function<std::string()>& shown) {
  for (size_t t = 0; t < world.tuples.size(); ++t)
    if (winner.reach[t] && !loser.reach[t])
      ASSERT_FALSE(found.empty()) << "missed: " << world.tuples[t].Text() << "\n" << shown();
  for (size_t t = 0; world.ways && t < world.tuples.size(); ++t)
    if (WayGained(winner, loser, t)) ASSERT_FALSE(found.empty()) << "missed a way: " << world.tuples[t].Text() << "\n" << shown();
  std::set<uint32_t> rules;
  for (const Difference& difference : found) {
    ASSERT_TRUE(Replay(*winner.snapshot, difference.witness).reached) << difference.witness.Text() << "\n" << shown();
    const Answer refused = ReplayWay(*loser.snapshot, *winner.snapshot, difference.witness);
    ASSERT_FALSE(refused.reached) << difference.witness.Text() << "\n" << shown();
    if (difference.rule == policy::RuleRef::kNone) continue;
    const auto rule = static_cast<uint32_t>(difference.rule);
    if (difference.witness.way == Way::kAny) rules.insert(rule);
    ASSERT_TRUE(Replay(*winner.alone[rule], difference.witness).reached) << difference.witness.Text() << "\n" << shown();
  }
  if (winner.policy.mode == policy::Mode::kAudit || loser.policy.mode == policy::Mode::kAudit) return;
  for (const uint32_t rule : Granting(world, winner, loser))
    ASSERT_TRUE(rules.contains(rule)) << "grants and is not named: " << policy::CanonicalText(winner.policy.rules[rule]) << "\n"
                                      << shown();
}

void CheckPair(const World& world, const Member& base, const Member& head) {
  const Proof proof = Compare(*base.snapshot, *head.snapshot, {.at = kNow});
  const auto shown = [&] { return Both(world, base, head, proof); };
  ASSERT_NE(proof.verdict, Verdict::kUnknown) << shown();
  CheckSide(world, head, base, proof.gains, shown);
  CheckSide(world, base, head, proof.losses, shown);
  ASSERT_EQ(proof.gains.empty(), proof.verdict == Verdict::kEqual || proof.verdict == Verdict::kNarrowed) << shown();
  ASSERT_EQ(proof.losses.empty(), proof.verdict == Verdict::kEqual || proof.verdict == Verdict::kWidened) << shown();
}

// Related policies: each an edit of one before it, so that most differ in little.
size_t CheckFamily(const World& world, const Draw& draw) {
  std::vector<Member> family;
  family.push_back(MemberOf(world, DrawPolicy(world, draw)));
  while (family.size() < kFamily) {
    const bool fresh = draw(8) == 0;
    family.push_back(
        MemberOf(world, fresh ? DrawPolicy(world, draw) : DrawEdit(world, family[draw(family.size())].policy, draw)));
  }
  size_t pairs = 0;
  for (const Member& base : family) {
    for (const Member& head : family) {
      CheckPair(world, base, head);
      if (testing::Test::HasFatalFailure()) return pairs;
      ++pairs;
    }
  }
  return pairs;
}

class Differential : public testing::TestWithParam<size_t> {};

// A whole number of the environment; `otherwise` where there is none. 0 where it is no number.
size_t FromEnvironment(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  size_t number = 0;
  const char* end = text + std::strlen(text);
  return std::from_chars(text, end, number).ptr == end ? number : 0;
}

// SLUICE_SEED draws other policies, SLUICE_PAIRS compares so many in each world, SLUICE_TIMES so many times the usual.
TEST_P(Differential, AgreesWithBruteForce) {
  const World& world = Worlds()[GetParam()];
  std::mt19937 random(static_cast<unsigned>(FromEnvironment("SLUICE_SEED", 1)));
  const Draw draw = [&](size_t n) { return random() % n; };
  size_t pairs = 0;
#ifdef SLUICE_SANITIZED
  constexpr size_t kSlowness = 4;  // the memory faults are looked for here, and the usual build has the numbers
#else
  constexpr size_t kSlowness = 1;
#endif
  const size_t enough = FromEnvironment("SLUICE_PAIRS", FromEnvironment("SLUICE_TIMES", 1) * world.pairs / kSlowness);
  ASSERT_GT(enough, 0U) << "SLUICE_PAIRS and SLUICE_TIMES are whole numbers above 0";
  while (pairs < enough) {
    pairs += CheckFamily(world, draw);
    ASSERT_FALSE(HasFatalFailure());
  }
  RecordProperty("pairs", std::to_string(pairs));
}

INSTANTIATE_TEST_SUITE_P(Worlds, Differential, testing::Range(size_t{0}, Worlds().size()),
                         [](const auto& info) { return Worlds()[info.param].name; });

}  // namespace
}  // namespace sluice::prover
