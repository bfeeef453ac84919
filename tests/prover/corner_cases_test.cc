// Corners that the small worlds seldom draw: what only one spelling, one key, one port or one of many questions tells apart.

#include <fmt/format.h>

#include "tests/prover/cases.h"

namespace sluice::prover {
namespace {

std::string DenyJson(const std::string& values) { return Deny("POST api.ex.com/x") + Key("json: { " + values + " }"); }

TEST(Corners, OfHosts) {
  // Every label that is no A-label, one first letter after the other.
  std::string letters;
  for (const char c : std::string_view("abcdefghijklmnopqrstuvwxyz0123456789-_"))
    letters += Allow(std::string("'GET ") + c + "*.ex.com'");
  for (const Case& c : std::vector<Case>{
           {"a deny that holds A-labels alone", Allow("GET *.ex.com") + Deny("GET xn--*.ex.com"), Allow("GET *.ex.com"), kWidened,
            "GET https://xn--.ex.com/"},
           {"A-labels are in no star within a label", letters, letters + Allow("GET *.ex.com"), kWidened,
            "GET https://xn--.ex.com/"},
       })
    Check(c);
}

TEST(Corners, OfAudit) {
  const auto audited = [](const std::string& rules) {
    return "version: 1\nmode: audit\n" + (rules.empty() ? "rules: []\n" : "rules:\n" + rules);
  };
  const std::string bytes = Allow("tcp **:1-65535") + Allow("udp **:1-65535");
  for (const Case& c : std::vector<Case>{
           {"a private address that audit refuses", audited(""), Allow("GET api.ex.com") + Key("ip: [1.1.1.1, 10.0.0.0/8]"),
            kIncomparable, "GET https://api.ex.com/ at 10.0.0.0"},
           {"requests in bytes that audit passes", Allow("GET api.ex.com:8443"), audited(""), kWidened,
            "POST https://api.ex.com:8443/"},
           {"lookups of a type that no rule names", bytes + Allow("unix /**") + Allow("dns **"), audited(bytes), kWidened,
            "lookup of a (type TYPE65280)"},
       })
    Check(c);
}

TEST(Corners, OfProcesses) {
  const auto by = [](const std::string& path) { return Allow("GET api.ex.com") + Key("by: ['" + path + "']"); };
  Check({"a star in a program's name", by("/usr/bin/b"), by("/usr/bin/b") + by("/usr/bin/a%2A"), kWidened,
         "GET https://api.ex.com/ by /usr/bin/a*"});
}

// A field and an operation have names, not any text.
TEST(Corners, OfGraphqlNames) {
  std::string letters;
  for (const char c : std::string_view("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"))
    letters += fmt::format("{}'{}*'", letters.empty() ? "" : ", ", c);
  const std::string all = Allow("graphql query api.ex.com/g");
  for (const Case& c : std::vector<Case>{
           {"every field", all + Key("fields: [" + letters + "]"), all, kEqual},
           {"every operation with a name", all + Key("operation: [" + letters + "]"), all + Key("operation: ['*']"), kEqual},
           {"and those without", all + Key("operation: [" + letters + "]"), all, kWidened,
            "POST https://api.ex.com/g (graphql query a)"},
           {"a field that is none", all, all + Deny("graphql query api.ex.com/g") + Key("fields: ['1*', 'a-b', '*.*']"), kEqual},
       })
    Check(c);
}

TEST(Corners, OfGraphqlInAUrl) {
  const std::string post = Allow("POST api.ex.com/g");
  const std::string closed = post + Allow("GET api.ex.com/g") + Key("query-keys: [query]");
  const std::string query = Allow("graphql query api.ex.com/g");
  const std::string mutation = Deny("graphql mutation api.ex.com/g");
  std::string headers;
  for (const char* name : {"content-type", "content-length", "transfer-encoding"})
    headers += Deny("GET api.ex.com/g") + Key(fmt::format("headers: {{ {}: ['*'] }}", name));
  const std::string bare = Allow("GET api.ex.com/g") + headers + Deny("GET api.ex.com/g") + Key("query: { query: ['*'] }");
  std::string members;
  for (const char* name : {"variables", "operationName", "extensions"})
    members += Deny("GET api.ex.com/g") + Key(fmt::format("query: {{ {}: ['*'] }}", name));
  for (const Case& c : std::vector<Case>{
           {"a member that no rule names", closed, closed + query, kWidened,
            "GET https://api.ex.com/g?query=%7Ba%7D&variables (graphql query a)"},
           {"a member beside those that rules name",
            post + Allow("GET api.ex.com/g") + Key("query-keys: [query, variables, operationName]"),
            post + Allow("GET api.ex.com/g") + Key("query-keys: [query, variables, operationName]") + query, kWidened,
            "GET https://api.ex.com/g?extensions&query=%7Ba%7D (graphql query a)"},
           {"every member is named",
            post + Allow("GET api.ex.com/g") + Key("query-keys: [query, variables, operationName, extensions]"),
            post + Allow("GET api.ex.com/g") + Key("query-keys: [query, variables, operationName, extensions]") + query, kEqual},
           {"a key of the rule's own", post + query, post + query + query + Key("query: { k: [a] }"), kWidened,
            "GET https://api.ex.com/g?k=a&query=%7Ba%7D (graphql query a)"},
           {"an operation by another key than the one denied", bare + mutation, bare, kWidened,
            "GET https://api.ex.com/g?variables (with a body that no rule reads)"},
           {"by one that is no member", bare + members + mutation, bare + members, kWidened,
            "GET https://api.ex.com/g?documentid (with a body that no rule reads)"},
       })
    Check(c);
}

TEST(Corners, OfCalls) {
  const std::string ends = Allow("GET,DELETE api.ex.com/m");
  const std::string session = Allow("mcp initialize api.ex.com/m");
  std::string headers;
  for (const char* name : {"content-type", "content-length", "transfer-encoding"})
    headers += Deny("GET api.ex.com/m") + Key(fmt::format("headers: {{ {}: ['*'] }}", name));
  const std::string bare = Allow("GET api.ex.com/m") + headers + Deny("GET api.ex.com/m") + Key("query: { method: ['*'] }");
  for (const Case& c : std::vector<Case>{
           {"a session's notifications", ends + Allow("jsonrpc * api.ex.com/m") + Deny("jsonrpc *o* api.ex.com/m"), session,
            kIncomparable, "POST https://api.ex.com/m (jsonrpc notifications/)"},
           {"a session's pings", ends + Allow("jsonrpc * api.ex.com/m") + Deny("jsonrpc *p* api.ex.com/m"), session,
            kIncomparable, "POST https://api.ex.com/m (jsonrpc ping)"},
           {"a call by a key in another case than the one denied", bare + Deny("jsonrpc x api.ex.com/m"), bare, kWidened,
            "GET https://api.ex.com/m?Method (jsonrpc x)"},
       })
    Check(c);
}

// Parameters of a media type are told apart where rules go by its text.
TEST(Corners, OfMediaTypes) {
  const auto of = [](const std::string& rule, const std::string& types) {
    return Allow(rule) + Key("headers: { content-type: [" + types + "] }");
  };
  const std::string edit = "graphql mutation api.ex.com/g";
  const std::string call = "grpc api.ex.com p.S/m";
  for (const Case& c : std::vector<Case>{
           {"a parameter", of(edit, "application/json"), of(edit, "application/json, 'application/json;*'"), kWidened},
           {"one that says UTF-8", of(edit, "application/json"), of(edit, "application/json, '*utf-8'"), kWidened},
           {"one that says another character set", of(edit, "application/json"), of(edit, "application/json, '*=latin1'"),
            kEqual},
           {"any of gRPC's", of(call, "application/grpc"), of(call, "application/grpc, '*=latin1'"), kWidened},
           {"a deny of one", of(edit, "'*'") + Deny("POST api.ex.com/g") + Key("headers: { content-type: ['*;*'] }"),
            of(edit, "'*'"), kWidened},
       })
    Check(c);
}

// A deny of a number means all of its spellings.
TEST(Corners, OfNumbers) {
  const std::string post = Allow("POST api.ex.com/x");
  const auto only = [](const std::string& values) { return Allow("POST api.ex.com/x") + Key("json: { " + values + " }"); };
  // What no reader holds every deny of a number means.
  const auto rounded = [&](const std::string& glob) { return only("/n: ['" + glob + "']") + DenyJson("/n: ['5']"); };
  for (const Case& c : std::vector<Case>{
           {"a glob for a number", post + DenyJson("/n: ['1']"), post + DenyJson("/n: ['1*']"), kIncomparable,
            "POST https://api.ex.com/x (JSON /n=0.1e1)"},
           {"and for all that begin so", post + DenyJson("/n: ['1']"), post + DenyJson("/n: ['1*', '0*']"), kIncomparable},
           {"and for all that is no number", post + DenyJson("/n: ['1']"),
            post + DenyJson("/n: ['1*', '0*', '2*', '3*', '4*', '5*', '6*', '7*', '8*', '9*', '-*']"), kNarrowed},
           {"zero with a sign", post + DenyJson("/n: ['0']"), post + DenyJson("/n: ['0*', '1*']"), kIncomparable,
            "POST https://api.ex.com/x (JSON /n=-0)"},
           {"one spelling allowed, another denied", only("/n: ['1']") + DenyJson("/n: ['1.0']"), only("/n: ['1']"), kWidened,
            "POST https://api.ex.com/x (JSON /n=1)"},
           {"another number", only("/n: ['1']") + DenyJson("/n: ['10']"), only("/n: ['1']"), kEqual},
           {"one that is read as the same", rounded("1.0*1") + DenyJson("/n: ['1']"), rounded("1.0*1"), kWidened},
           {"one just below it", rounded("0.9*") + DenyJson("/n: ['1']"), rounded("0.9*"), kWidened},
           {"one between two that are read", rounded("9007199254740*93") + DenyJson("/n: ['9007199254740992']"),
            rounded("9007199254740*93"), kWidened},
           {"zeros before it", rounded("0.000*e6") + DenyJson("/n: ['100']"), rounded("0.000*e6"), kWidened,
            "POST https://api.ex.com/x (JSON /n=0.0001e6)"},
           {"and behind it", rounded("10000e*") + DenyJson("/n: ['1']"), rounded("10000e*"), kWidened,
            "POST https://api.ex.com/x (JSON /n=10000e-4)"},
           {"a point behind a large one", rounded("1000000.*") + DenyJson("/n: ['1000000']"), rounded("1000000.*"), kWidened,
            "POST https://api.ex.com/x (JSON /n=1000000.0)"},
       })
    Check(c);
}

TEST(Corners, OfPointers) {
  const std::string name = Allow("dns api.ex.com");
  const std::string post = Allow("POST api.ex.com/x");
  for (const Case& c : std::vector<Case>{
           {"a value cannot have values below it", name, name + Allow("POST api.ex.com/x") + Key("json: { /a: [x], /a/b: [v] }"),
            kEqual},
           {"a deny of what lies above", name,
            name + Allow("POST api.ex.com/x") + Key("json: { /a/b: [v] }") + DenyJson("/a: [v]"), kEqual},
           {"a list has more than one value", post + DenyJson("/a: [x], /a/0: [v]"), post, kWidened,
            "POST https://api.ex.com/x (JSON /a/0=v, /a/a=x)"},
           {"one pointer to a reader that folds", post + DenyJson("\"/\\u017f\": [x]"), post + DenyJson("/s: [x]"), kEqual},
       })
    Check(c);
}

TEST(Corners, OfGit) {
  const std::string push = Allow("git receive-pack hub.ex/o/r");
  const std::string lfs = Key("lfs: true");
  const std::string fetch = Allow("git fetch-pack hub.ex/o/r");
  const std::string get = Allow("GET hub.ex/o/r/.git/**");
  const std::string post = Allow("POST hub.ex/o/r/git-upload-pack/");
  for (const Case& c : std::vector<Case>{
           {"a deny of fetch leaves push", Allow("GET hub.ex/**"),
            Allow("GET hub.ex/**") + push + Deny("git fetch-pack hub.ex/o/r"), kIncomparable,
            "POST https://hub.ex/o/r/git-receive-pack (git receive-pack)"},
           {"every ref where LFS posts reach already", push + Key("refs: [refs/heads/a]") + lfs, push + lfs, kWidened,
            "POST https://hub.ex/o/r/git-receive-pack (push: update a)"},
           {"two dots before the suffix", Allow("git fetch-pack hub.ex/o/a.") + Deny("git fetch-pack hub.ex/o/*t"),
            Allow("git fetch-pack hub.ex/o/a."), kEqual},
           {"a suffix that is a segment", get, get + Deny("git fetch-pack hub.ex/o/r"), kNarrowed, "",
            "GET https://hub.ex/o/r/.git/info/refs"},
           {"a slash behind the service", post, post + Deny("git fetch-pack hub.ex/o/r"), kNarrowed, "",
            "POST https://hub.ex/o/r/git-upload-pack/"},
           {"an object to verify is none to fetch", fetch + lfs, fetch + lfs + Allow("GET hub.ex/o/r/info/lfs/objects/a/verify"),
            kWidened, "GET https://hub.ex/o/r/info/lfs/objects/a/verify"},
           {"the last of two folders of LFS counts", fetch + lfs,
            fetch + lfs + Allow("GET hub.ex/o/r/info/lfs/objects/a/info/lfs/b"), kWidened,
            "GET https://hub.ex/o/r/info/lfs/objects/a/info/lfs/b"},
           {"what a deny reads as LFS it does not read as git", "",
            Allow("git receive-pack hub.ex") + Deny("git receive-pack hub.ex") + lfs, kWidened,
            "GET https://hub.ex/info/lfs/info/refs?service=git-receive-pack (git receive-pack)"},
       })
    Check(c);
}

// git pushes nothing to learn whether it may push: a deny that looks at commands does not hold for it, and it passes no allow
// all of which one deny takes.
TEST(Corners, OfPushesOfNothing) {
  const std::string post = Allow("POST hub.ex/o/r/git-receive-pack");
  const std::string push = Allow("git receive-pack hub.ex/o/*") + Key("refs: [refs/heads/a, refs/heads/b]");
  const auto deny = [](const std::string& repo, const std::string& refs) {
    return Deny("git receive-pack hub.ex/o/" + repo) + Key("refs: [" + refs + "]");
  };
  const std::string halves = deny("*", "refs/heads/a") + deny("*", "refs/heads/b");
  for (const Case& c : std::vector<Case>{
           {"a deny of every ref for one of pushes", post + Deny("git receive-pack hub.ex/o/r"), post + deny("r", "'*'"),
            kWidened, "POST https://hub.ex/o/r/git-receive-pack (push: no command)"},
           {"two denies that share an allow", push + deny("*", "'*'"), push + halves, kWidened,
            "POST https://hub.ex/o/a/git-receive-pack (push: no command)"},
           {"one that takes all of it at one place", push + halves + deny("r", "'*'"), push + halves, kWidened,
            "POST https://hub.ex/o/r/git-receive-pack (push: no command)"},
           {"or what is all of it", push + deny("r", "'*'"), push + deny("r", "'refs/heads/*'"), kEqual},
           {"one that takes the rest", push + deny("*", "'*'"), push + deny("*", "'*'") + halves, kEqual},
       })
    Check(c);
}

// After many questions one gain is enough, but it is still found.
TEST(Corners, TheLastOfManyQuestions) {
  constexpr int kMany = 80;
  const std::string corp = Key("via: corp");
  const std::string proxies = "version: 1\nproxies:\n  corp: { url: 'http://proxy.corp:3128' }\nrules:\n";
  std::string plain;
  std::string routed;
  std::string methods;
  for (int i = 0; i < kMany; ++i) {
    const std::string rule = Allow(fmt::format("M{} api.ex.com/v/**", i));
    plain += rule;
    routed += rule + corp;
    methods += fmt::format("M{},", i);
  }
  const std::string elsewhere = Allow("OTHER api.ex.com/w/**");
  Check({"a path of the last method", plain + elsewhere, plain + elsewhere + Allow(methods + "OTHER api.ex.com/v/*"), kWidened,
         "OTHER https://api.ex.com/v/"});
  Check({"the way of the last method", proxies + routed + Allow("OTHER api.ex.com/v/**"),
         proxies + Allow(methods + "NEW,OTHER api.ex.com/v/*") + corp, kIncomparable,
         "OTHER https://api.ex.com/v/ through the upstream proxy `corp`"});
}

TEST(Corners, OneFindingSaysItsLookupsToo) {
  const Proof proof = Compare(*Loaded(""), *Loaded(Allow("GET api.ex.com")), {.at = kNow});
  EXPECT_EQ(proof.gains.size(), 1U) << Shown(proof);
}

}  // namespace
}  // namespace sluice::prover
