#include "prover/walk.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "policy/index.h"
#include "prover/address_domain.h"
#include "prover/host_domain.h"
#include "prover/process_domain.h"

namespace sluice::prover {

using policy::PortRange;
using policy::Rule;
using policy::RuleRef;
using policy::Scheme;
using policy::Verb;

namespace {

constexpr size_t kBase = 0;
constexpr size_t kHead = 1;
constexpr size_t kAccepted = 2;
constexpr uint16_t kOtherType = 65280;  // the first for private use (RFC 6895)

void SortUnique(RuleNumbers* numbers) {
  std::sort(numbers->begin(), numbers->end());
  numbers->erase(std::unique(numbers->begin(), numbers->end()), numbers->end());
}

bool SameClasses(const Side& a, const RuleNumbers& in_a, const Side& b, const RuleNumbers& in_b) {
  RuleNumbers x;
  RuleNumbers y;
  for (const uint32_t i : in_a) x.push_back(a.classes[i]);
  for (const uint32_t i : in_b) y.push_back(b.classes[i]);
  SortUnique(&x);
  SortUnique(&y);
  return x == y;
}

bool HasAllow(const Side& side, const RuleNumbers& alive) {
  return side.kind == SideKind::kAllBut || side.audit() ||
         std::any_of(alive.begin(), alive.end(), [&](uint32_t i) { return side.rules()[i].allow; });
}

RuleNumbers ByName(const Side& side, const std::string& host) {
  RuleNumbers numbers;
  policy::ForEachByName(side.snapshot->compiled(), host, [&](uint32_t i) { numbers.push_back(i); });
  SortUnique(&numbers);
  return numbers;
}

bool Lists(const std::vector<PortRange>& ports, uint16_t port) {
  return ports.empty() ||
         std::any_of(ports.begin(), ports.end(), [&](const PortRange& r) { return r.first <= port && port <= r.last; });
}

// Ports at which some list changes its answer, and those that count as HTTP's own.
std::vector<uint32_t> PortEdges(const std::vector<const std::vector<PortRange>*>& lists) {
  std::set<uint32_t> edges{1, 80, 81, 443, 444};
  for (const std::vector<PortRange>* list : lists) {
    for (const PortRange& range : *list) {
      edges.insert(range.first);
      edges.insert(range.last + 1u);
    }
  }
  edges.erase(0);
  edges.erase(65536);
  return {edges.begin(), edges.end()};
}

bool Lists(const Rule& rule, uint16_t type) { return std::find(rule.types.begin(), rule.types.end(), type) != rule.types.end(); }

bool ImpliesLookup(const Rule& rule, uint16_t type) {
  return rule.verb == Verb::kDns ? Lists(rule, type) : type == policy::kDnsA || type == policy::kDnsAaaa;
}

}  // namespace

namespace {

Witness WitnessOf(const RequestGain& gain, Witness witness, Scheme scheme) {
  witness.scheme = scheme;
  witness.method = gain.method;
  witness.upgrade = gain.upgrade;
  witness.headers = gain.headers;
  witness.query = gain.query;
  witness.has_query = gain.has_query;
  witness.path = gain.path;
  witness.body = gain.body;
  return witness;
}

}  // namespace

// Nothing can differ below: the same rules on both sides, or no allow on either.
bool Walk::Nothing(const Alive& alive) const {
  if (budget_->exhausted()) return true;
  const Side& base = *sides_[kBase];
  const Side& head = *sides_[kHead];
  const bool base_reaches = HasAllow(base, alive[kBase]);
  const bool head_reaches = HasAllow(head, alive[kHead]);
  if (!(gains_ != nullptr && head_reaches) && !(losses_ != nullptr && base_reaches)) return true;
  if (base.kind != head.kind || base.audit() != head.audit()) return false;
  if (ways_ && base.ways.settings_proxy() != head.ways.settings_proxy()) return false;
  return SameClasses(base, alive[kBase], head, alive[kHead]);
}

template <class Keep>
Walk::Alive Walk::Filter(const Alive& alive, Keep keep) const {
  Alive next;
  for (size_t s = 0; s < kSides; ++s)
    for (const uint32_t i : alive[s])
      if (keep(RuleOf(s, i))) next[s].push_back(i);
  return next;
}

std::vector<const Rule*> Walk::RulesOf(const Alive& alive) const {
  std::vector<const Rule*> rules;
  for (size_t s = 0; s < kSides; ++s)
    for (const uint32_t i : alive[s]) rules.push_back(&RuleOf(s, i));
  return rules;
}

std::vector<WallTime> Walk::Instants(const Alive& alive) const {
  std::set<WallTime> instants{options_.at};
  for (const Rule* rule : RulesOf(alive))
    if (rule->until && *rule->until > options_.at) instants.insert(*rule->until);
  return {instants.begin(), instants.end()};
}

void Walk::Run(Findings* gains, Findings* losses) {
  gains_ = gains;
  losses_ = losses;
  FindPlaces();
  for (size_t s = 0; s < kSides; ++s) {
    if (sides_[s] == nullptr) continue;
    for (uint32_t i = 0; i < sides_[s]->rules().size(); ++i) {
      const Rule& rule = RuleOf(s, i);
      // policy/index.h: an allow of HTTP, git or tls by literal speaks only for connections made to that literal.
      const bool literal_only = rule.allow && (policy::IsInner(rule.verb) || rule.verb == Verb::kTls);
      if (rule.host.kind == policy::HostPattern::Kind::kAddress && !literal_only) prefixes_[s].push_back(i);
    }
  }
  Hosts();
  Literals();
  Sockets();
}

void Walk::Hosts() {
  std::vector<const policy::HostPattern*> patterns;
  for (const Side* side : sides_)
    if (side != nullptr)
      for (const Rule& rule : side->rules()) patterns.push_back(&rule.host);
  for (const Place& place : places_)
    if (place.host != nullptr) patterns.push_back(place.host);
  std::set<std::pair<Alive, std::set<std::pair<size_t, std::vector<PortRange>>>>> seen;
  for (const std::string& host : HostAtoms(patterns, budget_)) {
    Alive alive;
    size_t count = 1;
    for (size_t s = 0; s < kSides; ++s) {
      if (sides_[s] != nullptr) alive[s] = ByName(*sides_[s], host);
      count += alive[s].size();
    }
    if (!budget_->Spend(count + places_.size())) return;
    std::set<std::pair<size_t, std::vector<PortRange>>> ways;
    for (const Place& place : PlacesAt(host)) ways.emplace(place.number, *place.ports);
    if (!seen.insert({alive, std::move(ways)}).second) continue;
    if (!Nothing(alive)) Names(alive, host);
    for (size_t s = 0; s < kSides; ++s) {
      alive[s].insert(alive[s].end(), prefixes_[s].begin(), prefixes_[s].end());
      SortUnique(&alive[s]);
    }
    Connections(alive, host);
  }
}

void Walk::Literals() {
  Alive alive;
  for (size_t s = 0; s < kSides; ++s) {
    if (sides_[s] == nullptr) continue;
    for (uint32_t i = 0; i < sides_[s]->rules().size(); ++i) {
      const auto kind = RuleOf(s, i).host.kind;
      if (RuleOf(s, i).verb != Verb::kUnix &&
          (kind == policy::HostPattern::Kind::kAny || kind == policy::HostPattern::Kind::kAddress))
        alive[s].push_back(i);
    }
  }
  Connections(alive, "");
}

void Walk::Names(const Alive& alive, const std::string& host) {
  Cell cell;
  cell.host = host;
  const Alive speaking = Filter(alive, [](const Rule& r) { return r.verb != Verb::kUnix && (r.allow || r.verb == Verb::kDns); });
  Processes(speaking, cell, &Walk::NamesAt);
}

void Walk::NamesAt(const Alive& alive, const Cell& cell) {
  std::set<uint16_t> types{policy::kDnsA, policy::kDnsAaaa, kOtherType};
  for (const Rule* rule : RulesOf(alive)) types.insert(rule->types.begin(), rule->types.end());
  for (const uint16_t type : types) {
    if (!budget_->Spend(1 + alive[kBase].size() + alive[kHead].size())) return;
    Witness witness = WitnessAt(cell, Layer::kDns);
    witness.dns_type = type;
    std::array<bool, kSides> reached{};
    for (size_t s = 0; s < kSides; ++s) {
      if (sides_[s] == nullptr) continue;
      const bool all_but = sides_[s]->kind == SideKind::kAllBut;
      reached[s] = all_but ? !Denies(*sides_[s]->snapshot, witness) : Replay(*sides_[s]->snapshot, witness).reached;
    }
    for (const size_t winner : {kHead, kBase}) {
      if (!reached[winner] || reached[1 - winner] || (winner == kHead && reached[kAccepted])) continue;
      bool by_rule = false;
      for (const uint32_t i : alive[winner]) {
        if (!RuleOf(winner, i).allow || !ImpliesLookup(RuleOf(winner, i), type)) continue;
        // In audit mode a denied lookup is no rule's doing.
        if (Replay(*sides_[winner]->snapshot, witness).reason != policy::Reason::kAllowed) continue;
        Found(winner, RuleRef{i}, cell, witness);
        by_rule = true;
      }
      if (!by_rule) Found(winner, RuleRef::kNone, cell, witness);
    }
  }
}

void Walk::Connections(const Alive& alive, const std::string& host) {
  Cell cell;
  cell.host = host;
  const Alive speaking = Filter(alive, [](const Rule& r) { return r.verb != Verb::kUnix && !(r.allow && r.verb == Verb::kDns); });
  if (!Nothing(speaking)) Addresses(speaking, cell);
}

void Walk::Addresses(const Alive& alive, Cell cell) {
  const std::vector<AddressInterval> intervals = CutAddresses(RulesOf(alive));
  cell.address_matters = cell.host.empty() || intervals.size() > 1;
  std::set<std::pair<Alive, bool>> seen;
  for (const AddressInterval& interval : intervals) {
    policy::ConnectQuery query;
    query.host = cell.host;
    query.address = interval.representative;
    const policy::ConnectionView view(query);
    if (!budget_->Spend(1 + alive[kBase].size() + alive[kHead].size())) return;
    const auto in_target = [&](const Rule& rule) {
      return !rule.host.cidr || policy::Holds(*rule.host.cidr, interval.representative);
    };
    const auto covers = [&](const Rule& rule) {
      if (rule.allow) return policy::AllowCoversAddress(rule, view);
      return rule.verb == Verb::kDns ? policy::DnsDenyCloses(rule, query) : policy::DenyCoversAddress(rule, view);
    };
    const Alive here = Filter(alive, [&](const Rule& rule) { return in_target(rule) && covers(rule); });
    Alive next = here;
    for (size_t s = 0; s < kSides; ++s) {
      if (!MayBeRemote(s, cell)) continue;
      // What a proxy looks up is judged for no address, and is told from the rest by what every allow says: see JudgedAt.
      for (const uint32_t i : alive[s])
        if (RuleOf(s, i).allow || (RuleOf(s, i).verb != Verb::kDns && in_target(RuleOf(s, i)))) next[s].push_back(i);
      SortUnique(&next[s]);
    }
    if (!seen.insert({here, view.special.has_value()}).second || Nothing(next)) continue;
    cell.address = interval.representative;
    Ports(next, cell);
  }
}

void Walk::Ports(const Alive& alive, Cell cell) {
  const std::vector<Place> places = PlacesAt(cell.host);
  std::vector<const std::vector<PortRange>*> lists;
  for (const Rule* rule : RulesOf(alive)) lists.push_back(&rule->ports);
  for (const Place& place : places) lists.push_back(place.ports);
  const std::vector<uint32_t> edges = PortEdges(lists);
  std::map<std::tuple<Alive, bool, std::set<size_t>>, std::vector<PortRange>> groups;
  for (size_t e = 0; e < edges.size(); ++e) {
    const auto first = static_cast<uint16_t>(edges[e]);
    const auto last = static_cast<uint16_t>(e + 1 < edges.size() ? edges[e + 1] - 1 : 65535);
    if (!budget_->Spend(1 + alive[kBase].size() + alive[kHead].size())) return;
    Alive next = Filter(alive, [&](const Rule& rule) { return rule.verb == Verb::kDns || policy::CoversPort(rule, first); });
    if (Nothing(next)) continue;
    std::set<size_t> ways;
    for (const Place& place : places)
      if (Lists(*place.ports, first)) ways.insert(place.number);
    groups[{std::move(next), first == 80 || first == 443, std::move(ways)}].push_back({first, last});
  }
  for (const auto& [key, ranges] : groups) {
    cell.ports = ranges;
    cell.port = ranges.front().first;
    for (const uint16_t usual : {uint16_t{80}, uint16_t{443}})
      for (const PortRange& range : ranges)
        if (range.first <= usual && usual <= range.last) cell.port = usual;
    Processes(std::get<Alive>(key), cell, &Walk::At);
  }
}

// Process and time, for lookups, connections and sockets alike.
void Walk::Processes(const Alive& alive, Cell cell, void (Walk::*next)(const Alive&, const Cell&)) {
  if (Nothing(alive)) return;
  std::set<Alive> seen;
  const bool two = ways_ || sides_[kBase]->audit() || sides_[kHead]->audit();
  const Lineage lineage = two ? Lineage::kTwo : Lineage::kOne;
  for (const WitnessProcess& process : ProcessAtoms(RulesOf(alive), options_.executables, lineage, budget_)) {
    cell.process = process;
    cell.known = AsProcess(process);
    const policy::Process* known = cell.known ? &*cell.known : nullptr;
    if (!budget_->Spend(1 + alive[kBase].size() + alive[kHead].size())) return;
    const Alive who = Filter(alive, [&](const Rule& rule) {
      return rule.allow ? policy::AllowCoversProcess(rule, known) : policy::DenyCoversProcess(rule, known);
    });
    if (Nothing(who)) continue;
    for (const WallTime now : Instants(who)) {
      cell.now = now;
      const Alive then = Filter(who, [&](const Rule& rule) { return !rule.until || now < *rule.until; });
      if (Nothing(then) || !seen.insert(then).second) continue;
      (this->*next)(then, cell);
    }
  }
}

void Walk::At(const Alive& covering, const Cell& cell) {
  policy::ConnectQuery query;
  query.process = cell.known ? &*cell.known : nullptr;
  query.host = cell.host;
  query.address = cell.address;
  query.port = cell.port;
  query.now = cell.now;
  Alive alive = covering;
  for (size_t s = 0; s < kSides; ++s)
    if (MayBeRemote(s, cell)) alive[s] = JudgedAt(*sides_[s], covering[s], query);
  std::array<CellReach, kSides> reach;
  for (size_t s = 0; s < kSides; ++s)
    if (sides_[s] != nullptr) reach[s] = ReachAt(*sides_[s], alive[s], query);
  for (const size_t winner : {kHead, kBase}) {
    if (FindingsOf(winner) == nullptr || sides_[winner]->kind != SideKind::kPolicy) continue;
    Gain(alive, cell, reach, winner);
    if (ways_) WayGains(alive, cell, reach, winner);
  }
}

void Walk::Gain(const Alive& alive, const Cell& cell, const std::array<CellReach, kSides>& reach, size_t winner) {
  const CellReach& mine = reach[winner];
  const CellReach& other = reach[1 - winner];
  static const CellReach kNothing;
  const CellReach& accepted = winner == kHead ? reach[kAccepted] : kNothing;
  const auto found = [&](const RuleNumbers& rules, Layer layer) {
    for (const uint32_t i : rules) Found(winner, RuleRef{i}, cell, WitnessAt(cell, layer));
  };
  if (mine.udp && !other.udp && !accepted.udp) found(mine.udp_rules, Layer::kUdp);
  RuleNumbers everything_by;  // opaque allows whose gain is shown by a request inside
  bool tls_done = false;
  if (mine.tcp && !other.tcp && !accepted.tcp) {
    if (other.closes_below && !other.closes_tls) {
      everything_by = mine.tcp_rules;
    } else {
      const Layer layer = other.closes_tls ? Layer::kTls : Layer::kTcp;
      found(mine.tcp_rules, layer);
      if (mine.audit) Found(winner, RuleRef::kNone, cell, WitnessAt(cell, layer));
      // What it carries goes without saying, but for `mode: audit` a request says more than bytes do.
      if (!mine.audit || other.closes_tls) return;
    }
  } else if (mine.tls && !other.tls && !accepted.tls) {
    if (other.closes_below && !other.closes_tls) {
      everything_by = mine.tls_rules;
    } else {
      found(mine.tls_rules, Layer::kTls);
      tls_done = true;
    }
  }
  for (const Scheme scheme : {Scheme::kHttps, Scheme::kHttp}) {
    if (scheme == Scheme::kHttps && tls_done) continue;
    RequestGains(alive, cell, reach, winner, scheme, everything_by);
  }
}

void Walk::RequestGains(const Alive& alive, const Cell& cell, const std::array<CellReach, kSides>& reach, size_t winner,
                        Scheme scheme, const RuleNumbers& everything_by) {
  using Kind = SchemeReach::Kind;
  const SchemeReach& mine = reach[winner].schemes[static_cast<size_t>(scheme)];
  const SchemeReach& other = reach[1 - winner].schemes[static_cast<size_t>(scheme)];
  static const SchemeReach kNothing;
  const SchemeReach& may_be_accepted = winner == kHead ? reach[kAccepted].schemes[static_cast<size_t>(scheme)] : kNothing;
  // Accepted regions are allows. Where a policy with denies stands in their place (UnusedAccepted), nothing is taken out too
  // much.
  const SchemeReach& accepted = may_be_accepted.denies.empty() ? may_be_accepted : kNothing;
  if (mine.kind == Kind::kNothing || other.kind == Kind::kEverything || accepted.kind == Kind::kEverything) return;
  RequestProblem problem;
  if (mine.kind == Kind::kEverything) {
    // Of an opaque connection the bytes were reported; a request is of interest where the other side judges requests.
    const bool bytes = scheme == Scheme::kHttps ? reach[winner].tls : reach[winner].tcp;
    if (everything_by.empty() && (!reach[winner].audit || (bytes && other.kind == Kind::kNothing))) return;
    problem.head_allows = {kUniversal};
  } else {
    problem.head_allows = mine.allows;
    problem.head_denies = mine.denies;
  }
  problem.base_allows = other.allows;
  problem.base_denies = other.denies;
  problem.accepted = accepted.allows;
  const Asked asked{cell, winner, scheme};
  MindCrossings(asked, reach);
  for (const RequestGain& gain : requests_->Solve(problem)) {
    if (gain.allow != kUniversal) continue;
    const Witness witness = WitnessOf(gain, WitnessAt(cell, Layer::kHttp), scheme);
    for (const uint32_t i : everything_by) Found(winner, RuleRef{i}, cell, witness, gain.methods);
    if (reach[winner].audit) Found(winner, RuleRef::kNone, cell, witness, gain.methods);
  }
  Solve(alive, asked, problem, WitnessAt(cell, Layer::kHttp));
}

// The gains of rules that are asked about.
void Walk::Solve(const Alive& alive, const Asked& asked, const RequestProblem& problem, const Witness& like) {
  for (const RequestGain& gain : requests_->Solve(problem)) {
    if (gain.allow == kUniversal) continue;
    Witness witness = WitnessOf(gain, like, asked.scheme);
    for (const uint32_t i : alive[asked.winner]) {
      const Rule& rule = RuleOf(asked.winner, i);
      if (!rule.allow || !policy::IsInner(rule.verb)) continue;
      const bool credential = witness.way == Way::kCredential;
      if ((credential ? Carried(asked.winner, i, asked.cell) : sides_[asked.winner]->inner[i]) != gain.allow) continue;
      if (credential &&
          sides_[asked.winner]->ways.CredentialName(sides_[asked.winner]->ways.of(i).credential) != witness.way_name)
        continue;
      if (rule.verb != Verb::kHttp && rule.verb != Verb::kWs) witness.operation = rule.verb;
      Found(asked.winner, RuleRef{i}, asked.cell, witness, gain.methods);
    }
  }
}

void Walk::SolveRest(const Asked& asked, const RequestProblem& problem, const Witness& like) {
  for (const RequestGain& gain : requests_->Solve(problem))
    Found(asked.winner, RuleRef::kNone, asked.cell, WitnessOf(gain, like, asked.scheme), gain.methods);
}

void Walk::Sockets() {
  Alive alive;
  for (size_t s = 0; s < kSides; ++s)
    if (sides_[s] != nullptr) alive[s] = sides_[s]->snapshot->compiled().sockets;
  Processes(alive, Cell{}, &Walk::SocketsAt);
}

void Walk::SocketsAt(const Alive& alive, const Cell& cell) {
  for (const size_t winner : {kHead, kBase}) {
    if (FindingsOf(winner) == nullptr || sides_[winner]->kind != SideKind::kPolicy) continue;
    const size_t loser = 1 - winner;
    if (sides_[loser]->audit()) continue;
    std::vector<std::pair<RuleRef, PathPattern>> asked;
    std::vector<PathPattern> outside;
    std::vector<PathPattern> base;
    std::vector<PathPattern> base_denies;
    const auto pattern = [](const Rule& rule) { return PathPattern{AnyOf(rule.paths)}; };
    if (sides_[winner]->audit()) asked.emplace_back(RuleRef::kNone, PathPattern{AnyOf({})});
    for (const uint32_t i : alive[winner]) {
      const Rule& rule = RuleOf(winner, i);
      if (rule.allow) asked.emplace_back(RuleRef{i}, pattern(rule));
      if (!rule.allow && !sides_[winner]->audit()) outside.push_back(pattern(rule));
    }
    if (winner == kHead)
      for (const uint32_t i : alive[kAccepted]) outside.push_back(pattern(RuleOf(kAccepted, i)));
    if (sides_[loser]->kind == SideKind::kAllBut) base.push_back(PathPattern{AnyOf({})});
    for (const uint32_t i : alive[loser]) (RuleOf(loser, i).allow ? base : base_denies).push_back(pattern(RuleOf(loser, i)));
    for (const auto& [rule, allow] : asked) {
      const auto ask = [&](const PathPattern* deny) {
        PathQuestion question;
        question.universe = Universe::kSocketPath;
        question.inside = {&allow};
        if (deny != nullptr) question.inside.push_back(deny);
        for (const PathPattern& p : outside) question.outside.push_back(&p);
        if (deny == nullptr)
          for (const PathPattern& p : base) question.outside.push_back(&p);
        const auto path = ShortestPath(question, budget_);
        if (!path) return;
        Witness witness = WitnessAt(cell, Layer::kUnix);
        witness.path = *path;
        Found(winner, rule, cell, std::move(witness));
      };
      ask(nullptr);
      for (const PathPattern& deny : base_denies) ask(&deny);
    }
  }
}

Witness Walk::WitnessAt(const Cell& cell, Layer layer) const {
  Witness witness;
  witness.layer = layer;
  witness.process = cell.process;
  witness.time = cell.now;
  if (layer == Layer::kUnix) return witness;
  witness.host = cell.host;
  if (layer == Layer::kDns) return witness;
  if (cell.address_matters) witness.address = cell.address;
  witness.port = cell.port;
  return witness;
}

void Walk::Found(size_t winner, RuleRef rule, const Cell& cell, Witness witness, std::vector<std::string> methods) {
  Findings* findings = FindingsOf(winner);
  if (findings == nullptr || !budget_->Spend(16)) return;
  findings->Add({rule, std::move(witness), cell.ports, std::move(methods)});
}

}  // namespace sluice::prover
