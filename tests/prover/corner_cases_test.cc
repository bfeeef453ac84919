// Corners that the small worlds seldom draw: what only one spelling, one key, one port or one of many questions tells apart.

#include "tests/prover/cases.h"

namespace sluice::prover {
namespace {

std::string DenyJson(const std::string& values) { return Deny("POST api.ex.com/x") + Key("json: { " + values + " }"); }

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
