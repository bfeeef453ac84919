#include "app/fence_allows.h"

#include <algorithm>

#include "policy/address.h"
#include "policy/compiled.h"

namespace sluice::app {
namespace {

using policy::HostPattern;
using policy::Rule;
using policy::Verb;

bool Holds(const Rule& rule, WallTime now) { return !rule.until || now < *rule.until; }

bool PortsMeet(const Rule& allow, const Rule& deny) {
  if (deny.ports.empty()) return true;
  return std::ranges::any_of(deny.ports, [&](const policy::PortRange& theirs) {
    return std::ranges::any_of(
        allow.ports, [&](const policy::PortRange& ours) { return theirs.first <= ours.last && ours.first <= theirs.last; });
  });
}

// Whether the deny may refuse something of what the allow lets out: process, name and time are beyond what the kernel sees, so
// that a deny which speaks of them counts in full.
bool MayRefuse(const Rule& deny, const Rule& allow, WallTime now) {
  if (deny.allow || !Holds(deny, now) || deny.verb == Verb::kUnix || deny.verb == Verb::kDns) return false;
  if ((deny.verb == Verb::kUdp) != (allow.verb == Verb::kUdp)) return false;
  if (deny.host.kind == HostPattern::Kind::kAddress && !deny.host.cidr->Contains(*allow.host.cidr) &&
      !allow.host.cidr->Contains(*deny.host.cidr))
    return false;
  return PortsMeet(allow, deny);
}

// The address guard treats all of it alike, and the rule opens it.
bool IsUniform(const Cidr& prefix) {
  const auto edges = policy::SpecialRangeEdges();
  if (std::ranges::any_of(edges, [&](const IpAddress& edge) { return edge != prefix.base() && prefix.Contains(edge); }))
    return false;
  const auto special = policy::FindSpecialRange(prefix.base(), {});
  return !special || special->range.Contains(prefix);
}

bool SeenByKernel(const Rule& rule, const policy::Snapshot::Compiled& compiled, WallTime now) {
  const bool plain = rule.by.empty() && rule.under.empty() && rule.ip.empty() && !rule.routes;
  if (!plain || !IsUniform(*rule.host.cidr)) return false;
  return std::ranges::none_of(compiled.rules, [&](const Rule& deny) { return MayRefuse(deny, rule, now); });
}

// As the address guard has it: an entry that lies in the special range opens what it holds.
bool IsWrittenOut(const Cidr& address, const policy::Snapshot::Compiled& compiled) {
  const auto special = policy::FindSpecialRange(address.base(), {});
  const auto opens = [&](const Cidr& entry) { return entry.Contains(address) && (!special || special->range.Contains(entry)); };
  return std::ranges::any_of(compiled.rules, [&](const Rule& rule) {
    const bool by_host = rule.host.kind == HostPattern::Kind::kAddress && opens(*rule.host.cidr);
    return rule.allow && (by_host || std::ranges::any_of(rule.ip, opens));
  });
}

}  // namespace

FenceAllows FenceAllowsFor(const policy::Snapshot& snapshot, WallTime now) {
  FenceAllows allows;
  const policy::Snapshot::Compiled& compiled = snapshot.compiled();
  for (const Cidr& address : supervisor::MetadataAddresses())
    if (!IsWrittenOut(address, compiled)) allows.deny.push_back(address);
  for (uint32_t i = 0; i < compiled.rules.size(); ++i) {
    const Rule& rule = compiled.rules[i];
    // A rule of any kind that ends may change what the kernel is to pass: a deny, too.
    if (rule.until && now < *rule.until) allows.until = std::min(allows.until.value_or(*rule.until), *rule.until);
    const bool by_address = rule.allow && (rule.verb == Verb::kTcp || rule.verb == Verb::kUdp) &&
                            rule.host.kind == HostPattern::Kind::kAddress && Holds(rule, now);
    if (!by_address) continue;
    if (!SeenByKernel(rule, compiled, now)) {
      (rule.verb == Verb::kUdp ? allows.impossible : allows.left_to_proxy).push_back(policy::RuleRef{i});
      continue;
    }
    const auto protocol = rule.verb == Verb::kUdp ? nft::Protocol::kUdp : nft::Protocol::kTcp;
    for (const policy::PortRange& range : rule.ports)
      allows.allow.push_back({*rule.host.cidr, protocol, range.first, range.last});
  }
  return allows;
}

}  // namespace sluice::app
