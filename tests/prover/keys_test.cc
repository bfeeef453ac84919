// Every verb and every key that the parser takes: some world draws it, brute force sees there something that hangs on it alone,
// and the prover says so. What is added to the language fails here until a world has it.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "policy/rule_keys.h"
#include "policy/rule_text.h"
#include "tests/prover/brute_force.h"

namespace sluice::prover {
namespace {

using policy::Rule;
using policy::Scheme;
using policy::Verb;

constexpr int kDraws = 1500;   // of rules in each world
constexpr int kAttempts = 40;  // to see one key beside one verb in one world
constexpr int kEnough = 2;     // comparisons of it over all worlds

// Beside which verbs a key is asked about: its own ones where it looks inside, one of each layer where it speaks of the
// connection.
enum class About : uint8_t { kVerb, kLayer };

struct Key {
  std::string_view name;
  const char* sample;  ///< empty: part of the target
  About about;
  bool (*has)(const Rule&);
  void (*drop)(Rule*);
};

bool TakesPath(const Rule& rule) { return policy::IsInner(rule.verb) || rule.verb == Verb::kUnix; }

const std::vector<Key>& Keys() {
  using R = Rule;
  static const std::vector<Key> kList{
      {"methods", "", About::kVerb, [](const R& r) { return !r.methods.empty(); }, [](R* r) { r->methods.clear(); }},
      {"scheme", "", About::kVerb,
       [](const R& r) { return policy::IsInner(r.verb) && (r.allow ? r.scheme == Scheme::kHttp : r.scheme.has_value()); },
       [](R* r) { r->scheme = r->allow ? std::optional(Scheme::kHttps) : std::nullopt; }},
      {"host", "", About::kLayer, [](const R& r) { return r.host.kind != policy::HostPattern::Kind::kAny; },
       [](R* r) { r->host = {.text = "**"}; }},
      {"ports", "", About::kLayer, [](const R& r) { return !r.ports.empty(); }, [](R* r) { r->ports.clear(); }},
      {"path", "", About::kVerb, [](const R& r) { return TakesPath(r) && !r.paths.empty(); }, [](R* r) { r->paths.clear(); }},
      {"by", "[/u/c]", About::kLayer, [](const R& r) { return !r.by.empty(); }, [](R* r) { r->by.clear(); }},
      {"under", "[/u/c]", About::kLayer, [](const R& r) { return !r.under.empty(); }, [](R* r) { r->under.clear(); }},
      {"ip", "[10.0.0.0/8]", About::kLayer, [](const R& r) { return !r.ip.empty(); }, [](R* r) { r->ip.clear(); }},
      {"until", "2027-01-31", About::kLayer, [](const R& r) { return r.until.has_value(); }, [](R* r) { r->until.reset(); }},
      {"query", "{ k: [a] }", About::kVerb, [](const R& r) { return !r.query.empty(); }, [](R* r) { r->query.clear(); }},
      {"query-keys", "[k]", About::kVerb, [](const R& r) { return r.query_keys.has_value(); },
       [](R* r) { r->query_keys.reset(); }},
      {"headers", "{ x-a: [a] }", About::kVerb, [](const R& r) { return !r.headers.empty(); }, [](R* r) { r->headers.clear(); }},
      {"encoded-slash", "true", About::kVerb, [](const R& r) { return r.encoded_slash; }, [](R* r) { r->encoded_slash = false; }},
      {"path-params", "true", About::kVerb, [](const R& r) { return r.path_params; }, [](R* r) { r->path_params = false; }},
      {"method-override", "true", About::kVerb, [](const R& r) { return r.method_override; },
       [](R* r) { r->method_override = false; }},
      {"types", "[TXT]", About::kVerb,
       [](const R& r) { return !r.types.empty() && r.types != std::vector<uint16_t>{policy::kDnsA, policy::kDnsAaaa}; },
       [](R* r) {
         r->types.clear();
         if (r->allow) r->types = {policy::kDnsA, policy::kDnsAaaa};
       }},
      {"operation", "[o]", About::kVerb, [](const R& r) { return !r.operation.empty(); }, [](R* r) { r->operation.clear(); }},
      {"fields", "[a]", About::kVerb, [](const R& r) { return !r.fields.empty(); }, [](R* r) { r->fields.clear(); }},
      {"tool", "[s]", About::kVerb, [](const R& r) { return !r.tool.empty(); }, [](R* r) { r->tool.clear(); }},
      {"json", "{ /x: ['1'] }", About::kVerb, [](const R& r) { return !r.json.empty(); }, [](R* r) { r->json.clear(); }},
      {"refs", "[refs/heads/a]", About::kVerb, [](const R& r) { return !r.refs.empty(); }, [](R* r) { r->refs.clear(); }},
      {"ref-changes", "[create]", About::kVerb, [](const R& r) { return r.ref_changes.has_value(); },
       [](R* r) { r->ref_changes.reset(); }},
      {"lfs", "true", About::kVerb, [](const R& r) { return r.lfs; }, [](R* r) { r->lfs = false; }},
      {"with", "c", About::kLayer, [](const R& r) { return !r.with.empty(); }, [](R* r) { r->with.clear(); }},
      {"via", "pc", About::kLayer, [](const R& r) { return !r.via.empty(); }, [](R* r) { r->via.clear(); }},
      {"pins", "[sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=]", About::kLayer,
       [](const R& r) { return !r.pins.empty(); }, [](R* r) { r->pins.clear(); }},
  };
  return kList;
}

// Keys that bear on nothing that is reached, and other names of one above.
constexpr std::array<std::string_view, 2> kForPeople{"note", "id"};
constexpr std::array<std::string_view, 3> kOtherNames{"verb", "repo", "rpc"};

std::string VerbOf(const Rule& rule) {
  const std::string verb(policy::VerbText(rule.verb));
  return rule.verb == Verb::kGraphql ? fmt::format("{} {}", verb, policy::GraphqlKindText(rule.graphql)) : verb;
}

std::string LabelOf(const Rule& rule, std::string_view key, About about) {
  const bool layer = about == About::kLayer && policy::IsInner(rule.verb);
  return fmt::format("{} {} {}", rule.allow ? "allow" : "deny", layer ? "requests" : VerbOf(rule), key);
}

// What the parser takes, one rule of each verb.
std::set<std::string> Demanded() {
  static const std::vector<std::string> kSamples{"GET a.t/x",
                                                 "git fetch-pack a.t/o/r",
                                                 "git receive-pack a.t/o/r",
                                                 "ws a.t/x",
                                                 "grpc a.t p.S/m",
                                                 "graphql query a.t/g",
                                                 "graphql mutation a.t/g",
                                                 "graphql subscription a.t/g",
                                                 "jsonrpc a a.t/m",
                                                 "mcp tools/call a.t/m",
                                                 "tls a.t",
                                                 "tcp a.t:443",
                                                 "udp a.t:443",
                                                 "dns a.t",
                                                 "unix /r/a"};
  std::set<std::string> demanded;
  std::set<Verb> verbs;
  for (const std::string& sample : kSamples) {
    for (const char* effect : {"allow", "deny"}) {
      const Rule rule = Value(policy::ParseCompact(effect[0] == 'a' ? policy::Effect::kAllow : policy::Effect::kDeny, sample));
      verbs.insert(rule.verb);
      demanded.insert(LabelOf(rule, "", About::kVerb));
      for (const Key& key : Keys()) {
        const std::string text =
            "version: 1\ncredentials:\n  c: { from: env A, send: bearer, to: [a.t] }\nproxies:\n  pc: { url: 'http://p.t:1' }\n"
            "rules:\n  - " +
            fmt::format("{}: {}\n    {}: {}\n", effect, sample, key.name, key.sample);
        if (*key.sample != '\0' && policy::LoadText(text, "p.yaml")) demanded.insert(LabelOf(rule, key.name, key.about));
      }
      if (TakesPath(rule)) demanded.insert(LabelOf(rule, "path", About::kVerb));
      if (policy::IsInner(rule.verb) && !policy::IsGit(rule.verb)) demanded.insert(LabelOf(rule, "scheme", About::kVerb));
      if (!rule.methods.empty()) demanded.insert(LabelOf(rule, "methods", About::kVerb));
      if (rule.verb != Verb::kUnix) demanded.insert(LabelOf(rule, "host", About::kLayer));
      if (rule.verb != Verb::kUnix && rule.verb != Verb::kDns) demanded.insert(LabelOf(rule, "ports", About::kLayer));
    }
  }
  EXPECT_EQ(verbs.size(), static_cast<size_t>(Verb::kUnix) + 1) << "a verb has no sample";
  return demanded;
}

// All that a deny of the verb could cut.
std::vector<Rule> Everything(const World& world, const Rule& deny) {
  const auto of = [&](const std::string& text) {
    Rule rule = Value(policy::ParseCompact(policy::Effect::kAllow, text));
    if (rule.verb != Verb::kDns && rule.verb != Verb::kUnix)
      for (const char* ip : {"0.0.0.0/0", "::/0", "10.0.0.0/8", "169.254.169.254", "fd00::/8"})
        rule.ip.push_back(*Cidr::Parse(ip));
    if (policy::IsInner(rule.verb)) {
      rule.encoded_slash = rule.path_params = world.opening_paths;
      rule.method_override = world.opening_methods;
    }
    return rule;
  };
  switch (deny.verb) {
    case Verb::kDns: {
      Rule rule = of("dns **");
      rule.types = {1, 16, 28, 65};
      return {rule};
    }
    case Verb::kUnix:
      return {of("unix /**")};
    case Verb::kTls:
      return {of("tls **:1-65535")};
    case Verb::kTcp:
      return {of("tcp **:1-65535")};
    case Verb::kUdp:
      return {of("udp **:1-65535")};
    default:
      return {of("http **:1-65535"), of("http http://**:1-65535"), of("ws **:1-65535"), of("ws ws://**:1-65535")};
  }
}

// A rule beside one that lacks a key of it, or beside none. Each key beside each verb is compared a few times over all worlds.
class Compared {
 public:
  void Try(const World& world, const Rule& rule) {
    Try(world, rule, "", About::kVerb, nullptr);
    for (const Key& key : Keys())
      if (key.has(rule)) Try(world, rule, key.name, key.about, key.drop);
  }
  [[nodiscard]] bool HasSeen(const std::string& label) const { return seen_.contains(label); }

 private:
  void Try(const World& world, const Rule& rule, std::string_view key, About about, void (*drop)(Rule*)) {
    const std::string label = LabelOf(rule, key, about);
    if (const auto at = seen_.find(label); at != seen_.end() && at->second >= kEnough) return;
    SmallPolicy with{.rules = rule.allow ? std::vector<Rule>{} : Everything(world, rule), .ways = world.ways};
    with.definitions.scopes = {world.scopes.front(), world.scopes.front()};
    SmallPolicy without = with;
    with.rules.push_back(rule);
    if (drop != nullptr) {
      without.rules.push_back(rule);
      drop(&without.rules.back());
    }
    if (with.Compiled() == nullptr || without.Compiled() == nullptr) return;
    if (++tried_[world.name + ": " + label] > kAttempts) return;
    Member base = Bare(world, with);
    Member head = Bare(world, without);
    if (!Gains(world, base, head) && !Gains(world, head, base)) return;
    base = MemberOf(world, with);
    head = MemberOf(world, without);
    ++seen_[label];
    SCOPED_TRACE(label);
    size_t given_up = 0;
    CheckPair(world, base, head, &given_up);
    EXPECT_EQ(given_up, 0U);
  }

  // What can be told apart without asking each rule.
  static Member Bare(const World& world, const SmallPolicy& policy) {
    Member member{.policy = policy, .snapshot = policy.Compiled(), .reach = {}, .alone = {}, .by_rule = {}};
    member.reach = ReachOf(world, *member.snapshot);
    if (world.ways) member.ways = WaysOf(world, *member.snapshot);
    return member;
  }

  std::map<std::string, int> tried_;
  std::map<std::string, int> seen_;
};

TEST(Keys, EachIsSeenInSomeWorldAndByTheProver) {
  Compared compared;
  for (const World& world : Worlds()) {
    std::mt19937 random(7);
    for (int i = 0; i < kDraws && !HasFatalFailure(); ++i)
      compared.Try(world, DrawRule(world, [&](size_t n) { return random() % n; }));
  }
  std::set<std::string> missing = Demanded();
  std::erase_if(missing, [&](const std::string& label) { return compared.HasSeen(label); });
  EXPECT_TRUE(missing.empty()) << "no world shows these:\n" << fmt::format("{}", fmt::join(missing, "\n"));
}

TEST(Keys, AreThoseOfTheParser) {
  std::set<std::string_view> known{"allow", "deny"};
  for (const Key& key : Keys()) known.insert(key.name);
  known.insert(kForPeople.begin(), kForPeople.end());
  known.insert(kOtherNames.begin(), kOtherNames.end());
  std::set<std::string_view> parsed;
  for (const auto keys : {policy::RuleKeys(), policy::TargetKeys()}) parsed.insert(keys.begin(), keys.end());
  EXPECT_EQ(known, parsed);
}

// Every entry of a list in place of every other one, under one name.
void CheckEntries(const World& world, size_t entries, void (*use)(size_t entry, SmallPolicy* policy)) {
  std::vector<Member> members;
  for (size_t entry = 0; entry < entries; ++entry) {
    SmallPolicy policy{.rules = {Value(policy::ParseCompact(policy::Effect::kAllow, "http a.t"))}, .ways = true};
    use(entry, &policy);
    members.push_back(MemberOf(world, std::move(policy)));
  }
  size_t given_up = 0;
  for (size_t i = 0; i < entries; ++i) {
    for (size_t j = 0; j < entries; ++j) {
      SCOPED_TRACE(fmt::format("{} for {}", j, i));
      CheckPair(world, members[i], members[j], &given_up);
      EXPECT_EQ(Gains(world, members[i], members[j]), i != j);
    }
  }
}

TEST(Definitions, OfCredentialsDifferWhereTheyDo) {
  const World& travels = *std::ranges::find(Worlds(), "travels", &World::name);
  CheckEntries(travels, CredentialEntries(), [](size_t entry, SmallPolicy* policy) {
    policy->rules[0].with = "c";
    policy->definitions.credentials[0] = entry;
  });
}

TEST(Definitions, OfProxiesDifferWhereTheyDo) {
  const World& travels = *std::ranges::find(Worlds(), "travels", &World::name);
  CheckEntries(travels, ProxyEntries(), [](size_t entry, SmallPolicy* policy) {
    policy->rules[0].via = "pc";
    policy->definitions.proxies[0] = entry;
  });
}

}  // namespace
}  // namespace sluice::prover
