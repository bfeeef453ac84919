#include "supervisor/service_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace sluice::supervisor {
namespace {

struct Known {
  const char* name;
  std::array<std::string_view, 2> prefixes;  ///< of chains that iptables makes, and of the mesh's own nftables
  std::array<uint16_t, 2> ports;             ///< for what leaves the pod, and for what comes
  const char* advice;
};

constexpr std::array kMeshes = {
    Known{"Istio",
          {"ISTIO_", "istio-"},
          {15001, 15006},
          "leave Sluice's own dials out of it, by the annotation traffic.sidecar.istio.io/excludeOutboundIPRanges: "
          "\"0.0.0.0/0,::/0\" on the pod, or the pod, by sidecar.istio.io/inject: \"false\""},
    Known{
        "Linkerd",
        {"PROXY_INIT_", "linkerd-"},
        {4140, 4143},
        "leave Sluice's own dials out of it, by the annotation config.linkerd.io/skip-outbound-ports: \"1-65535\" on the pod, or "
        "the pod, by linkerd.io/inject: disabled"},
};

}  // namespace

std::optional<ServiceMesh> KnownMesh(std::span<const nft::ChainName> chains, std::span<const uint16_t> listening) {
  for (const Known& mesh : kMeshes)
    for (const nft::ChainName& name : chains)
      if (std::ranges::any_of(mesh.prefixes, [&](std::string_view prefix) { return name.chain.starts_with(prefix); }))
        return ServiceMesh{mesh.name, fmt::format("chain {} of table {}", name.chain, name.table), mesh.advice};
  // One of them alone may be anybody's.
  for (const Known& mesh : kMeshes)
    if (std::ranges::all_of(mesh.ports, [&](uint16_t port) { return std::ranges::find(listening, port) != listening.end(); }))
      return ServiceMesh{mesh.name, fmt::format("ports {} and {} are listened on", mesh.ports[0], mesh.ports[1]), mesh.advice};
  return std::nullopt;
}

}  // namespace sluice::supervisor
