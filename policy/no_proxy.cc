#include "policy/no_proxy.h"

#include <algorithm>

namespace sluice::policy {
namespace {

bool HostMatches(const HostPattern& host, std::string_view name, const IpAddress& literal) {
  using Kind = HostPattern::Kind;
  if (host.kind == Kind::kAny) return true;
  if (host.kind == Kind::kAddress) return name.empty() && host.cidr && host.cidr->Contains(literal);
  return !name.empty() && HostMatchesName(host, name, true);
}

bool PortMatches(const std::vector<PortRange>& ports, uint16_t port) {
  return ports.empty() || std::any_of(ports.begin(), ports.end(),
                                      [port](const PortRange& range) { return range.first <= port && port <= range.last; });
}

}  // namespace

bool IsExcepted(const UpstreamProxy& proxy, std::string_view name, const IpAddress& literal, uint16_t port) {
  return std::any_of(proxy.except.begin(), proxy.except.end(), [&](const UpstreamProxy::Except& except) {
    return PortMatches(except.ports, port) && (!except.host || HostMatches(*except.host, name, literal));
  });
}

}  // namespace sluice::policy
