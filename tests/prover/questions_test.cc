// What is asked beside the comparison of two policies: never, always, accepted regions, executables that exist, bounds; and what
// must hold of every comparison.

#include <random>

#include "policy/rule_text.h"
#include "tests/prover/small_world.h"
#include "tests/prover/support.h"

namespace sluice::prover {
namespace {

policy::Rule RuleOf(policy::Effect effect, const std::string& text) {
  auto rule = policy::ParseCompact(effect, text);
  if (!rule) throw std::runtime_error(rule.error().message);
  return std::move(*rule);
}

std::string Allow(const std::string& rule) { return "  - allow: " + rule + "\n"; }
std::string Deny(const std::string& rule) { return "  - deny: " + rule + "\n"; }
const Options kOptions{.at = kNow};

TEST(Never, HoldsOrShowsWhatIsReached) {
  struct Case {
    std::string policy;
    const char* never;
    const char* witness;  ///< empty: holds
  };
  const std::string reads = Allow("GET api.github.com/**");
  for (const Case& c : std::vector<Case>{
           {reads, "POST api.github.com/**", ""},
           {reads + Allow("http *.github.com"), "POST api.github.com/**", "POST https://api.github.com/"},
           {reads + Allow("http *.github.com") + Deny("POST api.github.com"), "POST api.github.com/**", ""},
           {reads + Allow("tcp api.github.com:443"), "POST api.github.com/**", "POST https://api.github.com/"},
           // A never without a port means every port, inside opaque connections too.
           {Allow("tcp api.github.com:5432"), "POST api.github.com/x", "POST http://api.github.com:5432/x"},
           {Allow("tls api.github.com"), "POST api.github.com/x", "POST https://api.github.com/x"},
           {Allow("tls api.github.com"), "POST http://api.github.com/x", ""},
           {Allow("tls api.github.com"), "tcp api.github.com", "TLS bytes to api.github.com:443"},
           {reads, "tls api.github.com", "GET https://api.github.com/"},
           {reads, "tcp 10.0.0.0/8", ""},
           {Allow("tcp **:22"), "tcp 1.0.0.0/8", "TCP bytes to 1.1.1.1:22"},
           {reads, "dns **.github.com", "GET https://api.github.com/"},
           {Allow("dns a.test"), "dns a.test", "lookup of a.test"},
           {Allow("git fetch-pack github.com/o/r"), "git receive-pack **", ""},
           {Allow("POST github.com/**"), "git receive-pack **", "POST https://github.com/git-receive-pack"},
           {Allow("unix /run/*"), "unix /run/docker.sock", "connect to /run/docker.sock"},
           {Allow("unix /run/*"), "unix /var/**", ""},
           {Allow("udp **:123"), "udp **", "UDP datagrams to a:123"},
           {"", "http **", ""},
           {"version: 1\nmode: audit\nrules: []\n", "POST api.github.com/x", "POST https://api.github.com/x"},
           {"version: 1\nmode: audit\nrules: []\n", "tcp 169.254.169.254", ""},
           {"version: 1\nmode: audit\nrules: []\n", "tls a.ex", "GET https://a.ex/"},
           {"version: 1\nmode: audit\nrules: []\n", "unix /run/docker.sock", "connect to /run/docker.sock"},
       }) {
    const Proof proof = CheckNever(*Loaded(c.policy), RuleOf(policy::Effect::kDeny, c.never), kOptions);
    EXPECT_EQ(proof.verdict, *c.witness == 0 ? Verdict::kEqual : Verdict::kWidened) << c.policy << c.never << "\n"
                                                                                    << Shown(proof);
    if (*c.witness != 0) EXPECT_TRUE(Has(proof.gains, c.witness)) << c.policy << c.never << "\n" << Shown(proof);
  }
}

TEST(Always, HoldsOrShowsWhatIsRefused) {
  const std::string reads = Allow("GET api.github.com/repos/**");
  const auto check = [](const std::string& policy, const char* always) {
    return CheckAlways(*Loaded(policy), RuleOf(policy::Effect::kAllow, always), kOptions);
  };
  EXPECT_EQ(check(reads, "GET api.github.com/repos/o/r").verdict, Verdict::kEqual);
  const Proof proof = check(reads, "GET api.github.com/user");
  EXPECT_EQ(proof.verdict, Verdict::kNarrowed);
  EXPECT_TRUE(Has(proof.losses, "GET https://api.github.com/user")) << Shown(proof);
  EXPECT_EQ(check(reads + Deny("GET api.github.com/repos/x/**"), "GET api.github.com/repos/**").verdict, Verdict::kNarrowed);
}

TEST(Accepted, RegionsAreTakenOutOfTheGains) {
  const auto base = Loaded(Allow("GET api.ex.com/a"));
  const auto head = Loaded(Allow("GET,POST api.ex.com/**") + Allow("GET other.ex.com"));
  const auto verdict = [&](const std::vector<std::string>& accepted) {
    Options options = kOptions;
    for (const std::string& text : accepted) options.accepted.push_back(RuleOf(policy::Effect::kAllow, text));
    return Compare(*base, *head, options);
  };
  EXPECT_EQ(verdict({"http api.ex.com", "GET other.ex.com"}).verdict, Verdict::kEqual);
  const Proof part = verdict({"GET api.ex.com/**", "GET other.ex.com", "GET third.ex.com", "GET api.ex.com/a"});
  EXPECT_EQ(part.verdict, Verdict::kWidened);
  EXPECT_TRUE(Has(part.gains, "POST https://api.ex.com/")) << Shown(part);
  EXPECT_EQ(part.unused_accepted, (std::vector<size_t>{2, 3}));
  EXPECT_EQ(verdict({"tls api.ex.com", "tcp **:443"}).verdict, Verdict::kEqual);
}

TEST(Manifest, ClosesTheWorldOfExecutables) {
  const auto by = [](const std::string& list) { return Loaded(Allow("GET api.ex.com") + "    by: [" + list + "]\n"); };
  Options options = kOptions;
  options.executables = {{{"/usr/bin/curl"}, {"/usr/bin/nc.openbsd", {"/usr/bin/nc", "/bin/nc"}}}};
  const Proof proof = Compare(*by("/usr/bin/curl"), *by("/usr/bin/*"), options);
  EXPECT_TRUE(Has(proof.gains, "GET https://api.ex.com/ by /usr/bin/nc.openbsd")) << Shown(proof);
  EXPECT_EQ(Compare(*by("/usr/bin/nc"), *by("/bin/nc"), options).verdict, Verdict::kEqual);
  const Proof linked = Compare(*by("/usr/bin/curl"), *by("/usr/bin/curl, /bin/nc"), options);
  EXPECT_TRUE(Has(linked.gains, "GET https://api.ex.com/ by /usr/bin/nc.openbsd")) << Shown(linked);
  EXPECT_EQ(Compare(*by("/usr/bin/curl"), *by("/usr/bin/curl, /opt/tool"), options).verdict, Verdict::kEqual);
  EXPECT_EQ(Compare(*by("/usr/bin/curl"), *by("/usr/bin/curl, /opt/tool"), kOptions).verdict, Verdict::kWidened);
}

TEST(Bounds, MakeTheAnswerUnknownAndNeverAPass) {
  const auto base = Loaded(Allow("GET a.test/**") + Deny("GET a.test/x/**"));
  const auto head = Loaded(Allow("GET a.test/**"));
  for (const uint64_t limit : {uint64_t{0}, uint64_t{1}, uint64_t{10}, uint64_t{40}}) {
    Options options = kOptions;
    options.limit = limit;
    const Proof proof = Compare(*base, *head, options);
    EXPECT_EQ(proof.verdict, Verdict::kUnknown) << limit;
    EXPECT_FALSE(proof.why_unknown.empty());
  }
}

// What another prover's contradictory model once hid.
TEST(Contradictions, HideNothing) {
  const std::string odd = Allow("GET api.ex.com") + Allow("http api.ex.com") + Deny("http api.ex.com") + Deny("dns api.ex.com") +
                          Allow("tls api.ex.com") + Allow("GET api.ex.com");
  const Proof proof = Compare(*Loaded(odd), *Loaded(odd + Allow("tcp attacker.example:443")), kOptions);
  EXPECT_EQ(proof.verdict, Verdict::kWidened);
  EXPECT_TRUE(Has(proof.gains, "TCP bytes to attacker.example:443")) << Shown(proof);
  EXPECT_EQ(Compare(*Loaded(odd), *Loaded(""), kOptions).verdict, Verdict::kEqual);
}

class Metamorphic : public testing::TestWithParam<size_t> {};

TEST_P(Metamorphic, LawsHold) {
  const World& world = Worlds()[GetParam()];
  std::mt19937 random(11);
  const Draw draw = [&](size_t n) { return random() % n; };
  const auto widened = [](const Proof& p) { return !p.gains.empty(); };
  const auto narrowed = [](const Proof& p) { return !p.losses.empty(); };
  for (int round = 0; round < 150; ++round) {
    SmallPolicy policy = DrawPolicy(world, draw);
    // A draw whose one rule is none of a policy's.
    while (policy.rules.empty()) policy = DrawPolicy(world, draw);
    const auto snapshot = policy.Compiled();
    SmallPolicy turned = policy;
    std::reverse(turned.rules.begin(), turned.rules.end());
    turned.rules.push_back(turned.rules.front());
    EXPECT_EQ(Compare(*snapshot, *turned.Compiled(), kOptions).verdict, Verdict::kEqual) << Shown(policy);
    SmallPolicy more = policy;
    do {
      more.rules = policy.rules;
      more.rules.push_back(DrawRule(world, draw));
    } while (more.Compiled() == nullptr);
    const auto with_more = more.Compiled();
    const Proof proof = Compare(*snapshot, *with_more, kOptions);
    if (IsGivenUp(world, proof)) continue;
    ASSERT_NE(proof.verdict, Verdict::kUnknown) << Shown(more) << Shown(proof);
    // In audit mode a rule also says whether a connection is looked into, where bytes do not pass.
    const bool enforced = policy.mode == policy::Mode::kEnforce;
    // A rule that says a way takes the other one from what it covers, and a deny has a connection looked into.
    if (enforced && more.rules.back().allow && !world.ways) EXPECT_FALSE(narrowed(proof)) << Shown(more) << Shown(proof);
    if (enforced && !more.rules.back().allow && !world.ways) EXPECT_FALSE(widened(proof)) << Shown(more) << Shown(proof);
    const Proof back = Compare(*with_more, *snapshot, kOptions);
    EXPECT_EQ(widened(proof), narrowed(back)) << Shown(more);
    EXPECT_EQ(narrowed(proof), widened(back)) << Shown(more);
    // A rule split by method and by port says the same.
    SmallPolicy split = policy;
    split.rules.clear();
    for (const policy::Rule& rule : policy.rules) {
      for (size_t m = 0; m < std::max<size_t>(rule.methods.size(), 1); ++m) {
        split.rules.push_back(rule);
        if (!rule.methods.empty()) split.rules.back().methods = {rule.methods[m]};
      }
    }
    EXPECT_EQ(Compare(*snapshot, *split.Compiled(), kOptions).verdict, Verdict::kEqual) << Shown(split);
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Metamorphic, testing::Range(size_t{0}, Worlds().size()),
                         [](const auto& info) { return Worlds()[info.param].name; });

}  // namespace
}  // namespace sluice::prover
