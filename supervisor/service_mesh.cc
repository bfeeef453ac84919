#include "supervisor/service_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string_view>
#include <vector>

namespace sluice::supervisor {
namespace {

struct Known {
  const char* name;
  std::array<std::string_view, 2> prefixes;  ///< of chains that iptables makes, and of the mesh's own nftables
  std::array<uint16_t, 2> ports;             ///< for what leaves the pod, and for what comes
  uint32_t user;                             ///< whom its proxy runs as, where nobody chose another
  const char* advice;
};

constexpr std::array kMeshes = {
    Known{"Istio",
          {"ISTIO_", "istio-"},
          {15001, 15006},
          1337,
          "leave Sluice's own dials out of it, by the annotation traffic.sidecar.istio.io/excludeOutboundIPRanges: "
          "\"0.0.0.0/0,::/0\" on the pod, or the pod, by sidecar.istio.io/inject: \"false\""},
    Known{
        "Linkerd",
        {"PROXY_INIT_", "linkerd-"},
        {4140, 4143},
        2102,
        "leave Sluice's own dials out of it, by the annotation config.linkerd.io/skip-outbound-ports: \"1-65535\" on the pod, or "
        "the pod, by linkerd.io/inject: disabled"},
};

// Who listens on both of its ports. One of them alone may be anybody's, and so are two that are not one's.
std::optional<uint32_t> ProxyUser(const Known& mesh, std::span<const ListeningPort> listening) {
  std::array<std::set<uint32_t>, 2> users;
  for (const ListeningPort& each : listening)
    for (size_t i = 0; i < users.size(); ++i)
      if (each.port == mesh.ports[i]) users[i].insert(each.user);
  std::vector<uint32_t> both;
  std::ranges::set_intersection(users[0], users[1], std::back_inserter(both));
  if (both.empty()) return std::nullopt;
  return std::ranges::find(both, mesh.user) != both.end() ? mesh.user : both.front();
}

}  // namespace

std::optional<ServiceMesh> KnownMesh(std::span<const nft::ChainName> chains, std::span<const ListeningPort> listening) {
  for (const Known& mesh : kMeshes)
    for (const nft::ChainName& name : chains)
      if (std::ranges::any_of(mesh.prefixes, [&](std::string_view prefix) { return name.chain.starts_with(prefix); }))
        return ServiceMesh{mesh.name, fmt::format("chain {} of table {}", name.chain, name.table), mesh.advice};
  for (const Known& mesh : kMeshes) {
    const auto user = ProxyUser(mesh, listening);
    if (!user) continue;
    const std::string usual =
        *user == mesh.user ? ", as its proxy is" : fmt::format(", and its proxy usually is user {}", mesh.user);
    return ServiceMesh{mesh.name, fmt::format("user {} listens on ports {} and {}{}", *user, mesh.ports[0], mesh.ports[1], usual),
                       mesh.advice};
  }
  return std::nullopt;
}

}  // namespace sluice::supervisor
