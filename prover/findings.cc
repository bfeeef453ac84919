#include "prover/findings.h"

#include <algorithm>

#include "policy/compiled.h"
#include "prover/region.h"

namespace sluice::prover {
namespace {

using policy::Reason;
using policy::RuleRef;

// What a person takes for odd: another is shown where there is one.
int Oddness(const Witness& witness) {
  int odd = witness.port == 0 || witness.port == 443 || witness.port == 80 ? 0 : 1;
  if (witness.process.kind == WitnessProcess::Kind::kUntrusted || witness.process.kind == WitnessProcess::Kind::kUnknown) ++odd;
  // The request that asks for the refs is not yet the push.
  if (witness.operation && witness.method == "GET") ++odd;
  return odd;
}

}  // namespace

bool Findings::Key::operator<(const Key& other) const {
  return std::tie(rule, lookup, reason, refused_by) < std::tie(other.rule, other.lookup, other.reason, other.refused_by);
}

void Findings::Add(Candidate candidate) {
  const Witness& witness = candidate.witness;
  const Answer won = Replay(winner_, witness);
  Answer lost{false, Reason::kDenyRule, RuleRef{0}};
  if (all_but_) {
    lost.reached = !Denies(loser_, witness);
  } else {
    lost = Replay(loser_, witness);
  }
  const bool accepted = accepted_ != nullptr && Replay(*accepted_, witness).reached;
  if (!won.reached || lost.reached || accepted) {
    replay_failed_ = true;
    return;
  }
  const bool lookup = witness.layer == Layer::kDns;
  if (!lookup) deeper_.insert(candidate.rule);
  const std::string text = witness.Text();
  const auto [at, fresh] = found_.try_emplace({candidate.rule, lookup, lost.reason, lost.rule});
  Found& found = at->second;
  const auto rank = std::tuple(Oddness(witness), text.size(), text);
  if (fresh || rank < found.rank) {
    found.witness = witness;
    found.rank = rank;
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
    difference.region = RegionOf(winner_, key.rule, loser_, {found.witness, found.ports, found.methods});
    difference.witness = std::move(found.witness);
    differences.push_back(std::move(difference));
  }
  return differences;
}

}  // namespace sluice::prover
