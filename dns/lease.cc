#include "dns/lease.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "dns/chain.h"
#include "dns/upstream_server.h"
#include "policy/index.h"

namespace sluice::dns {
namespace {

using policy::Rule;
using policy::Transport;
using policy::Verb;

bool NeedsProcess(const Rule& rule) { return !rule.by.empty() || !rule.under.empty(); }

size_t Width(const policy::PortRange& range) { return static_cast<size_t>(range.last - range.first) + 1; }

// Ports that some opaque allow of the connection names, each once.
struct Ports {
  std::array<uint16_t, kMaxLeasePorts> ports{};
  size_t count = 0;

  void Add(const policy::PortRange& range) {
    if (Width(range) > kMaxLeaseRange) return;
    for (size_t port = range.first; port <= range.last && count < ports.size(); ++port) {
      const auto number = static_cast<uint16_t>(port);
      const auto end = ports.begin() + static_cast<std::ptrdiff_t>(count);
      if (number != kDnsPort && std::find(ports.begin(), end, number) == end) ports[count++] = number;
    }
  }
};

// The kernel cannot tell processes or names apart, so the question is asked for an unknown process: that matches no allow with
// `by`, and every deny.
bool IsOpaque(const policy::Snapshot& snapshot, const policy::ConnectQuery& query) {
  const policy::ConnectDecision decided = snapshot.DecideConnect(query);
  return decided.verdict == policy::ConnectVerdict::kOpaqueTcp && decided.decision.allowed && !decided.decision.audit_only &&
         decided.decision.via == policy::kNoIndex16;
}

void AddLeases(const policy::Snapshot& snapshot, policy::ConnectQuery query, Leases* out) {
  const auto& compiled = snapshot.compiled();
  Ports tcp;
  Ports udp;
  policy::ForEachCandidate(compiled, query, [&](uint32_t i) {
    const Rule& rule = compiled.rules[i];
    if (!rule.allow || (rule.verb != Verb::kTcp && rule.verb != Verb::kUdp) || NeedsProcess(rule)) return;
    if (rule.until && *rule.until > query.now && (!out->until || *rule.until < *out->until)) out->until = rule.until;
    for (const policy::PortRange& range : rule.ports) (rule.verb == Verb::kTcp ? tcp : udp).Add(range);
  });
  for (const auto& [transport, ports] : {std::pair(Transport::kTcp, &tcp), std::pair(Transport::kUdp, &udp)}) {
    query.transport = transport;
    for (size_t i = 0; i < ports->count; ++i) {
      query.port = ports->ports[i];
      if (IsOpaque(snapshot, query)) out->leases.push_back({*query.address, transport, query.port});
    }
  }
}

}  // namespace

Leases LeasesFor(const policy::Snapshot& snapshot, std::string_view canonical_name, std::span<const IpAddress> addresses,
                 WallTime now, std::span<const IpAddress> host_addresses) {
  Leases out;
  policy::ConnectQuery query{.host = canonical_name, .now = now, .host_addresses = host_addresses};
  for (const IpAddress& address : addresses.first(std::min(addresses.size(), kMaxAddresses))) {
    query.address = address;
    AddLeases(snapshot, query, &out);
  }
  std::ranges::sort(out.leases);
  const auto [first, last] = std::ranges::unique(out.leases);
  out.leases.erase(first, last);
  return out;
}

std::string WhyUnleasable(const policy::Snapshot& snapshot, policy::RuleRef ref) {
  const auto index = static_cast<size_t>(ref);
  if (index >= snapshot.compiled().rules.size()) return {};
  const Rule& rule = snapshot.compiled().rules[index];
  if (!rule.allow || rule.verb != Verb::kUdp) return {};
  if (NeedsProcess(rule)) return "UDP passes in the kernel, which knows no process: leave `by` and `under` out";
  if (rule.host.kind == policy::HostPattern::Kind::kAddress) return {};
  if (rule.host.kind == policy::HostPattern::Kind::kAny)
    return "UDP passes in the kernel by address: name the hosts, or a prefix such as 192.0.2.0/24";
  size_t ports = 0;
  for (const policy::PortRange& range : rule.ports) {
    ports += Width(range);
    if (Width(range) > kMaxLeaseRange || ports > kMaxLeasePorts)
      return fmt::format("UDP to a name has at most {} ports; name them, or allow the range to a prefix", kMaxLeasePorts);
  }
  return {};
}

}  // namespace sluice::dns
