// Which way connections take that no request has spoken for yet, and what holds where an upstream proxy looks names up.

#include "policy/credential.h"
#include "policy/no_proxy.h"
#include "tests/policy/support.h"

namespace sluice::policy {
namespace {

constexpr const char* kPin = "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
const std::string kProxies =
    "version: 1\ncredentials:\n  me: { from: env ME, send: client-certificate, to: [a.test, b.test] }\n"
    "  token: { from: env T, send: bearer, to: [a.test] }\n"
    "proxies:\n  p: { url: 'http://p.test:3128' }\n  q: { url: 'socks5://q.test:1080', except: [near.test, 'far.test:8443'] }\n";

ConnectQuery Remote(std::string_view host, uint16_t port) {
  ConnectQuery query = To(host, port);
  query.remote = true;
  return query;
}

TEST(Ways, AConnectionHasOneWhereItsRequestsAgree) {
  const auto way = [](const std::string& rules, const char* host = "a.test") {
    const auto got = Loaded(kProxies + rules)->DecideWay(To(host, 443));
    if (!got) return std::string("none");
    return std::to_string(got->via) + (got->pinned_by != RuleRef::kNone ? " pinned" : "") +
           (got->credential != kNoIndex16 ? " certificate" : "");
  };
  const std::string pins = std::string("    pins: ['") + kPin + "']\n";
  EXPECT_EQ(way("rules:\n  - allow: GET a.test\n"), "65535");
  EXPECT_EQ(way("settings: { via: q }\nrules:\n  - allow: GET a.test\n  - allow: POST a.test/x\n"), "1");
  EXPECT_EQ(way("settings: { via: q }\nrules:\n  - allow: GET a.test\n  - allow: POST a.test/x\n    via: p\n"), "none");
  EXPECT_EQ(way("settings: { via: q }\nrules:\n  - allow: GET a.test\n  - allow: POST a.test/x\n    ip: [10.0.0.0/8]\n"), "none");
  EXPECT_EQ(way("rules:\n  - allow: GET a.test\n  - allow: GET a.test/p\n" + pins), "none");
  EXPECT_EQ(way("rules:\n  - allow: GET a.test\n" + pins + "  - allow: POST a.test\n" + pins), "65535 pinned");
  EXPECT_EQ(way("rules:\n  - allow: GET a.test\n    with: me\n"), "65535 certificate");
  EXPECT_EQ(way("rules:\n  - allow: GET a.test\n    with: me\n  - allow: POST a.test\n"), "none");
  // Another kind of credential is no part of the handshake.
  EXPECT_EQ(way("rules:\n  - allow: GET a.test\n    with: token\n  - allow: POST a.test\n"), "65535");
  // Rules of other hosts and ports have no say.
  EXPECT_EQ(way("settings: { via: q }\nrules:\n  - allow: GET a.test\n  - allow: GET b.test\n    via: p\n"
                "  - allow: GET a.test:8443\n    via: p\n"),
            "1");
  // What no rule allows goes by the settings in `mode: audit`.
  EXPECT_EQ(way("mode: audit\nrules:\n  - allow: GET a.test\n    via: p\n"), "none");
  EXPECT_EQ(way("mode: audit\nsettings: { via: p }\nrules:\n  - allow: GET a.test\n"), "0");
}

TEST(Ways, WhereNobodyKnowsTheAddressNoAllowByAddressHoldsAndEveryDenyDoes) {
  const auto policy = Loaded(
      "version: 1\nrules:\n  - allow: GET a.test\n  - allow: POST a.test\n    ip: [10.0.0.0/8]\n  - deny: GET a.test/inner/**\n"
      "    ip: [10.0.0.0/8]\n  - allow: tcp db.test:5432\n    ip: [10.0.0.0/8]\n  - allow: tcp 10.0.0.0/8:7000\n");
  const auto ask = [&](const char* method, const char* path, const ConnectQuery& connection) {
    return policy->DecideRequest(Request(method, connection, path).Get());
  };
  EXPECT_TRUE(ask("GET", "/x", Remote("a.test", 443)).allowed);
  EXPECT_TRUE(ask("POST", "/x", To("a.test", 443)).allowed);
  EXPECT_FALSE(ask("POST", "/x", Remote("a.test", 443)).allowed);
  EXPECT_TRUE(ask("GET", "/inner/x", To("a.test", 443)).allowed);
  EXPECT_EQ(ask("GET", "/inner/x", Remote("a.test", 443)).reason, Reason::kDenyRule);
  EXPECT_TRUE(policy->DecideConnect(To("db.test", 5432)).allowed());
  EXPECT_FALSE(policy->DecideConnect(Remote("db.test", 5432)).allowed());
  EXPECT_TRUE(policy->DecideConnect(To("any.test", 7000)).allowed());
  EXPECT_FALSE(policy->DecideConnect(Remote("any.test", 7000)).allowed());
}

TEST(Ways, AnOpaqueAllowSaysTheWayOfRequestsToo) {
  const auto policy = Loaded(kProxies + "rules:\n  - allow: tcp a.test:80\n    via: p\n");
  EXPECT_EQ(policy->DecideRequest(Request("GET", To("a.test", 80), "/", Scheme::kHttp).Get()).via, 0);
}

TEST(Ways, AnOpaqueAllowThatADenyVoidsSaysNone) {
  struct Case {
    const char* rules;
    uint16_t port;
    uint16_t via;
  };
  constexpr const char* kCleartextDenied = "  - deny: GET http://a.test:443/x\n";
  const std::vector<std::pair<std::string, Case>> cases = {
      {"", {"  - allow: tcp a.test:443\n    via: p\n  - allow: tls a.test:443\n", 443, 0}},
      {kCleartextDenied, {"  - allow: tcp a.test:443\n    via: p\n  - allow: tls a.test:443\n", 443, kNoIndex16}},
      {kCleartextDenied, {"  - allow: tcp a.test:443\n  - allow: tls a.test:443\n    via: p\n", 443, 0}},
      {"", {"  - allow: tcp a.test:8443\n  - allow: tls a.test:8443\n    via: p\n", 8443, 0}},
      {"  - deny: tls a.test\n", {"  - allow: tcp a.test:8443\n  - allow: tls a.test:8443\n    via: p\n", 8443, kNoIndex16}},
  };
  for (const auto& [deny, c] : cases) {
    const auto policy = Loaded(kProxies + "rules:\n" + c.rules + deny);
    const ConnectDecision connect = policy->DecideConnect(To("a.test", c.port));
    EXPECT_TRUE(connect.allowed()) << c.rules << deny;
    EXPECT_EQ(connect.decision.via, c.via) << c.rules << deny;
    const Decision request = policy->DecideRequest(Request("GET", To("a.test", c.port), "/").Get());
    EXPECT_TRUE(request.allowed) << c.rules << deny;
    EXPECT_EQ(request.via, c.via) << c.rules << deny;
  }
}

// The policy's own proxy is for an allow that does not say where it leads, where that one holds.
TEST(Ways, NorIsTheDefaultTakenForOne) {
  const std::string rules =
      "settings: { via: q }\nrules:\n  - allow: tcp a.test:443\n  - allow: tls a.test:443\n    ip: [93.184.216.0/24]\n";
  ConnectQuery query = To("a.test", 443);
  query.address = IpAddress::Parse("93.184.216.34");
  EXPECT_EQ(Loaded(kProxies + rules)->DecideConnect(query).decision.via, 1);
  const ConnectDecision voided = Loaded(kProxies + rules + "  - deny: GET http://a.test:443/x\n")->DecideConnect(query);
  EXPECT_EQ(voided.verdict, ConnectVerdict::kOpaqueTls);
  EXPECT_EQ(voided.decision.via, kNoIndex16);
}

TEST(Ways, NamesAreLookedUpByTheProxyThatTheyGoThrough) {
  const auto by_default = Loaded(
      kProxies + "settings: { via: q }\nrules:\n  - allow: GET *.test\n  - allow: GET only.example\n    ip: [10.0.0.0/8]\n");
  EXPECT_TRUE(by_default->IsLookedUpByProxy("a.test"));
  EXPECT_FALSE(by_default->IsLookedUpByProxy("near.test"));
  // It is excepted for one port only.
  EXPECT_TRUE(by_default->IsLookedUpByProxy("far.test"));
  EXPECT_FALSE(by_default->IsLookedUpByProxy("only.example"));
  EXPECT_FALSE(by_default->IsLookedUpByProxy("other.example"));
  const auto by_rule = Loaded(kProxies + "rules:\n  - allow: GET a.test\n  - allow: tls b.test\n    via: p\n");
  EXPECT_FALSE(by_rule->IsLookedUpByProxy("a.test"));
  EXPECT_TRUE(by_rule->IsLookedUpByProxy("b.test"));
  EXPECT_FALSE(Loaded("version: 1\nrules:\n  - allow: GET a.test\n")->IsLookedUpByProxy("a.test"));
  EXPECT_TRUE(Loaded(kProxies + "mode: audit\nsettings: { via: p }\nrules: []\n")->IsLookedUpByProxy("any.test"));
}

TEST(Ways, ADefaultOfTheCommandLineGivesWayToThePolicys) {
  UpstreamProxy proxy;
  proxy.name = "--via";
  proxy.host = "p.test";
  proxy.port = 3128;
  LoadOptions options;
  options.check_executables = false;
  options.default_proxy = proxy;
  options.extra_allows = {"GET a.test"};
  const auto without = LoadRules(options);
  ASSERT_TRUE(without) << without.error().message;
  const Decision decision = (*without)->DecideRequest(Request("GET", To("a.test", 443), "/").Get());
  ASSERT_LT(decision.via, (*without)->proxies().size());
  EXPECT_EQ((*without)->proxies()[decision.via].name, "--via");
  LoadOptions plain = options;
  plain.default_proxy.reset();
  EXPECT_NE((*LoadRules(plain))->digest(), (*without)->digest());
  options.extra_allows.clear();
  options.read = [](const std::string&) -> Result<std::string> {
    return kProxies + "settings: { via: q }\nrules:\n  - allow: GET a.test\n";
  };
  const auto own = LoadFile("p.yaml", options);
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_EQ((*own)->proxies().size(), 2u);
  EXPECT_EQ((*own)->settings().via, "q");
}

}  // namespace
}  // namespace sluice::policy
