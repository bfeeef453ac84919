// Where a policy lets out what the other does too, but another way: with a credential, with what the workload has in its place,
// through an upstream proxy, to a key. What is gained is then the request together with the way (exact point 19).

#include <algorithm>
#include <set>

#include "policy/credential.h"
#include "policy/match.h"
#include "prover/walk.h"

namespace sluice::prover {
namespace {

using policy::Rule;
using policy::RuleRef;
using policy::Scheme;

const SchemeReach& Over(const CellReach& reach, Scheme scheme) { return reach.schemes[static_cast<size_t>(scheme)]; }

// Whether requests over the scheme pass unread.
bool Passes(const CellReach& reach, Scheme scheme) { return scheme == Scheme::kHttps ? reach.tls : reach.tcp; }

// Whether `mode: audit` lets each request out and sees it, so that its way is that of its rule, or of the settings.
bool LooksInto(const CellReach& reach, Scheme scheme) { return reach.audit && !Passes(reach, scheme); }

void SortUnique(std::vector<InnerId>* ids) {
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
}

// The judged allows that pass the test, as `inner` has them.
template <class Test, class Inner>
std::vector<InnerId> Those(const SchemeReach& reach, Test test, Inner inner) {
  std::vector<InnerId> ids;
  for (const uint32_t i : reach.judged_allows)
    if (test(i)) ids.push_back(inner(i));
  SortUnique(&ids);
  return ids;
}

// The same without their connection.
template <class Test>
std::vector<InnerId> Those(const Side& side, const SchemeReach& reach, Test test) {
  return Those(reach, test, [&](uint32_t i) { return side.inner[i]; });
}

std::vector<InnerId> Both(std::vector<InnerId> a, const std::vector<InnerId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  SortUnique(&a);
  return a;
}

// Which judged allows send what they cover through `proxy`, 0 being none, and which send some of it elsewhere all the same.
struct Routed {
  std::vector<InnerId> allows;
  std::vector<InnerId> excepts;
};

Routed RoutedBy(const Side& side, const SchemeReach& reach, uint32_t proxy) {
  const uint32_t settings = side.ways.settings_proxy();
  const auto named = [&](uint32_t i) { return side.ways.of(i).proxy; };
  const auto by_settings = [&](uint32_t i) { return named(i) == 0 && side.ways.of(i).by_name; };
  Routed routed;
  if (proxy == 0) {
    routed.allows = Those(side, reach, [&](uint32_t i) { return named(i) == 0 && !by_settings(i); });
    routed.excepts = Those(side, reach, [&](uint32_t i) { return named(i) != 0 || by_settings(i); });
    return routed;
  }
  routed.allows = Those(side, reach, [&](uint32_t i) { return named(i) == proxy || (proxy == settings && by_settings(i)); });
  if (proxy == settings) routed.excepts = Those(side, reach, [&](uint32_t i) { return named(i) != 0 && named(i) != proxy; });
  return routed;
}

// The reading in which a body may hold several items, each for another allow; 0: none.
policy::BodyKinds ItemsOf(const Rule& rule) {
  if (rule.verb == policy::Verb::kGraphql) return policy::kBodyGraphql;
  if (rule.verb == policy::Verb::kJsonRpc || rule.verb == policy::Verb::kMcp) return policy::kBodyRpc;
  return policy::ReadsPush(rule) ? policy::kBodyPush : policy::BodyKinds{0};
}

// Whether the enforcer refuses a request that both cover (policy/grant.h).
bool Cross(const Rule& a, const Rule& b) {
  const bool proxies = a.proxy != policy::kNoIndex16 && b.proxy != policy::kNoIndex16 && a.proxy != b.proxy;
  return proxies || (!a.pins.empty() && !b.pins.empty() && a.pins != b.pins);
}

bool PinsWithin(const std::vector<policy::Pin>& inner, const std::vector<policy::Pin>& outer) {
  return !inner.empty() && std::includes(outer.begin(), outer.end(), inner.begin(), inner.end());
}

}  // namespace

void Walk::MindCrossings(const Asked& asked, const std::array<CellReach, kSides>& reach) {
  const size_t loser = 1 - asked.winner;
  const Side& mine = *sides_[asked.winner];
  const Side& other = *sides_[loser];
  const SchemeReach& here = Over(reach[asked.winner], asked.scheme);
  // What both have both refuse.
  const auto shared = [&](uint32_t i) {
    return std::ranges::any_of(here.judged_allows, [&](uint32_t j) { return mine.classes[j] == other.classes[i]; });
  };
  struct Bound {
    uint32_t allow;
    bool shared;
  };
  std::vector<Bound> bound;
  for (const uint32_t i : Over(reach[loser], asked.scheme).judged_allows) {
    const Rule& rule = RuleOf(loser, i);
    if (!budget_->Spend(1)) return;
    if (ItemsOf(rule) != 0 && (rule.proxy != policy::kNoIndex16 || !rule.pins.empty())) bound.push_back({i, shared(i)});
  }
  const auto lets_out = [&](uint32_t i) {
    RequestProblem problem;
    problem.head_allows = here.kind == SchemeReach::Kind::kRules ? here.allows : std::vector<InnerId>{kUniversal};
    problem.head_denies = here.denies;
    problem.head_also = {other.inner[i]};
    return !requests_->Solve(problem).empty();
  };
  for (size_t a = 0; a < bound.size(); ++a) {
    for (size_t b = a + 1; b < bound.size(); ++b) {
      if (!budget_->Spend(1)) return;
      const Rule& one = RuleOf(loser, bound[a].allow);
      const Rule& two = RuleOf(loser, bound[b].allow);
      if ((bound[a].shared && bound[b].shared) || ItemsOf(one) != ItemsOf(two) || !Cross(one, two)) continue;
      if (lets_out(bound[a].allow) && lets_out(bound[b].allow))
        return budget_->Exhaust("a body of several items meets allows with different upstream proxies or pins");
    }
  }
}

void Walk::FindPlaces() {
  size_t number = 0;
  for (const Side* side : sides_) {
    if (side == nullptr) continue;
    for (const policy::UpstreamProxy& proxy : side->snapshot->proxies()) {
      ++number;
      for (const auto& except : proxy.except) places_.push_back({number, except.host ? &*except.host : nullptr, &except.ports});
    }
    // The request of another rule lies where its credential may go.
    std::set<uint16_t> bound;
    for (const Rule& rule : side->rules())
      if (ways_ && rule.credential != policy::kNoIndex16 && policy::IsGit(rule.verb)) bound.insert(rule.credential);
    for (const uint16_t credential : bound)
      for (const policy::CredentialScope& scope : side->snapshot->credentials()[credential].to)
        places_.push_back({++number, &scope.host, &scope.ports});
  }
}

std::vector<Walk::Place> Walk::PlacesAt(const std::string& host) const {
  std::vector<Place> places;
  for (const Place& place : places_)
    if (host.empty() || place.host == nullptr || policy::HostMatchesName(*place.host, host, true)) places.push_back(place);
  return places;
}

void Walk::WayGains(const Alive& alive, const Cell& cell, const std::array<CellReach, kSides>& reach, size_t winner) {
  OpaqueVia(cell, reach, winner);
  for (const Scheme scheme : {Scheme::kHttps, Scheme::kHttp}) {
    if (!Over(reach[winner], scheme).judged && !LooksInto(reach[winner], scheme)) continue;
    const Asked asked{cell, winner, scheme};
    // None goes over cleartext.
    if (scheme == Scheme::kHttps) {
      CredentialGains(alive, asked, reach);
      OwnGains(alive, asked, reach);
    }
    ViaGains(alive, asked, reach);
    PinGains(alive, asked, reach);
  }
}

// A repository may be spelt in a case that the credential's `to` does not have: then the request goes without.
InnerId Walk::Carried(size_t side, uint32_t i, const Cell& cell) const {
  const Rule& rule = RuleOf(side, i);
  const InnerId all = sides_[side]->inner[i];
  if (rule.credential == policy::kNoIndex16 || !policy::IsGit(rule.verb)) return all;
  policy::ConnectQuery query;
  query.host = cell.host;
  query.address = cell.address;
  query.port = cell.port;
  std::vector<policy::Glob> within;
  for (const policy::CredentialScope& scope : sides_[side]->snapshot->credentials()[rule.credential].to) {
    if (!policy::ScopeHolds(scope, query)) continue;
    if (scope.paths.empty()) return all;
    within.insert(within.end(), scope.paths.begin(), scope.paths.end());
  }
  return requests_->rules().Intern(rule, within);
}

// R(P) holds a request with a credential where some allow that has it covers the request: with beats without.
void Walk::CredentialGains(const Alive& alive, const Asked& asked, const std::array<CellReach, kSides>& reach) {
  const Side& mine = *sides_[asked.winner];
  const Side& other = *sides_[1 - asked.winner];
  const SchemeReach& here = Over(reach[asked.winner], asked.scheme);
  const SchemeReach& there = Over(reach[1 - asked.winner], asked.scheme);
  std::set<uint32_t> credentials;
  for (const uint32_t i : here.judged_allows) credentials.insert(mine.ways.of(i).credential);
  credentials.erase(0);
  for (const uint32_t credential : credentials) {
    RequestProblem problem;
    problem.head_allows = Those(
        here, [&](uint32_t i) { return mine.ways.of(i).credential == credential; },
        [&](uint32_t i) { return Carried(asked.winner, i, asked.cell); });
    problem.head_denies = here.judged_denies;
    problem.base_allows = Those(
        there, [&](uint32_t i) { return other.ways.of(i).credential == credential; },
        [&](uint32_t i) { return Carried(1 - asked.winner, i, asked.cell); });
    problem.base_denies = there.judged_denies;
    Witness like = WitnessAt(asked.cell, Layer::kHttp);
    like.way = Way::kCredential;
    like.way_name = mine.ways.CredentialName(credential);
    Solve(alive, asked, problem, like);
  }
}

RequestProblem Walk::SentBy(const Asked& asked, const std::array<CellReach, kSides>& reach, uint32_t proxy) const {
  const size_t loser = 1 - asked.winner;
  const Side& other = *sides_[loser];
  const SchemeReach& there = Over(reach[loser], asked.scheme);
  RequestProblem problem;
  if (Passes(reach[loser], asked.scheme)) {
    if (ViaOfBytes(asked.cell, loser) == proxy) problem.base_allows = {kUniversal};
    return problem;
  }
  const uint32_t settings = other.ways.settings_proxy();
  const Routed had = RoutedBy(other, there, proxy);
  if (!LooksInto(reach[loser], asked.scheme) || proxy != settings) {
    problem.base_allows = had.allows;
    problem.base_excepts = had.excepts;
    // What its rules deny goes the way of the settings there.
    if (LooksInto(reach[loser], asked.scheme)) problem.base_denies = there.judged_denies;
    return problem;
  }
  // All but what a rule sends another way: through a proxy of its own, or directly where no other rule says the settings' way.
  problem.base_allows = {kUniversal};
  problem.base_spares = there.judged_denies;
  problem.base_excepts = Those(other, there, [&](uint32_t i) {
    const uint32_t named = other.ways.of(i).proxy;
    return named != 0 && named != settings;
  });
  if (settings == 0) return problem;
  problem.base_weak = Those(other, there, [&](uint32_t i) { return other.ways.of(i).proxy == 0 && !other.ways.of(i).by_name; });
  problem.base_keeps = had.allows;
  return problem;
}

void Walk::ViaGains(const Alive& alive, const Asked& asked, const std::array<CellReach, kSides>& reach) {
  const Side& mine = *sides_[asked.winner];
  const Side& other = *sides_[1 - asked.winner];
  const SchemeReach& here = Over(reach[asked.winner], asked.scheme);
  const SchemeReach& there = Over(reach[1 - asked.winner], asked.scheme);
  std::set<uint32_t> proxies{0, mine.ways.settings_proxy()};
  for (const uint32_t i : here.judged_allows) proxies.insert(mine.ways.of(i).proxy);
  if (proxies.size() == 1 && !other.ways.any_proxy()) return;
  // What the other side does not look into goes the way of its connection.
  const CellReach& loser = reach[1 - asked.winner];
  const bool everything = LooksInto(loser, asked.scheme) || Passes(loser, asked.scheme);
  const std::vector<InnerId> refused = everything ? std::vector<InnerId>{} : there.judged_denies;
  // What it does not let out is gained as traffic, and said there: here it would hide what travels another way.
  const std::vector<InnerId> shared = everything ? std::vector<InnerId>{} : Those(other, there, [](uint32_t) { return true; });
  if (!everything && shared.empty()) return;
  for (const uint32_t proxy : proxies) {
    RequestProblem base = SentBy(asked, reach, proxy);
    base.head_also = shared;
    const Routed gained = RoutedBy(mine, here, proxy);
    Witness like = WitnessAt(asked.cell, Layer::kHttp);
    like.way = Way::kVia;
    like.way_name = mine.ways.ProxyName(proxy);
    RequestProblem problem = base;
    problem.head_allows = gained.allows;
    problem.head_denies = Both(here.judged_denies, refused);
    problem.accepted = gained.excepts;
    Solve(alive, asked, problem, like);
    if (!LooksInto(reach[asked.winner], asked.scheme) || proxy != mine.ways.settings_proxy()) continue;
    SolveAudited(asked, base, here, refused, like);
  }
}

// What `mode: audit` alone lets through: what no rule allows, and what one denies.
void Walk::SolveAudited(const Asked& asked, const RequestProblem& base, const SchemeReach& here,
                        const std::vector<InnerId>& denies, const Witness& like) {
  RequestProblem problem = base;
  problem.head_allows = {kUniversal};
  problem.head_denies = denies;
  problem.accepted = Those(*sides_[asked.winner], here, [](uint32_t) { return true; });
  SolveRest(asked, problem, like);
  if (here.judged_denies.empty()) return;
  problem.accepted.clear();
  problem.head_within = here.judged_denies;
  SolveRest(asked, problem, like);
}

void Walk::LooseGains(const Alive& alive, const Asked& asked, const std::array<CellReach, kSides>& reach, const Tight& tight,
                      const Witness& like) {
  const Side& mine = *sides_[asked.winner];
  const SchemeReach& here = Over(reach[asked.winner], asked.scheme);
  const SchemeReach& there = Over(reach[1 - asked.winner], asked.scheme);
  RequestProblem base;
  base.base_allows = {kUniversal};
  base.base_excepts = tight.other;
  RequestProblem problem = base;
  problem.head_allows = Those(mine, here, [](uint32_t) { return true; });
  problem.head_denies = Both(here.judged_denies, there.judged_denies);
  problem.accepted = tight.mine;
  Solve(alive, asked, problem, like);
  if (LooksInto(reach[asked.winner], asked.scheme)) SolveAudited(asked, base, here, there.judged_denies, like);
}

// What the workload puts into a field of its own goes out, but where a credential takes that field.
void Walk::OwnGains(const Alive& alive, const Asked& asked, const std::array<CellReach, kSides>& reach) {
  const Side& mine = *sides_[asked.winner];
  const Side& other = *sides_[1 - asked.winner];
  const SchemeReach& there = Over(reach[1 - asked.winner], asked.scheme);
  const auto replaced = [](const Side& side, uint32_t i) { return side.ways.Replaced(side.ways.of(i).credential); };
  std::set<std::string> fields;
  for (const uint32_t i : there.judged_allows) fields.insert(replaced(other, i));
  fields.erase("");
  for (const std::string& field : fields) {
    Witness like = WitnessAt(asked.cell, Layer::kHttp);
    like.way = Way::kOwn;
    like.way_name = field;
    const Tight tight{Those(
                          there, [&](uint32_t i) { return replaced(other, i) == field; },
                          [&](uint32_t i) { return Carried(1 - asked.winner, i, asked.cell); }),
                      Those(
                          Over(reach[asked.winner], asked.scheme), [&](uint32_t i) { return replaced(mine, i) == field; },
                          [&](uint32_t i) { return Carried(asked.winner, i, asked.cell); })};
    LooseGains(alive, asked, reach, tight, like);
  }
}

void Walk::PinGains(const Alive& alive, const Asked& asked, const std::array<CellReach, kSides>& reach) {
  const Side& mine = *sides_[asked.winner];
  const Side& other = *sides_[1 - asked.winner];
  const SchemeReach& there = Over(reach[1 - asked.winner], asked.scheme);
  std::set<std::vector<policy::Pin>> pinned;
  for (const uint32_t i : there.judged_allows)
    if (!other.rules()[i].pins.empty()) pinned.insert(other.rules()[i].pins);
  for (const auto& pins : pinned) {
    Witness like = WitnessAt(asked.cell, Layer::kHttp);
    like.way = Way::kUnpinned;
    const Tight tight{
        Those(other, there, [&](uint32_t i) { return other.rules()[i].pins == pins; }),
        Those(mine, Over(reach[asked.winner], asked.scheme), [&](uint32_t i) { return PinsWithin(mine.rules()[i].pins, pins); })};
    LooseGains(alive, asked, reach, tight, like);
  }
}

uint32_t Walk::ViaOfBytes(const Cell& cell, size_t side) const {
  policy::ConnectQuery query;
  query.process = cell.known ? &*cell.known : nullptr;
  query.host = cell.host;
  query.address = cell.address;
  query.port = cell.port;
  query.now = cell.now;
  return sides_[side]->ways.ProxyNumber(ConnectionAt(*sides_[side], query).decision.via);
}

// Of connections that both let pass unread.
void Walk::OpaqueVia(const Cell& cell, const std::array<CellReach, kSides>& reach, size_t winner) {
  const CellReach& mine = reach[winner];
  const CellReach& other = reach[1 - winner];
  const bool tcp = mine.tcp && other.tcp;
  if (!tcp && !(mine.tls && other.tls)) return;
  if (ViaOfBytes(cell, winner) == ViaOfBytes(cell, 1 - winner)) return;
  Witness witness = WitnessAt(cell, tcp ? Layer::kTcp : Layer::kTls);
  witness.way = Way::kVia;
  const RuleNumbers& by = mine.tcp_rules.empty() ? mine.tls_rules : mine.tcp_rules;
  for (const uint32_t i : by) Found(winner, RuleRef{i}, cell, witness);
  if (by.empty()) Found(winner, RuleRef::kNone, cell, witness);
}

}  // namespace sluice::prover
