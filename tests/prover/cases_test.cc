// The table of cases that a person would ask about: base, head, verdict and the shortest witness of each side.

#include "tests/prover/cases.h"

namespace sluice::prover {
namespace {

const std::string kX = Allow("http api.ex.com");
TEST(Cases, OfHosts) {
  for (const Case& c : std::vector<Case>{
           {"from nothing", "", Allow("GET api.ex.com"), kWidened, "GET https://api.ex.com/"},
           {"to nothing", Allow("GET api.ex.com"), "", kNarrowed, "", "GET https://api.ex.com/"},
           {"a wildcard for a name", Allow("GET api.ex.com"), Allow("GET *.ex.com"), kWidened, "GET https://a.ex.com/"},
           {"two stars for one", Allow("GET *.ex.com"), Allow("GET **.ex.com"), kWidened, "GET https://a.a.ex.com/"},
           {"a name within a wildcard", Allow("GET *.ex.com"), Allow("GET *.ex.com") + Allow("GET api.ex.com"), kEqual},
           {"letter case and final dot", Allow("GET api.ex.com"), Allow("GET API.Ex.com."), kEqual},
           {"an A-label", Allow("GET bücher.ex"), Allow("GET xn--bcher-kva.ex"), kEqual},
           {"another script", Allow("GET api.ex.com"), Allow("GET \xd0\xb0pi.ex.com"), kIncomparable,
            "GET https://xn--pi-6kc.ex.com/", "GET https://api.ex.com/"},
           {"a wildcard narrowed to a name", Allow("GET *.github.com"), Allow("GET api.github.com"), kNarrowed, "",
            "GET https://a.github.com/"},
           {"a star inside a label", Allow("GET api-*.ex.com"), Allow("GET *.ex.com"), kWidened, "GET https://a.ex.com/"},
           {"the least of a star inside a label", Allow("GET *.ex.com"), Allow("GET api*.ex.com"), kNarrowed, "",
            "GET https://a.ex.com/"},
           {"every name and literal", Allow("GET **.ex.com"), Allow("GET **"), kWidened, "GET https://a/"},
           {"an A-label is in no star within a label", Allow("GET x*.ex.com"), Allow("GET x*.ex.com") + Allow("GET xn--a.ex.com"),
            kWidened, "GET https://xn--a.ex.com/"},
           {"a deny's star holds it", Allow("GET *.ex.com") + Deny("GET xn*.ex.com"),
            Allow("GET *.ex.com") + Deny("GET xn*.ex.com") + Deny("GET xn--a.ex.com"), kEqual},
           {"two wildcards for their union", Allow("GET a*.ex.com") + Allow("GET *.ex.com"), Allow("GET *.ex.com"), kEqual},
           {"a wildcard that all names of a shape fill", Allow("GET *.ex.com") + Deny("GET *a*.ex.com"),
            Allow("GET *.ex.com") + Deny("GET *a*.ex.com") + Deny("GET *aa*.ex.com"), kEqual},
       })
    Check(c);
}

TEST(Cases, OfPortsMethodsAndSchemes) {
  const std::string seven = Allow("GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS api.ex.com");
  for (const Case& c : std::vector<Case>{
           {"a port more", Allow("GET api.ex.com"), Allow("GET api.ex.com:443,8443"), kWidened, "GET https://api.ex.com:8443/"},
           {"a port written out", Allow("GET api.ex.com"), Allow("GET api.ex.com:443"), kEqual},
           {"a range in pieces", Allow("tcp db:1000-1999") + Allow("tcp db:2000-2999"), Allow("tcp db:1000-2999"), kEqual},
           {"a range less one", Allow("tcp db:1000-2999"), Allow("tcp db:1000-1999,2001-2999"), kNarrowed, "",
            "TCP bytes to db:2000"},
           {"HEAD beside GET", Allow("GET api.ex.com"), Allow("GET,HEAD api.ex.com"), kEqual},
           {"every method", seven, kX, kWidened, "PROPFIND https://api.ex.com/"},
           {"a method more", Allow("GET api.ex.com"), Allow("GET,MKCOL api.ex.com"), kWidened, "MKCOL https://api.ex.com/"},
           {"cleartext too", Allow("GET api.ex.com"), Allow("GET api.ex.com") + Allow("GET http://api.ex.com"), kWidened,
            "GET http://api.ex.com/"},
           {"two hosts times two methods", Allow("GET,POST a.ex") + Allow("GET,POST b.ex"),
            Allow("POST b.ex") + Allow("GET b.ex") + Allow("POST a.ex") + Allow("GET a.ex"), kEqual},
           {"DELETE added and denied", Allow("GET api.ex.com"), Allow("GET,DELETE api.ex.com") + Deny("DELETE api.ex.com"),
            kEqual},
           {"seven methods and a deny of them", seven, seven + Deny("PROPFIND api.ex.com"), kEqual},
       })
    Check(c);
}

TEST(Cases, OfPaths) {
  const auto get = [](const std::string& path) { return Allow("GET api.ex.com" + path); };
  const std::string all = Allow("http api.ex.com");
  for (const Case& c : std::vector<Case>{
           {"deeper", get("/v1/*"), get("/v1/**"), kWidened, "GET https://api.ex.com/v1/a/"},
           {"the folder itself", get("/v1/**"), get("/v1/**") + get("/v1"), kWidened, "GET https://api.ex.com/v1"},
           {"an unreserved escape", get("/%7Eme"), get("/~me"), kEqual},
           {"a deny removed", all + Deny("http api.ex.com/admin/**"), all, kWidened, "GET https://api.ex.com/admin/"},
           {"an allow less its deny", get("/a") + get("/b") + Deny("GET api.ex.com/b"), get("/a"), kEqual},
           {"two halves", get("/a/**") + get("/b/**"), get("/b/**") + get("/a/**"), kEqual},
           {"one segment or more", get("/v1/*") + get("/v1/*/**"), get("/v1/**"), kEqual},
           {"a deny where nothing is allowed", get("/a"), get("/a") + Deny("GET api.ex.com/b"), kEqual},
           {"a path moved", get("/a/**"), get("/b/**"), kIncomparable, "GET https://api.ex.com/b/", "GET https://api.ex.com/a/"},
           {"an encoded slash", get("/a/*"), get("/a/*") + Key("encoded-slash: true"), kWidened, "GET https://api.ex.com/a/%2F"},
           {"parameters", get("/a/*"), get("/a/*") + Key("path-params: true"), kWidened, "GET https://api.ex.com/a/;"},
           {"a deny reads an encoded slash both ways", get("/**") + Key("encoded-slash: true"),
            get("/**") + Key("encoded-slash: true") + Deny("GET api.ex.com/a/b"), kNarrowed, "", "GET https://api.ex.com/a/b"},
           {"a path list", Allow("{ methods: [GET], host: api.ex.com, path: [/a, /b] }"), get("/a") + get("/b"), kEqual},
           {"one issue's path opened", Allow("POST api.ex.com/repos/o/r/issues"), Allow("POST api.ex.com/**"), kWidened,
            "POST https://api.ex.com/"},
       })
    Check(c);
}

// One kind of request that a verb takes, where all the others were let out before.
TEST(Cases, OfWhatGoesBesideABody) {
  const std::string session = Allow("mcp initialize api.ex.com/m");
  const std::string ends = Allow("GET,DELETE api.ex.com/m");
  const std::string first = Allow("jsonrpc initialize api.ex.com/m");
  for (const std::string& base : {Allow("POST,DELETE api.ex.com/m"), Allow("GET,POST api.ex.com/m"),
                                  ends + first + Allow("jsonrpc notifications/* api.ex.com/m")})
    Check({"a session's stream, end, or pings", base, base + session, kWidened});
  Check({"a query with keys of its own", "", Allow("graphql query api.ex.com/g") + Key("query-keys: [k]"), kWidened,
         "POST https://api.ex.com/g (graphql query a)"});
}

TEST(Cases, OfAddresses) {
  const auto ip = [](const std::string& list) { return Allow("GET api.ex.com") + Key("ip: [" + list + "]"); };
  for (const Case& c : std::vector<Case>{
           {"two halves of a prefix", ip("10.0.0.0/9, 10.128.0.0/9"), ip("10.0.0.0/8"), kEqual},
           {"a prefix twice as wide", ip("10.0.0.0/9"), ip("10.0.0.0/8"), kWidened, "GET https://api.ex.com/ at 10.128.0.0"},
           {"lookups of one family denied", Allow("GET api.ex.com"),
            Allow("GET api.ex.com") + Deny("dns api.ex.com") + Key("types: [AAAA]"), kNarrowed, "",
            "GET https://api.ex.com/ at 2600::"},
           {"an address opened to its network", ip("10.1.2.3/32"), ip("10.1.2.0/24"), kWidened,
            "GET https://api.ex.com/ at 10.1.2.0"},
           {"any address", Allow("GET api.ex.com"), Allow("GET api.ex.com") + ip("10.0.0.0/8"), kWidened,
            "GET https://api.ex.com/ at 10.0.0.0"},
           {"a prefix that unlocks nothing", Allow("GET api.ex.com"), ip("0.0.0.0/0, '::/0'"), kEqual},
           {"metadata by its address", "", Allow("GET 169.254.169.254") + Key("ip: [169.254.169.254]"), kWidened,
            "GET https://169.254.169.254/"},
           {"metadata in its mapped form", "", Allow("'tcp [::ffff:169.254.169.254]:80'"), kWidened,
            "TCP bytes to 169.254.169.254:80"},
           {"a prefix as a target", Allow("tcp 10.1.0.0/16:5432"), Allow("tcp 10.0.0.0/8:5432"), kWidened,
            "TCP bytes to 10.0.0.0:5432"},
           {"a deny by address removed", Allow("GET api.ex.com") + Deny("tcp 1.2.3.0/24"), Allow("GET api.ex.com"), kWidened,
            "GET https://api.ex.com/ at 1.2.3.0"},
           {"a prefix for two families", Allow("tcp db:1") + Key("ip: [10.0.0.0/8]"),
            Allow("tcp db:1") + Key("ip: [10.0.0.0/8, 'fd00::/8']"), kWidened, "TCP bytes to db:1 at fd00::"},
       })
    Check(c);
}

TEST(Cases, OfProcesses) {
  const auto by = [](const std::string& list) { return Allow("GET api.ex.com") + Key("by: [" + list + "]"); };
  const std::string digest = "'sha256:" + std::string(64, 'b') + "'";
  for (const Case& c : std::vector<Case>{
           {"a folder for a program", by("/usr/bin/curl"), by("/usr/bin/*"), kWidened, "GET https://api.ex.com/ by /usr/bin/a"},
           {"a program of the folder", by("/usr/bin/*"), by("/usr/bin/curl"), kNarrowed, "",
            "GET https://api.ex.com/ by /usr/bin/a"},
           {"anyone", by("/usr/bin/curl"), Allow("GET api.ex.com"), kWidened, "GET https://api.ex.com/ by /a"},
           {"a deny by program removed", Allow("GET api.ex.com") + Deny("GET api.ex.com") + Key("by: [/usr/bin/nc]"),
            Allow("GET api.ex.com"), kWidened, "GET https://api.ex.com/ by /usr/bin/nc"},
           {"two programs in two rules", by("/a, /b"), by("/b") + by("/a"), kEqual},
           {"a file for its digest", by("/usr/bin/git"), by("/usr/bin/git, " + digest), kWidened,
            "GET https://api.ex.com/ by /a (sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb)"},
           {"under a shell", Allow("GET api.ex.com") + Key("under: [/bin/sh]"), Allow("GET api.ex.com"), kWidened,
            "GET https://api.ex.com/ by /a"},
           {"under another shell", Allow("GET api.ex.com") + Key("under: [/bin/sh]"),
            Allow("GET api.ex.com") + Key("under: [/bin/sh, /bin/zsh]"), kWidened, "GET https://api.ex.com/ by /bin/zsh"},
       })
    Check(c);
}

TEST(Cases, OfLayers) {
  const std::string get = Allow("GET api.ex.com");
  for (const Case& c : std::vector<Case>{
           {"tls beside GET", get, get + Allow("tls api.ex.com"), kWidened, "TLS bytes to api.ex.com:443"},
           {"tcp beside GET", get, get + Allow("tcp api.ex.com:443"), kWidened, "TCP bytes to api.ex.com:443"},
           {"tcp for tls", Allow("tls api.ex.com"), Allow("tcp api.ex.com:443"), kWidened, "TCP bytes to api.ex.com:443"},
           {"requests for bytes", Allow("tcp api.ex.com:443"), kX, kNarrowed, "", "TCP bytes to api.ex.com:443"},
           {"a deny inside voids bytes", Allow("tls api.ex.com"), Allow("tls api.ex.com") + Deny("GET api.ex.com/x"), kNarrowed,
            "", "TLS bytes to api.ex.com:443"},
           {"a deny of lookups", get, get + Deny("dns api.ex.com"), kNarrowed, "", "GET https://api.ex.com/"},
           {"a deny of tls", get, get + Deny("tls api.ex.com"), kNarrowed, "", "GET https://api.ex.com/"},
           {"requests within bytes", Allow("tcp api.ex.com:443"), Allow("tcp api.ex.com:443") + get, kEqual},
           {"cleartext within tls is not", Allow("tls api.ex.com"), Allow("tls api.ex.com") + Allow("GET http://api.ex.com:443"),
            kWidened, "GET http://api.ex.com:443/"},
           {"a lookup alone", "", Allow("dns api.ex.com"), kWidened, "lookup of api.ex.com"},
           {"a lookup of text", Allow("dns api.ex.com"), Allow("dns api.ex.com") + Key("types: [A, AAAA, TXT]"), kWidened,
            "lookup of api.ex.com (type TXT)"},
           {"a lookup that GET implies", get, get + Allow("dns api.ex.com"), kEqual},
           {"reach that a deny leaves as a lookup", "", get + Deny("tcp api.ex.com"), kWidened, "lookup of api.ex.com"},
           {"datagrams", "", Allow("udp time.ex:123"), kWidened, "UDP datagrams to time.ex:123"},
           {"datagrams denied", Allow("udp **:1-65535"), Allow("udp **:1-65535") + Deny("udp time.ex"), kNarrowed, "",
            "UDP datagrams to time.ex:443"},
           {"audit", get, "version: 1\nmode: audit\nrules:\n" + get, kWidened, "POST https://api.ex.com/"},
           {"bytes beside audit, which looks inside there", "version: 1\nmode: audit\nrules: []\n",
            "version: 1\nmode: audit\nrules:\n" + Allow("tcp api.ex.com:443"), kWidened, "TCP bytes to api.ex.com:443"},
           {"tls beside audit", "version: 1\nmode: audit\nrules: []\n",
            "version: 1\nmode: audit\nrules:\n" + Allow("tls api.ex.com"), kWidened, "TLS bytes to api.ex.com:443"},
           {"bytes that audit passes already", "version: 1\nmode: audit\nrules: []\n",
            "version: 1\nmode: audit\nrules:\n" + Allow("tcp api.ex.com:8080") + get, kEqual},
           {"an allow that makes audit look inside", "version: 1\nmode: audit\nrules: []\n",
            "version: 1\nmode: audit\nrules:\n" + Allow("GET api.ex.com:8443"), kNarrowed, "", "TCP bytes to api.ex.com:8443"},
           {"audit for bytes at 443", Allow("tcp api.ex.com:443"), "version: 1\nmode: audit\nrules: []\n", kIncomparable,
            "TCP bytes to api.ex.com:1", "TCP bytes to api.ex.com:443"},
           {"a socket's folder", Allow("unix /run/a.sock"), Allow("unix /run/*"), kWidened, "connect to /run/b"},
           {"a socket denied", Allow("unix /run/**"), Allow("unix /run/**") + Deny("unix /run/docker.sock"), kNarrowed, "",
            "connect to /run/docker.sock"},
       })
    Check(c);
}

TEST(Cases, OfQueriesAndHeaders) {
  const auto query = [](const std::string& rule, const std::string& text) { return rule + Key("query: { " + text + " }"); };
  const std::string s = Allow("GET api.ex.com/s");
  for (const Case& c : std::vector<Case>{
           {"a deny given a query", kX + Deny("POST api.ex.com/x"), kX + query(Deny("POST api.ex.com/x"), "force: 'true'"),
            kWidened, "POST https://api.ex.com/x"},
           {"a matcher dropped", query(s, "q: ok-*"), s, kWidened, "GET https://api.ex.com/s"},
           {"a value more", query(s, "q: a"), query(s, "q: [a, b]"), kWidened, "GET https://api.ex.com/s?q=b"},
           {"a list is not two rules", query(s, "q: a") + query(s, "q: b"), query(s, "q: [a, b]"), kWidened,
            "GET https://api.ex.com/s?q=a&q=b"},
           {"closed keys opened", s + Key("query-keys: [a]"), s, kWidened, "GET https://api.ex.com/s?aa"},
           {"an empty value is absent's neighbour", query(s, "q: ''"), query(s, "q: '*'"), kWidened,
            "GET https://api.ex.com/s?q=a"},
           {"a deny of one value", s, s + query(Deny("GET api.ex.com"), "q: x*"), kNarrowed, "", "GET https://api.ex.com/s?q=x"},
           {"a header dropped", s + Key("headers: { x-team: a }"), s, kWidened, "GET https://api.ex.com/s"},
           {"a header's deny meets the other spelling",
            s + Key("headers: { x-a: ok }") + Deny("GET api.ex.com") + Key("headers: { x-a: bad }"),
            s + Key("headers: { x-a: ok }"), kWidened, "GET https://api.ex.com/s with `x-a: ok` with `x_a: bad`"},
           {"an empty key", s + Key("query-keys: [a]"), query(s, "'': '*'"), kIncomparable,
            "GET https://api.ex.com/s?=", "GET https://api.ex.com/s"},
           {"what only a query of two readings shows",
            query(Allow("GET api.ex.com/r/info/refs"), "service: '*'") + Deny("git fetch-pack api.ex.com/r"),
            Allow("GET api.ex.com/r/info/refs") + Deny("git fetch-pack api.ex.com/r"), kWidened,
            "GET https://api.ex.com/r/info/refs?service&a;"},
           {"no request upgrades", s, s + Key("headers: { upgrade: x }"), kNarrowed, "", "GET https://api.ex.com/s"},
           {"the other method in a header", s, s + Key("method-override: true"), kWidened,
            "GET https://api.ex.com/s with `x-http-method-override: `"},
       })
    Check(c);
}

TEST(Cases, OfGit) {
  const std::string fetch = Allow("git fetch-pack github.com/o/*");
  const std::string push = Allow("git receive-pack github.com/o/*");
  for (const Case& c : std::vector<Case>{
           {"push too", fetch, fetch + push, kWidened,
            "POST https://github.com/o/a/git-receive-pack (git "
            "receive-pack)"},
           {"letter case and suffix of a repository", Allow("git fetch-pack github.com/o/r"),
            Allow("git fetch-pack github.com/O/R.git"), kEqual},
           {"an owner's repositories", Allow("git fetch-pack github.com/o/r"), fetch, kWidened,
            "POST https://github.com/o/a/git-upload-pack (git fetch-pack)"},
           {"GET covers half a fetch", Allow("GET github.com/**"), Allow("GET github.com/**") + fetch, kWidened,
            "POST https://github.com/o/a/git-upload-pack (git fetch-pack)"},
           {"GET and POST cover it all", Allow("GET,POST github.com/**"), Allow("GET,POST github.com/**") + fetch, kEqual},
           {"a push denied", fetch + push, fetch + push + Deny("git receive-pack github.com/o/r"), kNarrowed, "",
            "POST https://github.com/o/r/git-receive-pack (git receive-pack)"},
           {"a deny of push leaves fetch", Allow("http github.com") + Deny("git receive-pack github.com"),
            Allow("http github.com") + Deny("git receive-pack github.com") + fetch, kEqual},
       })
    Check(c);
}

TEST(Cases, OfTime) {
  const std::string until = Allow("GET api.ex.com") + Key("until: 2027-01-31");
  for (const Case& c : std::vector<Case>{
           {"an end taken away", until, Allow("GET api.ex.com"), kWidened, "GET https://api.ex.com/"},
           {"an end moved", until, Allow("GET api.ex.com") + Key("until: 2027-02-28"), kWidened, "GET https://api.ex.com/"},
           {"an end that has passed", Allow("GET api.ex.com") + Key("until: 2026-01-31"), "", kEqual},
           {"an end given", Allow("GET api.ex.com"), until, kNarrowed, "", "GET https://api.ex.com/"},
       })
    Check(c);
}

// Widenings that a prover which reasons about one policy at a time, or about methods and hosts alone, does not see.
TEST(Cases, MissedElsewhere) {
  const std::string get = Allow("GET api.github.com");
  const std::string issues = Allow("GET,POST api.github.com/repos/o/r/issues/**");
  const std::string by = Key("by: [/usr/bin/curl]");
  const std::string audit = "version: 1\nmode: audit\nrules:\n";
  for (const Case& c : std::vector<Case>{
           {"bytes to a host without a credential", "", Allow("tcp attacker.example:443") + by, kWidened,
            "TCP bytes to attacker.example:443 by /usr/bin/curl"},
           {"read-only on a host with one", "", get + by, kWidened, "GET https://api.github.com/ by /usr/bin/curl"},
           {"requests become bytes", Allow("http api.github.com"), Allow("tcp api.github.com:443"), kWidened,
            "TCP bytes to api.github.com:443"},
           {"one issue's path becomes all", Allow("POST api.github.com/repos/o/r/issues"), Allow("POST api.github.com/**"),
            kWidened, "POST https://api.github.com/"},
           {"a deny of DELETE removed", Allow("http api.github.com") + Deny("DELETE api.github.com"),
            Allow("http api.github.com"), kWidened, "DELETE https://api.github.com/"},
           {"enforce becomes audit", issues, audit + issues, kWidened, "GET https://api.github.com/"},
           {"tls passed through", get, get + Allow("tls api.github.com"), kWidened, "TLS bytes to api.github.com:443"},
           {"one address becomes its network", Allow("GET in.corp") + Key("ip: [10.1.2.3/32]"),
            Allow("GET in.corp") + Key("ip: [10.0.0.0/8]"), kWidened, "GET https://in.corp/ at 10.0.0.0"},
           {"a prefix without a host", get, get + Allow("tcp 10.0.0.0/8:443"), kWidened, "TCP bytes to 10.0.0.0:443"},
           {"seven methods become all", Allow("GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS a.ex"), Allow("http a.ex"), kWidened,
            "PROPFIND https://a.ex/"},
           {"MKCOL", Allow("GET a.ex"), Allow("GET,MKCOL a.ex"), kWidened, "MKCOL https://a.ex/"},
           {"push beside fetch", Allow("git fetch-pack github.com/o/r"),
            Allow("git fetch-pack github.com/o/r") + Allow("git receive-pack github.com/o/r"), kWidened,
            "POST https://github.com/o/r/git-receive-pack (git receive-pack)"},
           {"metadata, reading only", "", Allow("GET http://169.254.169.254") + Key("ip: [169.254.169.254]"), kWidened,
            "GET http://169.254.169.254/"},
           {"a wildcard that holds a metadata name", "", Allow("GET http://*.google.internal") + Key("ip: [169.254.169.254]"),
            kWidened, "GET http://a.google.internal/ at 169.254.169.254"},
           {"wildcards that overlap without covering", Allow("GET bucket.s3.*.amazon.test"),
            Allow("GET bucket.s3.*.amazon.test") + Allow("GET *.s3.us-east-1.amazon.test"), kWidened,
            "GET https://a.s3.us-east-1.amazon.test/"},
           {"a second rule for the same host and port", get, get + Allow("http api.github.com/admin/**"), kWidened,
            "POST https://api.github.com/admin/"},
           {"one host and port twice with unlike access", get + Allow("http api.github.com"),
            get + Allow("http api.github.com") + Allow("GET http://169.254.169.254") + Key("ip: [169.254.169.254]"), kWidened,
            "GET http://169.254.169.254/"},
       })
    Check(c);
}

// What is new is the method, not the reach of the host.
TEST(Cases, AReadOnlyHostThatIsWrittenToIsRefusedForItsMethod) {
  const Proof proof =
      Compare(*Loaded(Allow("GET api.ex.com")), *Loaded(Allow("GET,HEAD,OPTIONS,POST,PUT,PATCH api.ex.com")), {.at = kNow});
  ASSERT_EQ(proof.verdict, kWidened);
  ASSERT_EQ(proof.gains.size(), 1u) << Shown(proof);
  EXPECT_EQ(proof.gains[0].witness.Text(), "POST https://api.ex.com/");
  EXPECT_EQ(proof.gains[0].refused_because, policy::Reason::kMethod);
}

TEST(Cases, FalseAlarmsElsewhere) {
  for (const Case& c : std::vector<Case>{
           {"letter case of a host", Allow("GET Api.GitHub.com"), Allow("GET api.github.com"), kEqual},
           {"a wildcard narrowed", Allow("http *.github.com"), Allow("http api.github.com"), kNarrowed},
           {"a host already covered", Allow("GET *.github.com"), Allow("GET *.github.com") + Allow("GET api.github.com"), kEqual},
           {"a folder narrowed to a program", Allow("GET a.ex") + Key("by: [/usr/bin/*]"),
            Allow("GET a.ex") + Key("by: [/usr/bin/curl]"), kNarrowed},
           {"HEAD beside GET", Allow("GET a.ex"), Allow("GET,HEAD a.ex"), kEqual},
           {"bytes become requests", Allow("tcp a.ex:443"), Allow("http a.ex"), kNarrowed},
           {"DELETE added and denied", Allow("GET a.ex"), Allow("DELETE,GET a.ex") + Deny("DELETE a.ex"), kEqual},
           {"a fetch that requests cover", Allow("http github.com"),
            Allow("http github.com") + Allow("git fetch-pack github.com/o/r"), kEqual},
       })
    Check(c);
}

TEST(Cases, OfOperations) {
  const std::string query = Allow("graphql query api.ex.com/g");
  const std::string post = Allow("POST api.ex.com/g");
  const std::string calls = Allow("mcp tools/call api.ex.com/m") + Key("tool: [s]");
  const std::string push = Allow("git receive-pack github.com/o/r");
  for (const Case& c : std::vector<Case>{
           {"a WebSocket beside GET", Allow("GET api.ex.com"), Allow("GET api.ex.com") + Allow("ws api.ex.com"), kWidened,
            "GET https://api.ex.com/ (WebSocket)"},
           {"every method is no WebSocket", kX, kX + Allow("ws api.ex.com"), kWidened, "GET https://api.ex.com/ (WebSocket)"},
           {"a mutation beside a query", query, query + Allow("graphql mutation api.ex.com/g"), kWidened,
            "POST https://api.ex.com/g (graphql mutation a)"},
           {"a deny of mutations removed", post + Deny("graphql mutation api.ex.com/g"), post, kWidened,
            "POST https://api.ex.com/g (graphql mutation a)"},
           {"a query within a method", post, post + Allow("graphql mutation api.ex.com/g"), kEqual},
           {"another root field", query + Key("fields: [a]"), query + Key("fields: [a, b]"), kWidened,
            "POST https://api.ex.com/g (graphql query b)"},
           {"a method for operations", Allow("graphql mutation api.ex.com/g"), post, kWidened, "POST https://api.ex.com/g"},
           {"one call of gRPC for all of a service", Allow("grpc api.ex.com p.S/M"), Allow("grpc api.ex.com p.S/*"), kWidened,
            "POST https://api.ex.com/p.S/ (grpc)"},
           {"another tool", calls, Allow("mcp tools/call api.ex.com/m") + Key("tool: [s, t]"), kWidened,
            "POST https://api.ex.com/m (jsonrpc tools/call t)"},
           {"a value in the arguments no longer looked at", calls + Key("json: { /params/arguments/o: [x] }"), calls, kWidened,
            "POST https://api.ex.com/m (jsonrpc tools/call s)"},
           {"a value in a body", post + Key("json: { /model: [small] }"), post + Key("json: { /model: [small, big] }"), kWidened,
            "POST https://api.ex.com/g (JSON /model=big)"},
           {"pushes of every ref", push + Key("refs: [refs/heads/agent/*]"), push, kWidened,
            "POST https://github.com/o/r/git-receive-pack (push: update a)"},
           {"deletion beside creation", push + Key("refs: [refs/heads/*]"),
            push + Key("refs: [refs/heads/*]") + Key("ref-changes: [create, update, delete]"), kWidened,
            "POST https://github.com/o/r/git-receive-pack (push: delete refs/heads/)"},
           {"fields in another order and twice", query + Key("fields: [a, b]"),
            query + Key("fields: [b]") + query + Key("fields: [a]"), kEqual},
       })
    Check(c);
}

TEST(Cases, OfLfs) {
  const std::string fetch = Allow("git fetch-pack github.com/o/r");
  const std::string push = Allow("git receive-pack github.com/o/r");
  const std::string lfs = Key("lfs: true");
  const std::string post = Allow("POST github.com/o/r/info/lfs/**");
  for (const Case& c : std::vector<Case>{
           {"downloads beside fetch", fetch, fetch + lfs, kWidened},
           {"uploads beside push", push, push + lfs, kWidened},
           {"uploads for downloads", fetch + lfs, fetch + push + lfs, kIncomparable},
           {"what posts reach already", post + Allow("GET,PUT github.com/o/r/info/lfs/**") + push,
            post + Allow("GET,PUT github.com/o/r/info/lfs/**") + push + lfs, kWidened},
           {"a deny of uploads leaves downloads", post, post + Deny("git receive-pack github.com/o/r") + lfs, kNarrowed},
           {"a deny of the other operation cuts what may have a body", fetch + lfs,
            fetch + lfs + Deny("git receive-pack github.com/o/r") + lfs, kNarrowed},
           {"a deny of fetch", fetch + lfs, fetch + lfs + Deny("git fetch-pack github.com/o/r") + lfs, kNarrowed},
           {"another repository's", fetch + lfs, fetch + lfs + Deny("git fetch-pack github.com/o/other") + lfs, kEqual},
           {"beside GraphQL on the same host", fetch + lfs + Allow("graphql query github.com/api/graphql"),
            fetch + lfs + Allow("graphql query github.com/api/graphql") + Allow("graphql mutation github.com/api/graphql"),
            kWidened, "POST https://github.com/api/graphql (graphql mutation a)"},
           {"the operation as JSON", post + Key("json: {/operation: download}"),
            post + Key("json: {/operation: [download, upload]}"), kWidened},
           {"a deny of the operation as JSON", fetch + push + lfs,
            fetch + push + lfs + Deny("POST github.com/**") + Key("json: {/operation: upload}"), kNarrowed},
       })
    Check(c);
}

// As many as people write, with a number to spare.
TEST(Cases, OfLfsInManyRepositories) {
  std::string many;
  for (int i = 0; i < 20; ++i)
    for (const char* service : {"fetch-pack", "receive-pack"})
      many += Allow("git " + std::string(service) + " github.com/o/r" + std::to_string(i)) + Key("lfs: true");
  many += Deny("git receive-pack github.com/o/r3") + Key("lfs: true");
  const Proof same = Compare(*Loaded(many), *Loaded(many), {.at = kNow});
  EXPECT_EQ(same.verdict, Verdict::kEqual);
  const Proof more =
      Compare(*Loaded(many), *Loaded(many + Allow("git receive-pack github.com/o/new") + Key("lfs: true")), {.at = kNow});
  EXPECT_EQ(more.verdict, Verdict::kWidened) << Shown(more);
  EXPECT_LT(more.steps, 5'000'000U);
}

// A batch of LFS may be a GraphQL request or a call besides.
TEST(Cases, OfLfsBesideWhatReadsTheSameBody) {
  const std::string lfs = Allow("git fetch-pack a.ex/o/r") + Key("lfs: true");
  const std::string post = Allow("POST a.ex/o/**");
  for (const Case& c : std::vector<Case>{
           {"GraphQL beside", lfs, lfs + Allow("graphql query a.ex/g"), kWidened, "POST https://a.ex/g (graphql query a)"},
           {"MCP beside", lfs, lfs + Allow("mcp tools/call a.ex/m"), kWidened, "POST https://a.ex/m (jsonrpc tools/call a)"},
           {"JSON beside", lfs, lfs + Allow("POST a.ex/x") + Key("json: { /operation: [download] }"), kWidened,
            "POST https://a.ex/x (JSON /operation=download)"},
           {"a deny of mutations closes batches that are one", lfs + post, lfs + post + Deny("graphql mutation a.ex/**"),
            kNarrowed},
       })
    Check(c);
}

TEST(Cases, NeverOfOperations) {
  const Options options{.at = kNow};
  const auto never = [](const std::string& rule) {
    return Loaded("version: 1\nassert:\n  - never: " + rule + "\nrules: []\n")->compiled().assertions.front().rule;
  };
  const auto broken = [&](const std::string& rules, const std::string& rule) {
    const Proof proof = CheckNever(*Loaded(rules), never(rule), options);
    EXPECT_NE(proof.verdict, Verdict::kUnknown) << Shown(proof);
    return proof.gains.empty() ? std::string() : proof.gains.front().witness.Text();
  };
  const std::string mutation = "graphql mutation api.ex.com/g";
  EXPECT_EQ(broken(Allow("graphql query api.ex.com/g"), mutation), "");
  EXPECT_EQ(broken(Allow("POST api.ex.com/g"), mutation), "POST https://api.ex.com/g (graphql mutation a)");
  EXPECT_EQ(broken(Allow("POST api.ex.com/g") + Deny(mutation), mutation), "");
  EXPECT_EQ(broken(Allow("ws api.ex.com"), "ws **"), "GET https://api.ex.com/ (WebSocket)");
  EXPECT_EQ(broken(Allow("http api.ex.com"), "ws **"), "");
  const std::string agents = Allow("git receive-pack github.com/o/r") + Key("refs: [refs/heads/agent/*]");
  const std::string main = "git receive-pack github.com/**\n    refs: [refs/heads/main]";
  EXPECT_EQ(broken(agents, main), "");
  EXPECT_EQ(broken(Allow("git receive-pack github.com/o/r"), main),
            "POST https://github.com/o/r/git-receive-pack (push: update refs/heads/main)");
}

}  // namespace
}  // namespace sluice::prover
