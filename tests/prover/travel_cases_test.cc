// The cases of how things travel: credentials, upstream proxies, pins.

#include <tuple>

#include "policy/rule_text.h"
#include "tests/prover/cases.h"

namespace sluice::prover {
namespace {

std::string Travelling(const std::string& rules, const std::string& more = "") {
  return "version: 1\ncredentials:\n  hub: { from: env HUB, send: bearer, to: [api.ex.com] }\n"
         "  other: { from: env HUB, send: bearer, to: [api.ex.com] }\n"
         "  mine: { from: env MINE, send: bearer, to: [api.ex.com] }\n"
         "  key: { from: env KEY, send: header X_Api_Key, to: [api.ex.com] }\n"
         "  query: { from: env QUERY, send: query key, to: [api.ex.com] }\n"
         "  stand: { from: env STAND, send: placeholder TOKEN, to: [api.ex.com] }\n"
         "proxies:\n  corp: { url: 'http://proxy.corp:3128' }\n" +
         more + "rules:\n" + rules;
}

// A rule that lets more out, and sends what was let out before another way: both are gained.
TEST(Cases, OfWaysBesideMoreTraffic) {
  const std::string post = Allow("POST api.ex.com");
  for (const Case& c : std::vector<Case>{
           {"every method, through a proxy", Travelling(post), Travelling(Allow("http api.ex.com") + Key("via: corp")),
            kIncomparable, "POST https://api.ex.com/ through the upstream proxy `corp`",
            "POST https://api.ex.com/ directly, through no upstream proxy"},
           {"every path, through a proxy", Travelling(Allow("http api.ex.com/v1")),
            Travelling(Allow("http api.ex.com") + Key("via: corp")), kIncomparable,
            "GET https://api.ex.com/v1 through the upstream proxy `corp`"},
           {"every method, no longer through one", Travelling(post + Key("via: corp")), Travelling(Allow("http api.ex.com")),
            kIncomparable, "POST https://api.ex.com/ directly, through no upstream proxy"},
       })
    Check(c);
  // What is accepted of the traffic says nothing of the way.
  const Options options{.at = kNow, .accepted = {Value(policy::ParseCompact(policy::Effect::kAllow, "http api.ex.com"))}};
  const Proof proof =
      Compare(*Loaded(Travelling(post)), *Loaded(Travelling(Allow("http api.ex.com") + Key("via: corp"))), options);
  EXPECT_TRUE(Has(proof.gains, "POST https://api.ex.com/ through the upstream proxy `corp`")) << Shown(proof);
}

// Bytes that pass directly are looked up here, whatever proxy a rule of requests inside names; one rule of bytes names it for
// all.
TEST(Cases, OfAddressesBehindBytes) {
  const std::string bytes = Allow("tls api.ex.com");
  const std::string inside = Allow("GET api.ex.com/v");
  const std::string here = inside + Key("ip: [10.0.0.0/8]");
  const std::string another = Allow("tls api.ex.com:443") + Key("via: corp");
  const std::string voided = Allow("tcp api.ex.com:443") + Key("via: corp");
  const std::string inner = Deny("GET http://api.ex.com/x") + Deny("udp 10.0.0.0/8");
  Check({"requests inside", Travelling(bytes + inside + Key("via: corp")), Travelling(bytes + here), kWidened,
         "GET https://api.ex.com/v at 10.0.0.0"});
  Check({"bytes of another rule", Travelling(bytes + inner), Travelling(bytes + another + inner), kIncomparable,
         "TLS bytes to api.ex.com:443 at 0.0.0.0"});
  Check({"a rule that is voided says no way", Travelling(bytes + inner), Travelling(bytes + voided + inner), kEqual});
}

// What audit lets through goes a way of its own.
TEST(Cases, OfWaysUnderAudit) {
  const std::string allow = Allow("GET api.ex.com");
  const std::string audit = "mode: audit\n";
  const std::string corp = "settings: { via: corp }\n";
  const std::string via = allow + Key("via: corp");
  const std::string deny = Deny("GET api.ex.com/x");
  const std::string literal = Allow("GET 1.1.1.1");
  for (const Case& c : std::vector<Case>{
           {"what no rule allows goes the way of the settings", Travelling(allow, audit), Travelling(allow, audit + corp),
            kIncomparable},
           {"what a rule denies goes the way of the settings", Travelling(via), Travelling(via + deny, audit), kIncomparable,
            "GET https://api.ex.com/x directly, through no upstream proxy",
            "GET https://api.ex.com/x through the upstream proxy `corp`"},
           {"no longer", Travelling(via + deny, audit), Travelling(via), kIncomparable,
            "GET https://api.ex.com/x through the upstream proxy `corp`"},
           {"which is the same way", Travelling(via + deny, audit), Travelling(Allow("GET api.ex.com/x")), kNarrowed},
           {"a literal goes directly", Travelling(literal, audit + corp), Travelling(literal + Key("via: corp")), kIncomparable,
            "GET https://1.1.1.1/ through the upstream proxy `corp`"},
           {"but where a rule of all names covers it", Travelling(literal + Allow("'GET **'"), audit + corp),
            Travelling(literal + Key("via: corp")), kNarrowed},
           {"a rule by address", Travelling(allow + Key("ip: [10.0.0.0/8]")), Travelling(allow + Key("ip: [10.0.0.0/8]"), corp),
            kEqual},
           {"one rule's way", Travelling(allow, audit), Travelling(via, audit), kIncomparable,
            "GET https://api.ex.com/ through the upstream proxy `corp`",
            "GET https://api.ex.com/ directly, through no upstream proxy"},
           {"the same way for all", Travelling(via, audit + corp), Travelling(allow, audit + corp), kEqual},
           {"a credential that audit alone goes without", Travelling(allow + Key("with: hub")),
            Travelling(Allow("GET other.ex"), audit), kIncomparable},
           {"what no rule allows beside one of a literal", Travelling(literal, audit), Travelling(literal, audit + corp),
            kIncomparable},
           {"the second of two denies", Travelling(Allow("GET api.ex.com/y") + Key("via: corp")),
            Travelling(via + deny + Deny("GET api.ex.com/y"), audit), kIncomparable,
            "GET https://api.ex.com/y directly, through no upstream proxy"},
           {"bytes that a deny by address closes for a name looked up there", Travelling("  []\n", audit + corp),
            Travelling(Allow("tcp api.ex.com:443") + Deny("tcp api.ex.com") + Key("ip: [10.0.0.0/8]"), audit + corp), kEqual},
           {"requests that say another method", Travelling(via + Key("method-override: true"), audit), Travelling(via, audit),
            kIncomparable, "GET https://api.ex.com/ with `x-http-method-override: ` directly, through no upstream proxy"},
           {"what a rule denies in bytes that pass unread", Travelling(Deny("http api.ex.com:8443"), audit + corp),
            Travelling(Allow("GET api.ex.com:8443")), kIncomparable,
            "GET https://api.ex.com:8443/ directly, through no upstream proxy"},
           {"no longer audited", Travelling(via, audit + corp), Travelling(via, corp), kNarrowed},
       })
    Check(c);
}

TEST(Cases, OfWays) {
  const std::string plain = Travelling(Allow("GET api.ex.com"));
  const std::string pins = "pins: [sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=]";
  for (const Case& c : std::vector<Case>{
           {"a credential", plain, Travelling(Allow("GET api.ex.com") + Key("with: hub")), kIncomparable,
            "GET https://api.ex.com/ with the credential `hub`",
            "GET https://api.ex.com/ with the workload's own `authorization`"},
           {"a credential dropped", Travelling(Allow("GET api.ex.com") + Key("with: hub")), plain, kIncomparable,
            "GET https://api.ex.com/ with the workload's own `authorization`",
            "GET https://api.ex.com/ with the credential `hub`"},
           {"a credential in a field of its own", Travelling(Allow("GET api.ex.com") + Key("with: key")), plain, kIncomparable,
            "GET https://api.ex.com/ with the workload's own `x-api-key`", "GET https://api.ex.com/ with the credential `key`"},
           {"a parameter", Travelling(Allow("GET api.ex.com") + Key("with: query")), plain, kIncomparable,
            "GET https://api.ex.com/ with the workload's own `?key`", "GET https://api.ex.com/ with the credential `query`"},
           {"a stand-in takes no field", Travelling(Allow("GET api.ex.com") + Key("with: stand")), plain, kNarrowed, "",
            "GET https://api.ex.com/ with the credential `stand`"},
           {"no longer sent at all", Travelling(Allow("GET api.ex.com") + Allow("GET api.ex.com/v") + Key("with: hub")),
            Travelling(Allow("GET api.ex.com") + Deny("GET api.ex.com/v")), kNarrowed},
           {"anew, where there was nothing", Travelling(Allow("GET api.ex.com/v")),
            Travelling(Allow("GET api.ex.com/v") + Allow("POST api.ex.com") + Key("with: hub")), kWidened},
           {"a credential for more", Travelling(Allow("GET api.ex.com") + Allow("GET api.ex.com/v") + Key("with: hub")),
            Travelling(Allow("GET api.ex.com") + Key("with: hub")), kIncomparable,
            "GET https://api.ex.com/ with the credential `hub`",
            "GET https://api.ex.com/ with the workload's own `authorization`"},
           {"another credential", Travelling(Allow("GET api.ex.com") + Key("with: mine")),
            Travelling(Allow("GET api.ex.com") + Key("with: hub")), kIncomparable,
            "GET https://api.ex.com/ with the credential `hub`", "GET https://api.ex.com/ with the credential `mine`"},
           {"the same value by another name", Travelling(Allow("GET api.ex.com") + Key("with: hub")),
            Travelling(Allow("GET api.ex.com") + Key("with: other")), kIncomparable,
            "GET https://api.ex.com/ with the credential `other`", "GET https://api.ex.com/ with the credential `hub`"},
           {"an upstream proxy", plain, Travelling(Allow("GET api.ex.com") + Key("via: corp")), kIncomparable,
            "GET https://api.ex.com/ through the upstream proxy `corp`",
            "GET https://api.ex.com/ directly, through no upstream proxy"},
           {"the policy's own proxy for a rule's", Travelling(Allow("GET api.ex.com") + Key("via: corp")),
            Travelling(Allow("GET api.ex.com"), "settings: { via: corp }\n"), kEqual},
           {"pins dropped", Travelling(Allow("GET api.ex.com") + Key(pins)), plain, kWidened,
            "GET https://api.ex.com/ to an upstream with another key"},
       })
    Check(c);
}

// What goes by name through a proxy meets every deny that speaks of addresses.
TEST(Cases, OfNamesThatAProxyLooksUp) {
  const std::string via = Allow("GET api.ex.com") + Key("via: corp");
  const std::string direct = Allow("GET b.ex.com");
  const std::string deny = Deny("GET *.ex.com") + Key("ip: [10.0.0.0/8]");
  const std::string corp = "settings: { via: corp }\n";
  for (const Case& c : std::vector<Case>{
           {"a deny of a private range dropped", Travelling(via + deny), Travelling(via), kWidened,
            "GET https://api.ex.com/ at 1.1.1.1"},
           {"a deny of a public range dropped", Travelling(via + Deny("http **") + Key("ip: [1.2.3.0/24]")), Travelling(via),
            kWidened, "GET https://api.ex.com/ at 1.1.1.1"},
           {"what such a deny had closed already", Travelling(via + deny), Travelling(deny), kNarrowed, "",
            "lookup of api.ex.com"},
           {"another name goes directly", Travelling(via + direct + deny), Travelling(direct + deny), kNarrowed, "",
            "lookup of api.ex.com"},
           {"directly such a deny leaves public addresses", Travelling(direct + deny), Travelling(direct), kEqual},
           {"a deny by target says nothing of a name that is looked up there", Travelling(via + Deny("tcp 1.2.3.0/24")),
            Travelling(via), kEqual},
           {"through the policy's own proxy", Travelling(Allow("GET api.ex.com") + deny, corp),
            Travelling(Allow("GET api.ex.com"), corp), kWidened, "GET https://api.ex.com/ at 1.1.1.1"},
           {"bytes", Travelling(Allow("tls api.ex.com") + Key("via: corp") + deny),
            Travelling(Allow("tls api.ex.com") + Key("via: corp")), kWidened, "TLS bytes to api.ex.com:443 at 1.1.1.1"},
           {"a deny of lookups of one family", Travelling(via + Deny("dns api.ex.com") + Key("types: [AAAA]")), Travelling(via),
            kWidened, "lookup of api.ex.com"},
       })
    Check(c);
  // Datagrams go directly, and are judged for the address that they go to.
  const std::string udp = Allow("udp api.ex.com:5353");
  const std::string private_udp = Deny("udp api.ex.com:5353") + Key("ip: [10.0.0.0/8]");
  const std::string here = Allow("GET api.ex.com:5353");
  const std::string bytes = Allow("tcp api.ex.com:5353") + Key("via: corp");
  for (const Case& c : std::vector<Case>{
           {"datagrams", Travelling(via), Travelling(via + udp + private_udp), kWidened,
            "UDP datagrams to api.ex.com:5353 at 1.1.1.1"},
           {"datagrams beside what goes through a proxy", Travelling(here, corp), Travelling(here + udp + private_udp, corp),
            kWidened, "UDP datagrams to api.ex.com:5353 at 1.1.1.1"},
           {"datagrams beside bytes that go through one", Travelling(bytes), Travelling(bytes + udp + private_udp), kWidened,
            "UDP datagrams to api.ex.com:5353 at 1.1.1.1"},
           {"datagrams are no bytes that go another way", Travelling(here + udp, corp),
            Travelling(here + udp + Deny("GET api.ex.com:5353") + Key("ip: [10.0.0.0/8]"), corp), kNarrowed, "",
            "GET https://api.ex.com:5353/ at 1.1.1.1"},
           {"no proxy for names carries what is allowed by address", Travelling(Allow("tcp 10.0.0.0/9:5432"), corp),
            Travelling(Allow("tcp 10.0.0.0/8:5432"), corp), kWidened, "TCP bytes to 10.128.0.0:5432"},
       })
    Check(c);
  // What is not told apart is never a pass.
  for (const std::string& beside : {Allow("POST api.ex.com") + deny, Allow("GET api.ex.com") + Key("ip: [10.0.0.0/8]")}) {
    const Proof mixed = Compare(*Loaded(Travelling(via + beside)), *Loaded(Travelling(direct)), {.at = kNow});
    EXPECT_EQ(mixed.verdict, Verdict::kUnknown);
    EXPECT_FALSE(mixed.replay_failed) << mixed.why_unknown;
  }
  const std::string clear = Allow("GET http://api.ex.com:443/v") + Key("via: corp");
  const std::string private_clear = Deny("GET http://api.ex.com:443") + Key("ip: [10.0.0.0/8]");
  for (const std::string& mixed : {Travelling(via + deny, "mode: audit\n"),
                                   Travelling(via + Allow("udp api.ex.com:443") + Deny("dns api.ex.com") + Key("types: [AAAA]")),
                                   Travelling(Allow("tls api.ex.com") + clear + private_clear)}) {
    const Proof proof = Compare(*Loaded(mixed), *Loaded(Travelling(direct)), {.at = kNow});
    EXPECT_EQ(proof.verdict, Verdict::kUnknown) << mixed << Shown(proof);
    EXPECT_FALSE(proof.replay_failed) << proof.why_unknown;
  }
}

// Which names a proxy is not asked for, and at which ports, tells a wildcard apart though no rule does.
TEST(Cases, OfNamesThatAProxyIsNotAskedFor) {
  const auto beside = [](const std::string& except, const std::string& rules) {
    return "version: 1\nproxies:\n  corp: { url: 'http://proxy.corp:3128', except: ['" + except + "'] }\nrules:\n" + rules;
  };
  const std::string names = Allow("GET *.ex.com") + Key("via: corp");
  const std::string ports = Allow("GET api.ex.com:8443-9443") + Key("via: corp");
  const std::string range = Key("ip: [10.0.0.0/8]");
  for (const auto& [except, allow, deny] : {std::tuple("a.ex.com", names, Deny("GET *.ex.com")),
                                            std::tuple("api.ex.com:8443-9442", ports, Deny("GET api.ex.com:8443-9443"))}) {
    const Proof proof = Compare(*Loaded(beside(except, allow + deny + range)), *Loaded(beside(except, allow)), {.at = kNow});
    EXPECT_EQ(proof.verdict, Verdict::kUnknown) << Shown(proof);
    EXPECT_FALSE(proof.replay_failed) << proof.why_unknown;
  }
  // The proxy that one rule of bytes names carries all of them, and those of a rule without one go directly where it is not
  // asked.
  const std::string bytes = Allow("tcp *.ex.com:8443") + Key("via: corp") + Allow("tls a.ex.com:8443");
  const std::string both =
      "version: 1\nproxies:\n  corp: { url: 'http://proxy.corp:3128', except: [a.ex.com] }\n"
      "  other: { url: 'http://proxy.corp:3129' }\nsettings: { via: other }\nrules:\n";
  const std::string private_udp = Deny("udp 10.0.0.0/8");
  const Proof proof = Compare(*Loaded(both + private_udp), *Loaded(both + bytes + private_udp), {.at = kNow});
  EXPECT_EQ(proof.verdict, kWidened) << Shown(proof);
}

// What goes by name through a proxy may lead to every address.
TEST(Cases, NeverOfAddressesBehindAProxy) {
  const auto loaded = Loaded("version: 1\nassert:\n  - never: GET api.ex.com\n    ip: [10.0.0.0/8]\nrules: []\n");
  const policy::Rule& never = loaded->compiled().assertions.front().rule;
  const std::string corp = "settings: { via: corp }\n";
  for (const std::string& policy :
       {Travelling(Allow("GET api.ex.com") + Key("via: corp")), Travelling("  []\n", "mode: audit\n" + corp)}) {
    const Proof proof = CheckNever(*Loaded(policy), never, {.at = kNow});
    EXPECT_TRUE(Has(proof.gains, "GET https://api.ex.com/ at 10.0.0.0")) << policy << Shown(proof);
  }
}

// Another rule's credential goes with a request that one rule sends through a proxy, to wherever that leads.
TEST(Cases, OfACredentialThatAnothersProxyCarries) {
  const std::string rules = Allow("GET api.ex.com") + Key("via: corp") + Allow("GET api.ex.com/v") + Key("with: hub") +
                            Deny("udp api.ex.com") + Key("ip: [10.0.0.0/8]");
  const Proof proof = Compare(*Loaded(Travelling(rules, "settings: { via: corp }\n")), *Loaded(Travelling(rules)), {.at = kNow});
  EXPECT_EQ(proof.verdict, Verdict::kUnknown) << Shown(proof);
  EXPECT_FALSE(proof.replay_failed) << proof.why_unknown;
}

// One rule asks for one ancestor and another for another, and a process may have both.
TEST(Cases, OfTwoAncestors) {
  const auto under = [](const std::string& exe) { return Key("by: [/p]") + Key("under: [" + exe + "]"); };
  const std::string plain = Allow("GET api.ex.com") + under("/x");
  const std::string audit = "mode: audit\n";
  const std::string inside = Allow("GET api.ex.com:8443") + under("/x");
  for (const Case& c : std::vector<Case>{
           {"a credential no longer added", Travelling(plain + Allow("GET api.ex.com") + under("/y") + Key("with: hub")),
            Travelling(plain), kIncomparable,
            "GET https://api.ex.com/ by /p under /x and /y with the workload's own `authorization`"},
           {"a proxy no longer asked", Travelling(plain + Allow("GET api.ex.com") + under("/y") + Key("via: corp")),
            Travelling(plain), kIncomparable,
            "GET https://api.ex.com/ by /p under /x and /y directly, through no upstream proxy"},
           {"bytes that audit looked into", Travelling(inside, audit),
            Travelling(inside + Allow("tcp api.ex.com:8443") + under("/y"), audit), kWidened,
            "TCP bytes to api.ex.com:8443 by /p under /x and /y"},
       })
    Check(c);
}

// A body of two items, one for each of two allows that send it two ways, is refused though each item alone is not.
TEST(Cases, OfItemsThatTravelTwoWays) {
  const auto query = [](const std::string& field, const std::string& way) {
    return Allow("graphql query api.ex.com/g") + Key("fields: [" + field + "]") + way;
  };
  const std::string more = "  other: { url: 'http://proxy.corp:3129' }\n";
  const std::string corp = Key("via: corp");
  const std::string other = Key("via: other");
  const std::string head = query("a", "") + query("b", other);
  const auto pins = [](const std::string& keys) { return Key("pins: [" + keys + "]"); };
  const std::string one = "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
  const std::string two = "sha256//BAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
  const auto verdict = [&](const std::string& base, const std::string& changed) {
    return Compare(*Loaded(base), *Loaded(changed), {.at = kNow}).verdict;
  };
  EXPECT_EQ(verdict(Travelling(query("a", corp) + query("b", other), more), Travelling(head, more + "settings: { via: corp }\n")),
            Verdict::kUnknown);
  EXPECT_EQ(
      verdict(Travelling(query("a", pins(one + ", " + two)) + query("b", pins(one))), Travelling(query("'a', b", pins(one)))),
      Verdict::kUnknown);
  EXPECT_EQ(verdict(Travelling(query("a", corp) + query("b", other), more),
                    Travelling(query("a", corp) + query("b", other) + query("c", ""), more)),
            kWidened);
  EXPECT_EQ(verdict(Travelling(query("a", corp) + query("b", other) + query("c", ""), more),
                    Travelling(query("a", corp) + query("c", ""), more)),
            kNarrowed);
}

std::string Scoped(const std::string& to, const std::string& rules) {
  return "version: 1\ncredentials:\n  hub: { from: env HUB, send: bearer, to: [" + to + "] }\nrules:\n" + rules;
}

// A repository may be spelt in a case that the credential's `to` does not have.
TEST(Cases, OfWhereACredentialMayGo) {
  const std::string fetch = Allow("git fetch-pack hub.ex/o/r") + Key("with: hub");
  const std::string get = Allow("GET hub.ex/o/r") + Key("with: hub");
  const std::string names = Allow("git fetch-pack *.ex/o/r") + Key("with: hub");
  const std::string ports = Allow("git fetch-pack hub.ex:8443,9443/o/r") + Key("with: hub");
  for (const Case& c : std::vector<Case>{
           {"another case", Scoped("hub.ex/o/**", fetch), Scoped("hub.ex/O/**", fetch), kIncomparable,
            "POST https://hub.ex/O/r/git-upload-pack (git fetch-pack) with the credential `hub`",
            "POST https://hub.ex/o/r/git-upload-pack (git fetch-pack) with the credential `hub`"},
           {"every case", Scoped("hub.ex/o/**", fetch), Scoped("hub.ex", fetch), kIncomparable},
           {"every case by one of two", Scoped("hub.ex", fetch), Scoped("hub.ex, hub.ex/O/**", fetch), kEqual},
           {"another case of one name", Scoped("'*.ex/o/**'", names), Scoped("'*.ex/o/**', 'hub.ex/O/**'", names), kIncomparable,
            "POST https://hub.ex/O/r/git-upload-pack (git fetch-pack) with the credential `hub`"},
           {"another case at one port", Scoped("'hub.ex:8443,9443/o/**', 'hub.ex:8443/O/**'", ports),
            Scoped("'hub.ex:8443,9443/o/**', 'hub.ex:8443,9443/O/**'", ports), kIncomparable,
            "POST https://hub.ex:9443/O/r/git-upload-pack (git fetch-pack) with the credential `hub`"},
           {"more than the rule covers", Scoped("hub.ex/o/**", fetch), Scoped("hub.ex/o/**, hub.ex/p/**", fetch), kEqual},
           {"a request has one case", Scoped("hub.ex/o/**", get), Scoped("hub.ex", get), kEqual},
           {"the same by another list", Scoped("hub.ex/o/**, hub.ex/O/**", fetch), Scoped("hub.ex/O/**, hub.ex/o/**", fetch),
            kEqual},
       })
    Check(c);
}

}  // namespace
}  // namespace sluice::prover
