// By what a service mesh is told.

#include "supervisor/service_mesh.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::supervisor {
namespace {

TEST(ServiceMesh, IsToldByItsChainsOrByOneUserOnBothOfItsPorts) {
  struct Case {
    const char* what;
    std::vector<nft::ChainName> chains;
    std::vector<ListeningPort> listening;
    const char* name;  ///< empty: none
    const char* sign;
    const char* advice;
  };
  const std::vector<Case> cases = {
      {"nobody", {{"nat", "OUTPUT"}, {"sluice", "outgoing"}}, {{22, 0}, {53, 0}}, "", "", ""},
      {"Istio by iptables",
       {{"nat", "OUTPUT"}, {"nat", "ISTIO_REDIRECT"}},
       {},
       "Istio",
       "chain ISTIO_REDIRECT of table nat",
       "excludeOutboundIPRanges: \"0.0.0.0/0,::/0\""},
      {"Istio by nftables", {{"istio-proxy-nat", "istio-output"}}, {}, "Istio", "istio-output", "inject"},
      {"Istio by its proxy, as with iptables-legacy",
       {},
       {{8080, 5}, {15006, 1337}, {15001, 1337}},
       "Istio",
       "user 1337 listens on ports 15001 and 15006, as its proxy is",
       "inject"},
      {"another user's",
       {},
       {{15001, 1000}, {15006, 1000}},
       "Istio",
       "user 1000 listens on ports 15001 and 15006, and its proxy usually is user 1337",
       "inject"},
      {"the proxy's beside another's",
       {},
       {{15001, 1337}, {15001, 0}, {15006, 0}, {15006, 1337}},
       "Istio",
       "user 1337",
       "inject"},
      {"two users", {}, {{15001, 1000}, {15006, 1337}}, "", "", ""},
      {"one of its ports", {}, {{15001, 1337}}, "", "", ""},
      {"Linkerd", {{"nat", "PROXY_INIT_OUTPUT"}}, {}, "Linkerd", "chain PROXY_INIT_OUTPUT", "skip-outbound-ports: \"1-65535\""},
      {"Linkerd by its proxy",
       {},
       {{4143, 2102}, {4191, 2102}, {4140, 2102}},
       "Linkerd",
       "ports 4140 and 4143, as its",
       "linkerd.io/inject: disabled"},
  };
  for (const Case& c : cases) {
    const auto mesh = KnownMesh(c.chains, c.listening);
    ASSERT_EQ(mesh.has_value(), c.name[0] != '\0') << c.what;
    if (!mesh) continue;
    EXPECT_EQ(mesh->name, c.name) << c.what;
    EXPECT_NE(mesh->sign.find(c.sign), std::string::npos) << c.what << ": " << mesh->sign;
    EXPECT_NE(mesh->advice.find(c.advice), std::string::npos) << c.what << ": " << mesh->advice;
  }
}

}  // namespace
}  // namespace sluice::supervisor
