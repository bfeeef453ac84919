// Corners that the small worlds seldom draw: what only one spelling, one key, one port or one of many questions tells apart.

#include <fmt/format.h>

#include "tests/prover/cases.h"

namespace sluice::prover {
namespace {

std::string DenyJson(const std::string& values) { return Deny("POST api.ex.com/x") + Key("json: { " + values + " }"); }

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

// A deny of a number means all of its spellings.
TEST(Corners, OfNumbers) {
  const std::string post = Allow("POST api.ex.com/x");
  const auto only = [](const std::string& values) { return Allow("POST api.ex.com/x") + Key("json: { " + values + " }"); };
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

}  // namespace
}  // namespace sluice::prover
