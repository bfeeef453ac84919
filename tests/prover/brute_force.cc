#include "tests/prover/brute_force.h"

#include <algorithm>
#include <functional>
#include <map>

#include "policy/address.h"

namespace sluice::prover {

Member MemberOf(const World& world, SmallPolicy policy) {
  Member member{.policy = std::move(policy), .snapshot = nullptr, .reach = {}, .alone = {}, .by_rule = {}};
  member.snapshot = member.policy.Compiled();
  member.reach = ReachOf(world, *member.snapshot);
  if (world.ways) member.ways = WaysOf(world, *member.snapshot);
  for (const policy::Rule& rule : member.policy.rules) {
    if (!rule.allow) {
      member.alone.push_back(nullptr);
      member.by_rule.emplace_back(world.tuples.size());
      continue;
    }
    SmallPolicy alone{.rules = {rule}, .ways = world.ways, .via = member.policy.via, .definitions = member.policy.definitions};
    for (const policy::Rule& deny : member.policy.rules)
      if (!deny.allow) alone.rules.push_back(deny);
    member.alone.push_back(alone.Compiled());
    member.by_rule.push_back(ReachOf(world, *member.alone.back()));
  }
  return member;
}

namespace {

// The opaque layers that the winner lets out and the loser does not, by connection: what travels in them goes without saying.
class Opened {
 public:
  Opened(const World& world, const Member& winner, const Member& loser) : world_(world) {
    for (size_t t = 0; t < world.tuples.size(); ++t)
      if (winner.reach[t] && !loser.reach[t] && (world.tuples[t].layer == Layer::kTcp || world.tuples[t].layer == Layer::kTls))
        layers_[world.cells[t]].insert(world.tuples[t].layer);
  }
  [[nodiscard]] bool Holds(size_t t) const {
    const Witness& tuple = world_.tuples[t];
    const auto outer = layers_.find(world_.cells[t]);
    if (outer == layers_.end() || world_.cells[t] == 0) return false;
    if (outer->second.contains(Layer::kTcp) && tuple.layer != Layer::kTcp && tuple.layer != Layer::kUdp) return true;
    return outer->second.contains(Layer::kTls) && tuple.layer == Layer::kHttp && tuple.scheme == policy::Scheme::kHttps;
  }

 private:
  const World& world_;
  std::map<size_t, std::set<Layer>> layers_;
};

struct Grants {
  std::set<uint32_t> rules;
  std::set<uint32_t> lookups;  ///< of names alone, or besides
};

// Which rules grant something that the other policy refuses, at the outermost layer where it does.
Grants Granting(const World& world, const Member& winner, const Member& loser) {
  const Opened opened(world, winner, loser);
  const auto gain = [&](size_t t) { return winner.reach[t] && !loser.reach[t]; };
  Grants grants;
  for (size_t t = 0; t < world.tuples.size(); ++t) {
    const Witness& tuple = world.tuples[t];
    if (!gain(t) || opened.Holds(t)) continue;
    for (uint32_t r = 0; r < winner.by_rule.size(); ++r)
      if (winner.by_rule[r][t]) (tuple.layer == Layer::kDns ? grants.lookups : grants.rules).insert(r);
  }
  return grants;
}

std::string Both(const World& world, const Member& base, const Member& head, const Proof& proof) {
  return world.name + "\nbase\n" + Shown(base.policy) + "head\n" + Shown(head.policy) + Shown(proof);
}

}  // namespace

// How the winner lets something out that the loser does not: with a credential that the loser does not add, with what the
// workload has in a field that the loser's takes, through another proxy, to a key that the loser does not accept.
std::vector<GainedWay> WaysGained(const Member& winner, const Member& loser, size_t t) {
  const WayTexts& mine = winner.ways[t];
  const WayTexts& other = loser.ways[t];
  std::vector<GainedWay> gained;
  if (!mine.reached) return gained;
  // Both are spelled with the name first.
  const auto name = [](const std::string& spelled) { return spelled.substr(0, spelled.find(' ')); };
  if (!mine.credential.empty() && mine.credential != other.credential)
    gained.emplace_back(Way::kCredential, name(mine.credential));
  if (!other.reached) return gained;
  if (!other.replaced.empty() && mine.replaced != other.replaced) gained.emplace_back(Way::kOwn, other.replaced);
  if (mine.proxy != other.proxy) gained.emplace_back(Way::kVia, name(mine.proxy));
  const bool pinned = !other.pins.empty() && (mine.pins.empty() || !std::includes(other.pins.begin(), other.pins.end(),
                                                                                  mine.pins.begin(), mine.pins.end()));
  if (pinned) gained.emplace_back(Way::kUnpinned, "");
  return gained;
}

namespace {

// What is said apart: lookups, datagrams, sockets, and a connection with all that it carries.
enum class Depth : uint8_t { kLookup, kDatagram, kSocket, kConnection };
Depth DepthOf(Layer layer) {
  if (layer == Layer::kDns) return Depth::kLookup;
  if (layer == Layer::kUdp) return Depth::kDatagram;
  return layer == Layer::kUnix ? Depth::kSocket : Depth::kConnection;
}

// Whether another rule's proxy may have to carry the bytes: by a name that it looks up they lead to special addresses too, and to
// those of a family that is not looked up here. And beside a rule of bytes by address a request is judged for the address that is
// known, whatever proxy it then goes through.
bool MayNeedAnother(const World& world, const SmallPolicy& policy, const Witness& witness) {
  const auto has = [&](auto test) { return std::any_of(policy.rules.begin(), policy.rules.end(), test); };
  if (world.remote && witness.layer == Layer::kHttp)
    return has([](const policy::Rule& rule) {
      return rule.allow && !policy::IsInner(rule.verb) && (!rule.ip.empty() || rule.host.cidr);
    });
  if (!world.ways || (witness.layer != Layer::kTcp && witness.layer != Layer::kTls) || !witness.address) return false;
  const bool one_family =
      has([](const policy::Rule& rule) { return !rule.allow && rule.verb == policy::Verb::kDns && !rule.types.empty(); });
  return one_family || policy::FindSpecialRange(*witness.address, {});
}

// One side's findings: brute force finds nothing more, and each holds as the enforcer decides, for the rule that it names too.
void CheckSide(const World& world, const Member& winner, const Member& loser, const std::vector<Difference>& found,
               const std::function<std::string()>& shown) {
  std::set<GainedWay> told;
  std::set<Depth> traffic;
  for (const Difference& difference : found) {
    const Witness& witness = difference.witness;
    told.emplace(witness.way, witness.way_name);
    // Through a proxy a name leads to every address, and what then is new is the way alone.
    if (witness.way == Way::kAny || (world.remote && witness.way == Way::kVia)) traffic.insert(DepthOf(witness.layer));
  }
  for (size_t t = 0; t < world.tuples.size(); ++t) {
    if (!winner.reach[t] || loser.reach[t]) continue;
    // What a rule lets out includes its lookups, which are then not said; `mode: audit` has one finding for all.
    const Depth depth = DepthOf(world.tuples[t].layer);
    const bool any = depth == Depth::kLookup || winner.policy.mode == policy::Mode::kAudit;
    ASSERT_TRUE(any ? !traffic.empty() : traffic.contains(depth)) << "missed: " << world.tuples[t].Text() << "\n" << shown();
  }
  const Opened opened(world, winner, loser);
  for (size_t t = 0; world.ways && t < world.tuples.size(); ++t)
    for (const GainedWay& way : WaysGained(winner, loser, t))
      ASSERT_TRUE(told.contains(way) || opened.Holds(t) || (world.remote && !loser.reach[t] && !traffic.empty()))
          << "missed a way: " << static_cast<int>(way.first) << " '" << way.second << "' of " << world.tuples[t].Text() << "\n"
          << shown();
  std::set<uint32_t> rules;
  std::set<uint32_t> named;  // of lookups too
  for (const Difference& difference : found) {
    ASSERT_TRUE(Replay(*winner.snapshot, difference.witness).reached) << difference.witness.Text() << "\n" << shown();
    const Answer refused = ReplayWay(*loser.snapshot, *winner.snapshot, difference.witness);
    ASSERT_FALSE(refused.reached) << difference.witness.Text() << "\n" << shown();
    if (difference.rule == policy::RuleRef::kNone) continue;
    const auto rule = static_cast<uint32_t>(difference.rule);
    if (difference.witness.way == Way::kAny) named.insert(rule);
    if (difference.witness.way == Way::kAny && difference.witness.layer != Layer::kDns) rules.insert(rule);
    if (MayNeedAnother(world, winner.policy, difference.witness)) continue;
    ASSERT_TRUE(Replay(*winner.alone[rule], difference.witness).reached) << difference.witness.Text() << "\n" << shown();
  }
  if (winner.policy.mode == policy::Mode::kAudit || loser.policy.mode == policy::Mode::kAudit) return;
  if (world.remote) return;
  const Grants grants = Granting(world, winner, loser);
  for (const auto& [granting, said] : {std::pair(&grants.rules, &rules), std::pair(&grants.lookups, &named)})
    for (const uint32_t rule : *granting)
      ASSERT_TRUE(said->contains(rule)) << "grants and is not named: " << policy::CanonicalText(winner.policy.rules[rule]) << "\n"
                                        << shown();
}

}  // namespace

bool Gains(const World& world, const Member& winner, const Member& loser) {
  for (size_t t = 0; t < world.tuples.size(); ++t)
    if ((winner.reach[t] && !loser.reach[t]) || (world.ways && !WaysGained(winner, loser, t).empty())) return true;
  return false;
}

void CheckPair(const World& world, const Member& base, const Member& head, size_t* given_up) {
  const Proof proof = Compare(*base.snapshot, *head.snapshot, {.at = kNow});
  const auto shown = [&] { return Both(world, base, head, proof); };
  if (IsGivenUp(world, proof)) {
    ++*given_up;
    return;
  }
  ASSERT_NE(proof.verdict, Verdict::kUnknown) << shown();
  CheckSide(world, head, base, proof.gains, shown);
  CheckSide(world, base, head, proof.losses, shown);
  ASSERT_EQ(proof.gains.empty(), proof.verdict == Verdict::kEqual || proof.verdict == Verdict::kNarrowed) << shown();
  ASSERT_EQ(proof.losses.empty(), proof.verdict == Verdict::kEqual || proof.verdict == Verdict::kWidened) << shown();
}

}  // namespace sluice::prover
