#include <algorithm>
#include <bit>

#include "policy/body_rules.h"
#include "policy/credential.h"
#include "policy/index.h"
#include "policy/layers.h"
#include "policy/no_proxy.h"
#include "policy/target.h"

namespace sluice::policy {
namespace {

Reason ReasonOf(Misses misses) {
  switch (misses) {
    case kMissPort:
      return Reason::kPort;
    case kMissPath:
      return Reason::kPath;
    case kMissMethod:
      return Reason::kMethod;
    case kMissQuery:
      return Reason::kQuery;
    case kMissHeader:
      return Reason::kHeader;
    case kMissBinary:
      return Reason::kBinary;
    case kMissAddress:
      return Reason::kPrivateAddress;
    case kMissExpired:
      return Reason::kExpired;
    case kMissOperation:
      return Reason::kOperation;
    default:
      return Reason::kNoRule;
  }
}

// The allow that lacked least, for the reason of a denial. A later bit outweighs an earlier one among equals: a rule that fails
// only for its time or its address says more than one for another path.
struct Closest {
  Misses misses = 0;
  int count = 99;
  void Offer(Misses m) {
    const int n = std::popcount(m);
    if (n < count || (n == count && m > misses)) {
      misses = m;
      count = n;
    }
  }
  [[nodiscard]] Reason reason() const { return count == 1 ? ReasonOf(misses) : Reason::kNoRule; }
};

ConnectDecision Deny(Reason reason, uint32_t rule = kNoIndex) {
  return {ConnectVerdict::kDeny, {false, reason, RuleRef{rule}, false}};
}
ConnectDecision Allow(ConnectVerdict verdict, uint32_t rule) { return {verdict, {true, Reason::kAllowed, RuleRef{rule}, false}}; }

// A rule by address says nothing of a name whose address is not known: it is no near miss.
bool Mentions(const Rule& rule, const ConnectQuery& query) {
  return query.address || query.host.empty() || rule.host.kind != HostPattern::Kind::kAddress;
}

// What the allow that came closest lacked. Only for denials: a second look at the candidates.
Reason WhyNoAllow(const Snapshot::Compiled& compiled, const ConnectionView& connection) {
  Closest closest;
  ForEachCandidate(compiled, connection.query, [&](uint32_t i) {
    const Rule& rule = compiled.rules[i];
    if (rule.allow && CarriedBy(rule, connection.query.transport) && Mentions(rule, connection.query))
      closest.Offer(ConnectionMisses(rule, connection));
  });
  return closest.reason();
}

Reason WhyNoAllow(const Snapshot::Compiled& compiled, const ConnectionView& connection, const RequestView& request) {
  Closest closest;
  ForEachCandidate(compiled, connection.query, [&](uint32_t i) {
    const Rule& rule = compiled.rules[i];
    if (!rule.allow || !IsInner(rule.verb)) return;
    const Misses misses = ConnectionMisses(rule, connection) | request.AllowMisses(rule);
    // Whoever gets here by nothing but the body was refused for it.
    closest.Offer(misses == 0 ? Misses{kMissOperation} : misses);
  });
  return closest.reason();
}

// A credential goes nowhere but where it is bound to.
bool LiesInScope(const Credential& credential, const RequestQuery& request) {
  if (request.scheme != Scheme::kHttps) return false;
  return std::any_of(credential.to.begin(), credential.to.end(), [&](const CredentialScope& scope) {
    return ScopeHolds(scope, request.connection) &&
           (scope.paths.empty() || std::any_of(scope.paths.begin(), scope.paths.end(),
                                               [&](const Glob& g) { return g.Matches(request.target->ForMatching()); }));
  });
}

Decision Granted(const Snapshot::Compiled& compiled, const RequestQuery& request, const Grant& grant) {
  // The loader refuses policies that could come to this.
  if (grant.conflict) return {};
  Decision decision{.allowed = true, .reason = Reason::kAllowed, .rule = RuleRef{grant.rule}};
  if (grant.credential != kNoIndex16 && LiesInScope(compiled.credentials[grant.credential], request))
    decision.credential = grant.credential;
  decision.via = grant.Via(compiled);
  decision.pinned_by = RuleRef{grant.pinned};
  return decision;
}

// The upstream proxy of an opaque connection: what the allows say that let it pass, and none of those that a deny voids here.
// False where they say two things.
bool RouteOpaque(const Snapshot::Compiled& compiled, const ConnectionView& connection, const Layers& layers, Decision* decision) {
  const bool by_tcp = layers.OpaqueTcp() != kNoIndex;
  const bool by_tls = layers.OpaqueTls() != kNoIndex;
  Grant grant;
  ForEachCandidate(compiled, connection.query, [&](uint32_t i) {
    const Rule& rule = compiled.rules[i];
    const bool holds = (by_tcp && rule.verb == Verb::kTcp) || (by_tls && rule.verb == Verb::kTls);
    if (rule.allow && holds && AllowCoversConnection(rule, connection)) grant.Add(compiled, i);
  });
  decision->via = grant.Via(compiled);
  return !grant.conflict;
}

Decision JudgeBody(const Snapshot::Compiled& compiled, const RequestQuery& request, const BodyRules& rules, Grant grant) {
  if (request.body == nullptr) {
    if (const BodyKinds needed = rules.Needed(grant); needed != 0)
      return {.allowed = false, .reason = Reason::kOperation, .body_needed = needed};
  } else {
    if (const uint32_t deny = rules.Denying(*request.body); deny != kNoIndex)
      return {.allowed = false, .reason = Reason::kDenyRule, .rule = RuleRef{deny}};
    grant = rules.Granting(grant, *request.body);
  }
  if (grant.given()) return Granted(compiled, request, grant);
  return {.allowed = false, .reason = Reason::kNoRule};
}

ConnectDecision Judge(const Layers& layers) {
  if (layers.outer_deny != kNoIndex) return Deny(Reason::kDenyRule, layers.outer_deny);
  if (const uint32_t rule = layers.OpaqueTcp(); rule != kNoIndex) return Allow(ConnectVerdict::kOpaqueTcp, rule);
  if (const uint32_t rule = layers.OpaqueTls(); rule != kNoIndex) return Allow(ConnectVerdict::kOpaqueTls, rule);
  if (layers.https_allow != kNoIndex && layers.tls_deny == kNoIndex) return Allow(ConnectVerdict::kInspect, layers.https_allow);
  if (layers.http_allow != kNoIndex) return Allow(ConnectVerdict::kInspect, layers.http_allow);
  // Some allow was there and a deny voided it; name the deny.
  if (layers.transport_allow != kNoIndex) return Deny(Reason::kDenyRule, layers.under_tcp_deny);
  if (layers.tls_allow != kNoIndex || layers.https_allow != kNoIndex)
    return Deny(Reason::kDenyRule, std::min(layers.tls_deny, layers.under_tls_deny));
  return Deny(Reason::kNoRule);
}

}  // namespace

// Requests that no rule can grant. CONNECT and TRACE are never forwarded, nor a spelling that a careless server reads as one of
// the methods that rules speak of: "post" would pass a deny of POST.
bool NeverForwarded(std::string_view method) {
  static constexpr std::string_view kKnown[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"};
  if (!IsToken(method)) return true;
  for (const std::string_view known : kKnown) {
    const bool same = std::equal(method.begin(), method.end(), known.begin(), known.end(),
                                 [](char a, char b) { return (a >= 'a' && a <= 'z' ? a - 0x20 : a) == b; });
    if (same) return method != known || known == "CONNECT" || known == "TRACE";
  }
  return false;
}

ConnectDecision Snapshot::DecideConnect(const ConnectQuery& query) const noexcept {
  if (query.port == 0) return Deny(Reason::kProtocol);
  if (query.host.empty() && !query.address) return Deny(Reason::kInternal);
  const ConnectionView connection(query);
  Layers layers;
  ForEachCandidate(*compiled_, query, [&](uint32_t i) {
    const Rule& rule = compiled_->rules[i];
    if (rule.allow) {
      AddAllow(rule, i, connection, &layers);
    } else {
      AddDeny(rule, i, connection, &layers);
    }
  });
  ConnectDecision decision = Judge(layers);
  const bool opaque = decision.verdict == ConnectVerdict::kOpaqueTcp || decision.verdict == ConnectVerdict::kOpaqueTls;
  if (opaque && compiled_->any_via && !RouteOpaque(*compiled_, connection, layers, &decision.decision))
    return Deny(Reason::kInternal);
  if (decision.decision.reason == Reason::kNoRule) decision.decision.reason = WhyNoAllow(*compiled_, connection);
  if (decision.allowed() || compiled_->mode == Mode::kEnforce) return decision;
  if (GuardRefuses(layers, connection)) {
    decision.decision.reason = Reason::kPrivateAddress;
    return decision;
  }
  if (query.transport == Transport::kUdp) return decision;
  // Requests are worth seeing where there probably are some.
  decision.verdict = query.port == 443 || query.port == 80 ? ConnectVerdict::kInspect : ConnectVerdict::kOpaqueTcp;
  decision.decision.allowed = true;
  decision.decision.audit_only = true;
  decision.decision.via = compiled_->settings.proxy;
  return decision;
}

Decision Snapshot::DecideRequest(const RequestQuery& request) const noexcept {
  const ConnectQuery& query = request.connection;
  if (query.port == 0 || request.target == nullptr || NeverForwarded(request.method))
    return {false, Reason::kProtocol, RuleRef::kNone, false};
  if (query.host.empty() && !query.address) return {};
  if (request.upgrade == Upgrade::kNone)
    for (const auto& header : request.headers)
      if (header.first == "upgrade") return {false, Reason::kUnsupported, RuleRef::kNone, false};
  const ConnectionView connection(query);
  const RequestView view(request);
  BodyRules by_body(*compiled_, request, connection, view);
  Layers layers;
  Grant grant;  // by rules that look at no body
  uint32_t deny = kNoIndex;
  const bool routed = compiled_->settings.proxy != kNoIndex16;
  ForEachCandidate(*compiled_, query, [&](uint32_t i) {
    const Rule& rule = compiled_->rules[i];
    if (!rule.allow) {
      AddDeny(rule, i, connection, &layers);
      if (!IsInner(rule.verb) || !CoversPort(rule, query.port) || !DenyCoversProcess(rule, query.process) ||
          !DenyCoversAddress(rule, connection))
        return;
      const auto reading = view.DenyReading(rule);
      if (!reading) return;
      if (*reading == 0) {
        Keep(&deny, i);
      } else {
        by_body.AddDeny(i, *reading);
      }
      return;
    }
    if (!AddAllow(rule, i, connection, &layers) || !IsInner(rule.verb)) return;
    // A second allow says nothing new, unless it lays down more than that it allows.
    if (i > grant.rule && !routed && !rule.routes && !ReadsBody(rule)) return;
    if (!view.AllowCovers(rule)) return;
    if (const BodyKinds reading = ReadsBody(rule) ? view.AllowReading(rule) : BodyKinds{0}; reading != 0) {
      by_body.AddAllow(i, reading);
    } else {
      grant.Add(*compiled_, i);
    }
  });
  const bool tls = request.scheme == Scheme::kHttps;
  if (tls) Keep(&deny, layers.tls_deny);
  Keep(&deny, layers.outer_deny);
  // An opaque tuple includes every inner one (exact point 5).
  uint32_t opaque = layers.OpaqueTcp();
  if (opaque == kNoIndex && tls) opaque = layers.OpaqueTls();
  Decision decision;
  if (layers.outer_deny == kNoIndex && opaque != kNoIndex) {
    decision = {true, Reason::kAllowed, RuleRef{opaque}, false};
    if (compiled_->any_via && !RouteOpaque(*compiled_, connection, layers, &decision)) return {};
  } else if (deny != kNoIndex) {
    decision = {false, Reason::kDenyRule, RuleRef{deny}, false};
  } else {
    decision = JudgeBody(*compiled_, request, by_body, grant);
    if (decision.body_needed != 0) return decision;
    if (decision.reason == Reason::kNoRule) decision.reason = WhyNoAllow(*compiled_, connection, view);
  }
  if (decision.allowed || compiled_->mode == Mode::kEnforce) return decision;
  if (GuardRefuses(layers, connection)) {
    decision.reason = Reason::kPrivateAddress;
  } else {
    decision.allowed = decision.audit_only = true;
    decision.via = compiled_->settings.proxy;
  }
  return decision;
}

std::optional<Decision> Snapshot::DecideWay(const ConnectQuery& query) const noexcept {
  const ConnectionView connection(query);
  std::optional<Grant> common;
  bool one = true;
  const auto pins = [&](const Grant& grant) {
    return grant.pinned == kNoIndex ? std::span<const Pin>{} : std::span<const Pin>(compiled_->rules[grant.pinned].pins);
  };
  ForEachCandidate(*compiled_, query, [&](uint32_t i) {
    const Rule& rule = compiled_->rules[i];
    if (!rule.allow || !IsInner(rule.verb) || !AllowCoversConnection(rule, connection)) return;
    Grant grant;
    grant.Add(*compiled_, i);
    const bool certificate = grant.credential != kNoIndex16 &&
                             compiled_->credentials[grant.credential].send.kind == CredentialUse::Kind::kClientCertificate;
    if (!certificate) grant.credential = kNoIndex16;
    if (!common) common = grant;
    one = one && grant.Via(*compiled_) == common->Via(*compiled_) && grant.credential == common->credential &&
          std::ranges::equal(pins(grant), pins(*common));
  });
  Decision way{.allowed = true, .reason = Reason::kAllowed};
  way.via = compiled_->settings.proxy;
  if (common) {
    way.via = common->Via(*compiled_);
    way.credential = common->credential;
    way.pinned_by = RuleRef{common->pinned};
    way.rule = RuleRef{common->rule};
  }
  // What no rule allows, `mode: audit` sends by the way of the settings.
  if (compiled_->mode == Mode::kAudit)
    one = one && way.via == compiled_->settings.proxy && way.credential == kNoIndex16 && way.pinned_by == RuleRef::kNone;
  if (!one) return std::nullopt;
  return way;
}

bool Snapshot::IsLookedUpByProxy(std::string_view name) const noexcept {
  const auto sends = [&](uint16_t proxy) { return proxy != kNoIndex16 && !IsExcepted(compiled_->proxies[proxy], name, {}, 0); };
  if (compiled_->proxies.empty()) return false;
  const bool by_default = sends(compiled_->settings.proxy);
  bool found = by_default && compiled_->mode == Mode::kAudit;
  ForEachByName(*compiled_, name, [&](uint32_t i) {
    const Rule& rule = compiled_->rules[i];
    if (!rule.allow || !(IsInner(rule.verb) || rule.verb == Verb::kTls || rule.verb == Verb::kTcp)) return;
    found |= sends(rule.proxy) || (by_default && rule.proxy == kNoIndex16 && rule.ip.empty() && !rule.host.cidr);
  });
  return found;
}

NameDecision Snapshot::DecideName(const NameQuery& query) const noexcept {
  uint32_t allow = kNoIndex;
  uint32_t deny = kNoIndex;
  bool other_type = false;
  Closest closest;
  const auto judge = [&](uint32_t i) {
    const Rule& rule = compiled_->rules[i];
    const auto lists = [&](uint16_t type) { return std::find(rule.types.begin(), rule.types.end(), type) != rule.types.end(); };
    if (!rule.allow) {
      if (rule.verb == Verb::kDns && (rule.types.empty() || lists(query.type)) && DenyCoversProcess(rule, query.process))
        Keep(&deny, i);
      return;
    }
    Misses misses = 0;
    if (!AllowCoversProcess(rule, query.process)) misses |= kMissBinary;
    if (rule.until && query.now >= *rule.until) misses |= kMissExpired;
    const bool type = rule.verb == Verb::kDns ? lists(query.type) : query.type == kDnsA || query.type == kDnsAaaa;
    if (!type) {
      other_type |= misses == 0;
    } else if (misses == 0) {
      Keep(&allow, i);
    } else {
      closest.Offer(misses);
    }
  };
  if (!query.name.empty()) ForEachByName(*compiled_, query.name, judge);
  if (deny == kNoIndex && allow != kNoIndex) return {NameVerdict::kAllow, {true, Reason::kAllowed, RuleRef{allow}, false}};
  NameDecision decision{NameVerdict::kDeny, {false, Reason::kDns, RuleRef::kNone, false}};
  if (deny != kNoIndex) {
    decision.decision = {false, Reason::kDenyRule, RuleRef{deny}, false};
  } else if (closest.count == 1) {
    decision.decision.reason = closest.reason();
  }
  if (compiled_->mode == Mode::kAudit && !query.name.empty()) {
    decision.verdict = NameVerdict::kAllow;
    decision.decision.allowed = decision.decision.audit_only = true;
    return decision;
  }
  // NXDOMAIN speaks for every type and for all below the name (RFC 2308, RFC 8020): NODATA where that would say too much.
  if (other_type || IsAncestor(*compiled_, query.name)) decision.verdict = NameVerdict::kAncestor;
  return decision;
}

Decision Snapshot::DecideAnswer(const ConnectQuery& query) const noexcept {
  if (query.host.empty() || !query.address) return {};
  const ConnectionView connection(query);
  uint32_t allow = kNoIndex;
  ForEachCandidate(*compiled_, query, [&](uint32_t i) {
    const Rule& rule = compiled_->rules[i];
    if (rule.allow && (ConnectionMisses(rule, connection) & ~Misses{kMissPort}) == 0) Keep(&allow, i);
  });
  if (allow != kNoIndex) return {true, Reason::kAllowed, RuleRef{allow}, false};
  // `mode: audit` is stopped by the address guard alone (exact point 19).
  const bool audited = compiled_->mode == Mode::kAudit && !connection.special;
  return {audited, Reason::kPrivateAddress, RuleRef::kNone, audited};
}

Decision Snapshot::DecideUnix(const UnixQuery& query) const noexcept {
  uint32_t allow = kNoIndex;
  uint32_t deny = kNoIndex;
  Closest closest;
  for (const uint32_t i : compiled_->sockets) {
    const Rule& rule = compiled_->rules[i];
    const bool path = rule.paths.empty() ||
                      std::any_of(rule.paths.begin(), rule.paths.end(), [&](const Glob& g) { return g.Matches(query.path); });
    if (!path) continue;
    if (!rule.allow) {
      if (DenyCoversProcess(rule, query.process)) Keep(&deny, i);
      continue;
    }
    Misses misses = 0;
    if (!AllowCoversProcess(rule, query.process)) misses |= kMissBinary;
    if (rule.until && query.now >= *rule.until) misses |= kMissExpired;
    if (misses == 0) {
      Keep(&allow, i);
    } else {
      closest.Offer(misses);
    }
  }
  Decision decision{false, closest.reason(), RuleRef::kNone, false};
  if (deny != kNoIndex) {
    decision = {false, Reason::kDenyRule, RuleRef{deny}, false};
  } else if (allow != kNoIndex) {
    return {true, Reason::kAllowed, RuleRef{allow}, false};
  }
  if (compiled_->mode == Mode::kAudit && query.path.starts_with('/')) decision.allowed = decision.audit_only = true;
  return decision;
}

}  // namespace sluice::policy
