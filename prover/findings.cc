#include "prover/findings.h"

#include <algorithm>

#include "policy/address.h"
#include "policy/compiled.h"
#include "prover/region.h"

namespace sluice::prover {
namespace {

using policy::Reason;
using policy::RuleRef;

// What a person takes for odd: another is shown where there is one.
int Oddness(const Witness& witness) {
  int odd = witness.port == 0 || witness.port == 443 || witness.port == 80 ? 0 : 1;
  // An ordinary address says as much as a special one.
  if (witness.address && policy::FindSpecialRange(*witness.address, {})) ++odd;
  if (witness.process.kind == WitnessProcess::Kind::kUntrusted || witness.process.kind == WitnessProcess::Kind::kUnknown) ++odd;
  // The request that asks for the refs is not yet the push.
  if (witness.operation && witness.method == "GET") ++odd;
  // A body that cannot be read says less than one that can; so does the session beside the call.
  if (witness.ShowsBody() && witness.body.kind == WitnessBody::Kind::kNone) ++odd;
  if (witness.body.PushesNothing()) ++odd;
  // A batch of git LFS is posted where batches are.
  if (witness.body.lfs && !witness.path.ends_with("/info/lfs/objects/batch")) ++odd;
  if (witness.body.kind == WitnessBody::Kind::kRpc && (witness.body.rpc.method.empty() || witness.body.batch)) ++odd;
  return odd;
}

bool ReadsBodies(const policy::Snapshot& policy) {
  const auto& rules = policy.compiled().rules;
  return std::any_of(rules.begin(), rules.end(), policy::ReadsBody);
}

}  // namespace

bool Findings::Key::operator<(const Key& other) const {
  return std::tie(rule, lookup, reason, refused_by, way, ways) <
         std::tie(other.rule, other.lookup, other.reason, other.refused_by, other.way, other.ways);
}

void Findings::Add(Candidate candidate) {
  Witness& witness = candidate.witness;
  Answer won = Replay(winner_, witness);
  Answer lost;
  if (all_but_) {
    lost.reason = Reason::kDenyRule;
    lost.rule = RuleRef{0};
    lost.reached = !Denies(loser_, witness);
    lost.asks_body = witness.layer == Layer::kHttp && ReadsBodies(loser_);
  } else {
    lost = ReplayWay(loser_, winner_, witness);
  }
  witness.body_matters = won.asks_body || lost.asks_body;
  if (witness.way != Way::kAny) {
    // A gain of the traffic itself says more than the way that it travels, but for a credential.
    if (won.reached && !lost.let_out && witness.way != Way::kCredential) return;
    won = ReplayWay(winner_, winner_, witness);
    witness.way_name = won.way;
  }
  const bool accepted = witness.way == Way::kAny && accepted_ != nullptr && Replay(*accepted_, witness).reached;
  if (!won.reached || lost.reached || accepted) {
    replay_failed_ = true;
    unheld_ = witness.Text();
    return;
  }
  if (lost.let_out) {
    // Both let it out, so no rule of the other's refuses it.
    lost.reason = Reason::kAllowed;
    lost.rule = RuleRef::kNone;
  }
  const std::string ways = witness.way_name + '\n' + lost.way;
  Keep(std::move(candidate), lost, ways);
}

// Of those that say the same the one with the shortest witness.
void Findings::Keep(Candidate candidate, const Answer& lost, const std::string& ways) {
  const Witness& witness = candidate.witness;
  const bool lookup = witness.layer == Layer::kDns;
  if (!lookup && witness.way == Way::kAny) deeper_.insert(candidate.rule);
  const std::string text = witness.Text();
  const auto [at, fresh] = found_.try_emplace({candidate.rule, lookup, lost.reason, lost.rule, witness.way, ways});
  Found& found = at->second;
  const auto rank = std::tuple(Oddness(witness), text.size(), text);
  if (fresh || rank < found.rank) {
    found.witness = witness;
    found.rank = rank;
    found.other_way = lost.way;
  }
  found.ports.insert(found.ports.end(), candidate.ports.begin(), candidate.ports.end());
  std::sort(found.ports.begin(), found.ports.end());
  found.ports.erase(std::unique(found.ports.begin(), found.ports.end()), found.ports.end());
  found.methods.insert(candidate.methods.begin(), candidate.methods.end());
}

std::vector<Difference> Findings::Take() {
  std::vector<Difference> differences;
  for (auto& [key, found] : found_) {
    if (key.lookup && deeper_.contains(key.rule)) continue;
    Difference difference;
    difference.rule = key.rule;
    difference.refused_because = key.reason;
    difference.refused_by = key.refused_by;
    difference.other_way = found.other_way;
    difference.region = RegionOf(winner_, key.rule, loser_, {found.witness, found.ports, found.methods});
    difference.witness = std::move(found.witness);
    differences.push_back(std::move(difference));
  }
  return differences;
}

}  // namespace sluice::prover
