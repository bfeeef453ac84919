#include "proxy/io/route.h"

#include <algorithm>

#include "policy/compiled.h"
#include "policy/no_proxy.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

bool IsClientCertificate(const policy::Credential& credential) {
  return credential.send.kind == policy::CredentialUse::Kind::kClientCertificate;
}

// The rule's or the policy's proxy, unless it excepts the target.
ProxyPtr ProxyFor(const policy::SnapshotPtr& snapshot, uint16_t via, const DialTarget& target) {
  if (via >= snapshot->proxies().size()) return nullptr;
  const policy::UpstreamProxy& proxy = snapshot->proxies()[via];
  if (policy::IsExcepted(proxy, target.name, target.literal, target.port)) return nullptr;
  return {snapshot, &proxy};
}

void TakeWay(const policy::SnapshotPtr& snapshot, const policy::Decision& decision, DialTarget* target) {
  target->via = ProxyFor(snapshot, decision.via, *target);
  target->via_use = ViaUse::kTunnel;
  const auto pins = snapshot->pins(decision.pinned_by);
  target->pins.assign(pins.begin(), pins.end());
  target->certificate.reset();
  if (decision.credential >= snapshot->credentials().size()) return;
  const policy::Credential& credential = snapshot->credentials()[decision.credential];
  if (IsClientCertificate(credential)) target->certificate = CredentialPtr(snapshot, &credential);
}

}  // namespace

bool RouteConnection(Worker& worker, const FlowTarget& flow, const policy::ConnectDecision& decision, DialTarget* target) {
  if (!worker.has_ways()) return true;
  if (decision.verdict == policy::ConnectVerdict::kInspect)
    return RouteInspectedTls(worker, flow, target) && target->via == nullptr;
  TakeWay(worker.snapshot(), decision.decision, target);
  if (decision.verdict == policy::ConnectVerdict::kOpaqueTcp) target->early = DialTarget::EarlyBytes::kKept;
  return true;
}

bool RouteInspectedTls(Worker& worker, const FlowTarget& flow, DialTarget* target) {
  if (!worker.has_ways()) return true;
  const policy::SnapshotPtr snapshot = worker.snapshot();
  const auto way = snapshot->DecideWay(QueryFor(worker, flow, std::nullopt));
  if (!way) return false;
  TakeWay(snapshot, *way, target);
  return true;
}

void RouteRequest(Worker& worker, policy::Scheme scheme, const policy::Decision& decision, DialTarget* target) {
  TakeWay(worker.snapshot(), decision, target);
  if (scheme == policy::Scheme::kHttp) target->via_use = ViaUse::kForward;
}

void RouteOwn(Worker& worker, DialTarget* target) {
  const policy::SnapshotPtr& snapshot = worker.snapshot();
  target->via = ProxyFor(snapshot, snapshot->settings().proxy, *target);
}

bool HasWays(const policy::Snapshot& snapshot) {
  return !snapshot.proxies().empty() || std::ranges::any_of(snapshot.credentials(), IsClientCertificate) ||
         std::ranges::any_of(snapshot.compiled().rules, [](const policy::Rule& rule) { return !rule.pins.empty(); });
}

}  // namespace sluice::proxy
