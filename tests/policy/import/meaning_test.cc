// What the imported policies let through, asked of the same decisions that the enforcer asks.
#include <gmock/gmock.h>

#include "../support.h"
#include "policy/compiled.h"
#include "policy/io/foreign.h"

namespace sluice::policy {
namespace {

Process Running(const std::string& exe, std::vector<std::string> ancestors = {}) {
  Process process;
  process.exe = {exe, true, {}};
  for (std::string& path : ancestors) process.ancestors.push_back({std::move(path), true, {}});
  return process;
}

bool Connects(const SnapshotPtr& policy, const Process& who, std::string_view host, uint16_t port,
              const char* address = nullptr) {
  ConnectQuery query = To(host, port, address);
  query.process = &who;
  return policy->DecideConnect(query).allowed();
}

bool Sends(const SnapshotPtr& policy, const Process& who, std::string_view method, std::string_view host, std::string_view path,
           uint16_t port = 443) {
  ConnectQuery query = To(host, port);
  query.process = &who;
  Request request(method, query, path, port == 80 ? Scheme::kHttp : Scheme::kHttps);
  return policy->DecideRequest(request.Get()).allowed;
}

std::string OpenShell(const std::string& endpoint, const std::string& binaries = "[{ path: /usr/bin/curl }]") {
  return "version: 1\nnetwork_policies:\n  a:\n    endpoints:\n      - " + endpoint + "\n    binaries: " + binaries + "\n";
}

const Process kCurl = Running("/usr/bin/curl");
const Process kSh = Running("/bin/sh");

TEST(OpenShellMeaning, BinariesAreThemselvesAndWhatTheyStart) {
  const auto policy = Loaded(OpenShell("{ host: a.example.com, port: 443 }"));
  EXPECT_TRUE(Connects(policy, kCurl, "a.example.com", 443));
  EXPECT_TRUE(Connects(policy, Running("/bin/sh", {"/usr/bin/make", "/usr/bin/curl"}), "a.example.com", 443));
  EXPECT_FALSE(Connects(policy, kSh, "a.example.com", 443));
  EXPECT_FALSE(Connects(policy, kCurl, "a.example.com", 8443));
  EXPECT_FALSE(Connects(policy, kCurl, "b.a.example.com", 443));
}

TEST(OpenShellMeaning, NoBinariesNoReach) {
  const auto policy = Loaded(OpenShell("{ host: a.example.com, port: 443 }", "[]"));
  EXPECT_TRUE(policy->rules().empty());
  EXPECT_FALSE(Connects(policy, kCurl, "a.example.com", 443));
}

TEST(OpenShellMeaning, WildcardsAreOneLabelOrAnyDepthAndNeverTheApex) {
  const auto one = Loaded(OpenShell("{ host: \"*.example.com\", port: 443 }"));
  EXPECT_TRUE(Connects(one, kCurl, "a.example.com", 443));
  EXPECT_FALSE(Connects(one, kCurl, "b.a.example.com", 443));
  EXPECT_FALSE(Connects(one, kCurl, "example.com", 443));
  const auto deep = Loaded(OpenShell("{ host: \"**.example.com\", port: 443 }"));
  EXPECT_TRUE(Connects(deep, kCurl, "b.a.example.com", 443));
  EXPECT_FALSE(Connects(deep, kCurl, "example.com", 443));
}

TEST(OpenShellMeaning, PresetsAreTheirMethods) {
  const std::string rest = "{ host: a.example.com, port: 443, protocol: rest, enforcement: enforce, access: ";
  const auto reads = Loaded(OpenShell(rest + "read-only }"));
  const auto writes = Loaded(OpenShell(rest + "read-write }"));
  const auto full = Loaded(OpenShell(rest + "full }"));
  for (const char* method : {"GET", "HEAD", "OPTIONS"}) EXPECT_TRUE(Sends(reads, kCurl, method, "a.example.com", "/x")) << method;
  for (const char* method : {"POST", "PUT", "PATCH"}) {
    EXPECT_FALSE(Sends(reads, kCurl, method, "a.example.com", "/x")) << method;
    EXPECT_TRUE(Sends(writes, kCurl, method, "a.example.com", "/x")) << method;
  }
  EXPECT_FALSE(Sends(writes, kCurl, "DELETE", "a.example.com", "/x"));
  EXPECT_TRUE(Sends(full, kCurl, "DELETE", "a.example.com", "/x"));
  EXPECT_TRUE(Sends(full, kCurl, "PROPFIND", "a.example.com", "/x"));
}

TEST(OpenShellMeaning, AuditLeftOutOrWrittenIsTheWholeConnection) {
  const std::string rest = "{ host: a.example.com, port: 443, protocol: rest, access: read-only";
  for (const char* end : {" }", ", enforcement: audit }", ", enforcement: enforce, tls: skip }"}) {
    const auto policy = Loaded(OpenShell(rest + end));
    EXPECT_TRUE(Sends(policy, kCurl, "DELETE", "a.example.com", "/x")) << end;
    ConnectQuery query = To("a.example.com", 443);
    query.process = &kCurl;
    EXPECT_EQ(policy->DecideConnect(query).verdict, ConnectVerdict::kOpaqueTcp) << end;
    bool wider = false;
    for (const Finding& remark : policy->compiled().remarks) wider |= remark.code == "import-wider";
    EXPECT_TRUE(wider) << end;
  }
  const auto enforced = Loaded(OpenShell(rest + ", enforcement: enforce }"));
  EXPECT_FALSE(Sends(enforced, kCurl, "DELETE", "a.example.com", "/x"));
}

TEST(OpenShellMeaning, DeniesBeatAllowsWhoeverAsks) {
  const auto policy = Loaded(OpenShell(
      "{ host: a.example.com, port: 443, protocol: rest, enforcement: enforce, access: full, "
      "deny_rules: [{ method: POST, path: \"/repos/*/hooks\" }, { method: GET, path: \"**\", query: { q: \"x*\" } }] }"));
  EXPECT_TRUE(Sends(policy, kCurl, "POST", "a.example.com", "/repos/a/issues"));
  EXPECT_FALSE(Sends(policy, kCurl, "POST", "a.example.com", "/repos/a/hooks"));
  EXPECT_FALSE(Sends(policy, Running("/bin/sh", {"/usr/bin/curl"}), "POST", "a.example.com", "/repos/a/hooks"));
  EXPECT_FALSE(Sends(policy, kCurl, "GET", "a.example.com", "/?q=y&q=xy"));
  EXPECT_TRUE(Sends(policy, kCurl, "GET", "a.example.com", "/?q=y"));
}

TEST(OpenShellMeaning, AnInspectedEndpointTakesWhatAnOpaqueOneBesideItGives) {
  const std::string both =
      "version: 1\nnetwork_policies:\n  a:\n    endpoints:\n      - { host: a.example.com, port: 443 }\n"
      "      - { host: a.example.com, port: 443, protocol: rest, enforcement: enforce, access: read-only }\n"
      "    binaries: [{ path: /usr/bin/curl }]\n";
  const auto policy = Loaded(both);
  EXPECT_TRUE(Sends(policy, kCurl, "GET", "a.example.com", "/x"));
  EXPECT_FALSE(Sends(policy, kCurl, "DELETE", "a.example.com", "/x"));
}

TEST(OpenShellMeaning, AddressesConstrainAndUnlock) {
  const auto policy = Loaded(OpenShell("{ host: a.example.com, port: 443, allowed_ips: [10.1.0.0/16] }"));
  EXPECT_TRUE(Connects(policy, kCurl, "a.example.com", 443, "10.1.2.3"));
  EXPECT_FALSE(Connects(policy, kCurl, "a.example.com", 443, "10.2.2.3"));
  EXPECT_FALSE(Connects(policy, kCurl, "a.example.com", 443, "1.1.1.1"));
  const auto open = Loaded(OpenShell("{ host: a.example.com, port: 443 }"));
  EXPECT_TRUE(Connects(open, kCurl, "a.example.com", 443, "1.1.1.1"));
  EXPECT_FALSE(Connects(open, kCurl, "a.example.com", 443, "10.1.2.3"));
  const auto metadata = Loaded(OpenShell("{ host: 169.254.169.254, port: 80 }"));
  EXPECT_FALSE(Connects(metadata, kCurl, "", 80, "169.254.169.254"));
}

std::string Digest(const std::string& endpoint) { return Loaded(OpenShell(endpoint))->digest(); }

// Changes that another prover does not see: here each is another policy.
TEST(OpenShellMeaning, EveryWideningChangesTheRules) {
  const std::string head = "{ host: a.example.com, port: 443";
  const std::string rest = head + ", protocol: rest, enforcement: enforce";
  const std::string seven = "rules: [{ allow: { method: GET, path: \"**\" } }, { allow: { method: POST, path: \"**\" } }]";
  const std::pair<std::string, std::string> kPairs[] = {
      {rest + ", access: read-write }", head + " }"},
      {rest + ", access: read-only }", rest + ", access: read-write }"},
      {rest + ", access: read-only }", head + ", protocol: rest, enforcement: audit, access: read-only }"},
      {rest + ", access: read-only }", head + ", protocol: rest, access: read-only }"},
      {rest + ", access: read-only }", rest + ", access: read-only, tls: skip }"},
      {rest + ", access: read-only }", rest + ", access: read-only, allow_encoded_slash: true }"},
      {rest + ", rules: [{ allow: { method: POST, path: /a } }] }",
       rest + ", rules: [{ allow: { method: POST, path: \"/**\" } }] }"},
      {rest + ", rules: [{ allow: { method: GET, path: /a, query: { q: x } } }] }",
       rest + ", rules: [{ allow: { method: GET, path: /a } }] }"},
      {rest + ", " + seven + " }", rest + ", rules: [{ allow: { method: \"*\", path: \"**\" } }] }"},
      {rest + ", rules: [{ allow: { method: GET, path: \"**\" } }] }",
       rest + ", rules: [{ allow: { method: GET, path: \"**\" } }, { allow: { method: MKCOL, path: \"**\" } }] }"},
      {rest + ", access: full, deny_rules: [{ method: DELETE, path: \"**\" }] }", rest + ", access: full }"},
      {head + ", allowed_ips: [10.0.0.1/32] }", head + ", allowed_ips: [10.0.0.0/8] }"},
      {head + " }", "{ host: \"*.example.com\", port: 443 }"},
      {"{ host: \"*.example.com\", port: 443 }", "{ host: \"**.example.com\", port: 443 }"},
      {head + " }", "{ host: a.example.com, ports: [443, 8443] }"},
      {rest + ", path: /admin, access: full }", rest + ", path: \"/admin/**\", access: full }"},
  };
  for (const auto& [base, changed] : kPairs) EXPECT_NE(Digest(base), Digest(changed)) << base << "\n" << changed;
}

TEST(OpenShellMeaning, OtherSpellingsAreTheSameRules) {
  const std::string rest = ", protocol: rest, enforcement: enforce";
  const std::pair<std::string, std::string> kPairs[] = {
      {"{ host: a.example.com, port: 443 }", "{ host: A.Example.COM, ports: [443] }"},
      {"{ host: a.example.com, port: 443 }", "{ host: a.example.com, port: 443, protocol: tcp }"},
      {"{ host: a.example.com, port: 443 }", "{ host: a.example.com, port: 443, enforcement: enforce }"},
      {"{ host: a.example.com, port: 443" + rest + ", access: full }",
       "{ host: a.example.com, port: 443" + rest + ", rules: [{ allow: { method: \"*\", path: \"**\" } }] }"},
      {"{ host: a.example.com, port: 443, allowed_ips: [10.0.0.0/8] }",
       "{ host: a.example.com, port: 443, allowed_ips: [10.1.2.3/8] }"},
      {"{ host: a.example.com, port: 443, protocol: rest, access: full }", "{ host: a.example.com, port: 443 }"},
  };
  for (const auto& [one, other] : kPairs) EXPECT_EQ(Digest(one), Digest(other)) << one << "\n" << other;
}

TEST(SandboxRuntimeMeaning, DenyWinsAndNamesAreExact) {
  const auto policy = Loaded(
      R"({"network": {"allowedDomains": ["x.example.com", "*.example.org", "p.example.com:443"],
                      "deniedDomains": ["no.example.org", "x.example.com:22"]}})");
  EXPECT_TRUE(Connects(policy, kSh, "x.example.com", 8443));
  EXPECT_FALSE(Connects(policy, kSh, "x.example.com", 22));
  EXPECT_FALSE(Connects(policy, kSh, "a.x.example.com", 443));
  EXPECT_TRUE(Connects(policy, kSh, "b.a.example.org", 443));
  EXPECT_FALSE(Connects(policy, kSh, "example.org", 443));
  EXPECT_FALSE(Connects(policy, kSh, "no.example.org", 443));
  EXPECT_TRUE(Connects(policy, kSh, "p.example.com", 443));
  EXPECT_FALSE(Connects(policy, kSh, "p.example.com", 80));
}

TEST(AwfMeaning, ADomainIsItselfAndAllBelowOnTwoPorts) {
  const auto policy =
      Loaded(R"({"network": {"allowDomains": ["example.com", "https://s.example.org"], "blockDomains": ["no.example.com"]}})");
  EXPECT_TRUE(Connects(policy, kSh, "example.com", 443));
  EXPECT_TRUE(Connects(policy, kSh, "b.a.example.com", 443));
  EXPECT_TRUE(Sends(policy, kSh, "POST", "a.example.com", "/", 80));
  EXPECT_FALSE(Connects(policy, kSh, "a.example.com", 22));
  EXPECT_FALSE(Connects(policy, kSh, "no.example.com", 443));
  EXPECT_FALSE(Connects(policy, kSh, "below.no.example.com", 443));
  EXPECT_TRUE(Connects(policy, kSh, "s.example.org", 443));
  EXPECT_FALSE(Connects(policy, kSh, "s.example.org", 80));
}

TEST(SmokescreenMeaning, ARolesDomainBeatsTheGlobalDenyList) {
  const auto policy = Loaded(
      "version: v1\nservices:\n  - { name: a, action: enforce, allowed_domains: [bad.example.com] }\n"
      "global_deny_list: [bad.example.com, worse.example.com]\nglobal_allow_list: [\"*.example.com\"]\n");
  EXPECT_TRUE(Connects(policy, kSh, "bad.example.com", 443));
  EXPECT_FALSE(Connects(policy, kSh, "worse.example.com", 443));
  EXPECT_TRUE(Connects(policy, kSh, "c.b.example.com", 8443));
  EXPECT_FALSE(Connects(policy, kSh, "example.com", 443));
}

TEST(CiliumMeaning, PatternsStayInTheirLabelAndLookupsArePort53) {
  const auto policy = Loaded(
      "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: { name: x }\nspec:\n  endpointSelector: {}\n  egress:\n"
      "    - toEndpoints: [{}]\n      toPorts: [{ ports: [{ port: \"53\" }], rules: { dns: [{ matchPattern: \"*.example.org\" }] "
      "} }]\n"
      "    - toFQDNs: [{ matchPattern: \"*.example.com\" }]\n      toPorts: [{ ports: [{ port: \"443\", protocol: TCP }] }]\n");
  EXPECT_TRUE(Connects(policy, kSh, "a.example.com", 443));
  EXPECT_FALSE(Connects(policy, kSh, "b.a.example.com", 443));
  EXPECT_FALSE(Connects(policy, kSh, "a.example.org", 443));
  EXPECT_EQ(policy->DecideName({nullptr, "a.example.org", 1, kNow}).verdict, NameVerdict::kAllow);
  EXPECT_NE(policy->DecideName({nullptr, "example.org", 1, kNow}).verdict, NameVerdict::kAllow);
}

TEST(HardenRunnerMeaning, EndpointsAreHostAndPort) {
  const auto policy = Loaded(
      "- uses: step-security/harden-runner@v2\n  with:\n    allowed-endpoints: |\n      a.example.com:8443\n      "
      "b.example.com\n");
  EXPECT_TRUE(Connects(policy, kSh, "a.example.com", 8443));
  EXPECT_FALSE(Connects(policy, kSh, "a.example.com", 443));
  EXPECT_TRUE(Connects(policy, kSh, "b.example.com", 443));
  EXPECT_EQ(policy->rules()[1].span.line, 5u);
}

}  // namespace
}  // namespace sluice::policy
