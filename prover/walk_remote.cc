// Names that an upstream proxy looks up. The connection is then judged for an address that nobody knows: denies that speak of
// addresses all hold, and no allow that does (docs/policy-language.md, "Upstream proxies and pins").

#include <algorithm>

#include "prover/walk.h"

namespace sluice::prover {

using policy::Rule;
using policy::Verb;

namespace {

bool AllowHolds(const Rule& allow, const policy::ConnectionView& view) {
  return (!allow.host.cidr || policy::Holds(*allow.host.cidr, *view.query.address)) && policy::AllowCoversAddress(allow, view);
}

bool DenyHolds(const Rule& deny, const policy::ConnectionView& view) {
  return deny.verb == Verb::kDns ? policy::DnsDenyCloses(deny, view.query) : policy::DenyCoversAddress(deny, view);
}

}  // namespace

bool Walk::MayBeRemote(size_t side, const Cell& cell) const {
  return sides_[side] != nullptr && !cell.host.empty() && sides_[side]->ways.any_proxy();
}

RuleNumbers Walk::JudgedAt(const Side& side, const RuleNumbers& covering, const policy::ConnectQuery& query) {
  const policy::ConnectionView known(query);
  policy::ConnectQuery open = query;
  open.address.reset();
  open.remote = true;
  const policy::ConnectionView unknown(open);
  const Unread unread = UnreadAt(side, query);
  const auto by_proxy = [&](uint32_t i) {
    const Rule& rule = side.rules()[i];
    // Bytes that pass go one way, whatever proxy each rule of them names.
    if (!policy::IsInner(rule.verb))
      return unread.tls ? unread.by_proxy && policy::AllowCoversConnection(rule, unknown) : GoesByProxy(side, i, query);
    const bool passes = rule.scheme == policy::Scheme::kHttp ? unread.tcp : unread.tls;
    return GoesByProxy(side, i, query) && (!passes || unread.by_proxy);
  };
  bool proxied = AuditGoesByProxy(side, query);
  bool direct = side.audit() && !proxied;
  bool by_address = false;
  for (const uint32_t i : covering) {
    const Rule& rule = side.rules()[i];
    if (!rule.allow || rule.verb == Verb::kUdp) continue;
    (by_proxy(i) ? proxied : direct) = true;
    by_address |= !rule.ip.empty() || rule.host.cidr.has_value();
  }
  RuleNumbers here;
  RuleNumbers remote;
  bool datagrams = false;
  // Its credential or its pins go with requests that another rule sends through a proxy, and with none that go directly.
  bool joins = false;
  bool families = false;  // a lookup of one family is denied, and a datagram goes to that of its address
  for (const uint32_t i : covering) {
    const Rule& rule = side.rules()[i];
    const bool at_address = rule.allow ? AllowHolds(rule, known) : DenyHolds(rule, known);
    // No proxy carries datagrams.
    const bool nowhere = rule.verb == Verb::kUdp ? at_address
                         : rule.allow            ? by_proxy(i)
                                                 : !rule.host.cidr && DenyHolds(rule, unknown);
    const bool binds = rule.credential != policy::kNoIndex16 || !rule.pins.empty();
    joins |= ways_ && rule.allow && binds && !at_address && !nowhere && policy::AllowCoversAddress(rule, unknown);
    datagrams |= rule.allow && rule.verb == Verb::kUdp && at_address;
    families |= rule.verb == Verb::kDns && at_address != nowhere;
    // An allow is on both sides of the question.
    if (at_address || (rule.allow && nowhere)) here.push_back(i);
    if (nowhere || (rule.allow && at_address)) remote.push_back(i);
  }
  if (!proxied) return here;
  const auto& proxies = side.snapshot->proxies();
  const bool excepts = std::any_of(proxies.begin(), proxies.end(), [](const auto& proxy) { return !proxy.except.empty(); });
  if (by_address || (datagrams && families) || joins || (here != remote && (direct || excepts)))
    budget_->Exhaust("a rule by address meets what goes through an upstream proxy");
  return remote;
}

}  // namespace sluice::prover
