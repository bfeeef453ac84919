#include "prover/sides.h"

#include <algorithm>

#include "policy/credential.h"
#include "policy/no_proxy.h"

namespace sluice::prover {
namespace {

using policy::ConnectionView;
using policy::kNoIndex;
using policy::Layers;
using policy::Rule;
using policy::Scheme;
using policy::Transport;
using policy::Verb;

// One that does not cover the address is alive for what is judged without one, and lets nothing past the address guard.
Layers LayersOf(const Side& side, const RuleNumbers& alive, const ConnectionView& connection) {
  policy::ConnectQuery open = connection.query;
  open.address.reset();
  open.remote = true;
  const ConnectionView remote(open);
  Layers layers;
  for (const uint32_t i : alive) {
    const Rule& rule = side.rules()[i];
    if (!rule.allow) {
      policy::AddDeny(rule, i, policy::DenyCoversAddress(rule, connection) ? connection : remote, &layers);
    } else if (policy::AllowCoversAddress(rule, connection)) {
      policy::AddAllow(rule, i, connection, &layers);
    } else {
      const bool passed = layers.guard_passed;
      policy::AddAllow(rule, i, remote, &layers);
      layers.guard_passed = passed;
    }
  }
  return layers;
}

bool IsAsked(const Side& side, uint16_t proxy, const policy::ConnectQuery& query) {
  return proxy != policy::kNoIndex16 && !query.host.empty() &&
         !policy::IsExcepted(side.snapshot->proxies()[proxy], query.host, {}, query.port);
}

RuleNumbers AllowsOf(const Side& side, const RuleNumbers& alive, Verb verb) {
  RuleNumbers numbers;
  for (const uint32_t i : alive)
    if (side.rules()[i].allow && side.rules()[i].verb == verb) numbers.push_back(i);
  return numbers;
}

void SortUnique(std::vector<InnerId>* ids) {
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
}

void AddRules(const Side& side, const RuleNumbers& alive, Scheme scheme, SchemeReach* reach) {
  reach->kind = SchemeReach::Kind::kRules;
  for (const uint32_t i : alive) {
    const Rule& rule = side.rules()[i];
    if (policy::IsInner(rule.verb) && (!rule.scheme || *rule.scheme == scheme))
      (rule.allow ? reach->allows : reach->denies).push_back(side.inner[i]);
  }
  SortUnique(&reach->allows);
  SortUnique(&reach->denies);
}

void AddJudged(const Side& side, const RuleNumbers& alive, Scheme scheme, SchemeReach* reach) {
  reach->judged = true;
  for (const uint32_t i : alive) {
    const Rule& rule = side.rules()[i];
    if (!policy::IsInner(rule.verb) || (rule.scheme && *rule.scheme != scheme)) continue;
    if (rule.allow) {
      reach->judged_allows.push_back(i);
    } else {
      reach->judged_denies.push_back(side.inner[i]);
    }
  }
  SortUnique(&reach->judged_denies);
}

CellReach PolicyReach(const Side& side, const RuleNumbers& alive, const ConnectionView& connection, const Layers& layers) {
  CellReach reach;
  const bool open = layers.outer_deny == kNoIndex;
  reach.audit = side.audit() && (AuditGoesByProxy(side, connection.query) || !policy::GuardRefuses(layers, connection));
  if (open && layers.OpaqueTcp() != kNoIndex) reach.tcp_rules = AllowsOf(side, alive, Verb::kTcp);
  if (open && layers.OpaqueTls() != kNoIndex) reach.tls_rules = AllowsOf(side, alive, Verb::kTls);
  // In audit mode the enforcer says where bytes pass: a connection that is inspected, as all at 80 and 443 are that no rule
  // opens, carries requests alone. What else is sent there is a fault of protocol (exact point 19).
  const auto passed = reach.audit ? ConnectionAt(side, connection.query).verdict : policy::ConnectVerdict::kDeny;
  reach.tcp = passed == policy::ConnectVerdict::kOpaqueTcp || !reach.tcp_rules.empty();
  reach.tls = reach.tcp || !reach.tls_rules.empty();
  for (const Scheme scheme : {Scheme::kHttps, Scheme::kHttp}) {
    SchemeReach& inside = reach.schemes[static_cast<size_t>(scheme)];
    if (reach.audit || (scheme == Scheme::kHttps ? reach.tls : reach.tcp)) {
      inside.kind = SchemeReach::Kind::kEverything;
    } else if (open && (scheme == Scheme::kHttp || layers.tls_deny == kNoIndex)) {
      AddRules(side, alive, scheme, &inside);
    }
    const bool tls = scheme == Scheme::kHttps;
    const bool opaque = layers.OpaqueTcp() != kNoIndex || (tls && layers.OpaqueTls() != kNoIndex);
    if (open && !opaque && (!tls || layers.tls_deny == kNoIndex)) AddJudged(side, alive, scheme, &inside);
  }
  return reach;
}

CellReach AllButReach(const Side& side, const RuleNumbers& alive, const Layers& layers) {
  CellReach reach;
  const bool open = layers.outer_deny == kNoIndex;
  bool inner_tls = false;
  for (const uint32_t i : alive) {
    const Rule& rule = side.rules()[i];
    if (!policy::IsInner(rule.verb)) continue;
    reach.closes_below = true;
    inner_tls |= rule.scheme != Scheme::kHttp;
  }
  reach.closes_tls = layers.tls_deny != kNoIndex;
  reach.tcp = open && !reach.closes_tls && !reach.closes_below;
  reach.tls = open && !reach.closes_tls && !inner_tls;
  for (const Scheme scheme : {Scheme::kHttps, Scheme::kHttp}) {
    SchemeReach& inside = reach.schemes[static_cast<size_t>(scheme)];
    if (!open || (scheme == Scheme::kHttps && reach.closes_tls)) continue;
    AddRules(side, alive, scheme, &inside);
    inside.allows = {kUniversal};
    if (inside.denies.empty()) inside.kind = SchemeReach::Kind::kEverything;
  }
  return reach;
}

}  // namespace

Side Classes::MakeSide(const policy::Snapshot& snapshot, SideKind kind, InnerRules* inner) {
  Side side{&snapshot, kind, {}, {}, Ways(snapshot, &ways_)};
  for (uint32_t i = 0; i < side.rules().size(); ++i) {
    const Rule& rule = side.rules()[i];
    const Ways::Rule& way = side.ways.of(i);
    std::string meaning = policy::CanonicalText(rule);
    // Two names may mean the same, and one name two things.
    if (way != Ways::Rule{}) meaning += "\n" + std::to_string(way.credential) + " " + std::to_string(way.proxy);
    if (way.by_name) meaning += "\n" + std::to_string(side.ways.settings_proxy());
    // Where a credential goes is what its rule says, but for the case of a repository.
    if (way.credential != 0 && policy::IsGit(rule.verb))
      for (const policy::CredentialScope& scope : snapshot.credentials()[rule.credential].to) meaning += "\n" + scope.text;
    const auto [at, fresh] = numbers_.try_emplace(std::move(meaning), static_cast<uint32_t>(numbers_.size()));
    side.classes.push_back(at->second);
    side.inner.push_back(policy::IsInner(rule.verb) ? inner->Intern(rule) : kUniversal);
  }
  return side;
}

bool GoesByProxy(const Side& side, uint32_t allow, const policy::ConnectQuery& query) {
  const Rule& rule = side.rules()[allow];
  if (!rule.allow || !(policy::IsInner(rule.verb) || rule.verb == Verb::kTls || rule.verb == Verb::kTcp)) return false;
  if (rule.proxy != policy::kNoIndex16) return IsAsked(side, rule.proxy, query);
  return rule.ip.empty() && !rule.host.cidr && IsAsked(side, side.snapshot->settings().proxy, query);
}

bool AuditGoesByProxy(const Side& side, const policy::ConnectQuery& query) {
  return side.audit() && IsAsked(side, side.snapshot->settings().proxy, query);
}

Unread UnreadAt(const Side& side, const policy::ConnectQuery& query) {
  if (query.host.empty() || !side.ways.any_proxy()) return {};
  policy::ConnectQuery open = query;
  open.address.reset();
  const policy::ConnectDecision way = side.snapshot->DecideConnect(open);
  Unread unread;
  unread.tcp = way.allowed() && way.verdict == policy::ConnectVerdict::kOpaqueTcp;
  unread.tls = unread.tcp || (way.allowed() && way.verdict == policy::ConnectVerdict::kOpaqueTls);
  unread.by_proxy = unread.tls && IsAsked(side, way.decision.via, query);
  return unread;
}

policy::ConnectDecision ConnectionAt(const Side& side, const policy::ConnectQuery& query) {
  policy::ConnectQuery asked = query;
  if (UnreadAt(side, query).by_proxy) {
    asked.address.reset();
    asked.remote = true;
  }
  return side.snapshot->DecideConnect(asked);
}

CellReach ReachAt(const Side& side, const RuleNumbers& alive, const policy::ConnectQuery& query) {
  policy::ConnectQuery tcp = query;
  tcp.transport = Transport::kTcp;
  policy::ConnectQuery udp = query;
  udp.transport = Transport::kUdp;
  const ConnectionView tcp_view(tcp);
  const ConnectionView udp_view(udp);
  const Layers layers = LayersOf(side, alive, tcp_view);
  const Layers udp_layers = LayersOf(side, alive, udp_view);
  CellReach reach =
      side.kind == SideKind::kPolicy ? PolicyReach(side, alive, tcp_view, layers) : AllButReach(side, alive, layers);
  if (side.kind == SideKind::kAllBut) {
    reach.udp = udp_layers.outer_deny == kNoIndex;
  } else if (udp_layers.outer_deny == kNoIndex && udp_layers.OpaqueTcp() != kNoIndex) {
    reach.udp = true;
    reach.udp_rules = AllowsOf(side, alive, Verb::kUdp);
  }
  return reach;
}

}  // namespace sluice::prover
