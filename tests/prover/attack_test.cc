// Whole policies as text, all keys mixed, against requests drawn from the same few words: what the enforcer lets out under one
// policy and not under the other must be a gain to the prover. Each pair uses a few words only, so that rules meet.
// SLUICE_ATTACK_PAIRS and SLUICE_ATTACK_SEED make a longer run.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <random>

#include "policy/compiled.h"
#include "policy/target.h"
#include "tests/prover/support.h"

namespace sluice::prover {
namespace {

using Words = std::vector<std::string>;
using Random = std::mt19937_64;
using policy::Snapshot;

size_t Below(Random& random, size_t n) { return static_cast<size_t>(random() % n); }
bool OneIn(Random& random, size_t n) { return Below(random, n) == 0; }
const std::string& Any(Random& random, const Words& words) { return words[Below(random, words.size())]; }

Words Some(Random& random, const Words& words, size_t most) {
  Words some;
  for (size_t i = 1 + Below(random, most); i > 0; --i) some.push_back(Any(random, words));
  return some;
}

const std::string kDigestText = "sha256:" + std::string(64, 'b');
const WallTime kStart = WallTime{} + std::chrono::hours{24 * 20000};  // 2024-10-04

// What a pair of policies may speak of.
struct Vocabulary {
  explicit Vocabulary(Random& r)
      : verbs(Some(r,
                   {"GET", "GET", "POST", "HEAD", "GET,POST", "http", "http", "PROPFIND", "git fetch-pack", "git receive-pack",
                    "tls", "tcp", "tcp", "udp", "dns", "unix"},
                   4)),
        schemes(Some(r, {"", "", "", "http://", "https://"}, 2)),
        hosts(Some(r,
                   {"a.ex", "a.ex", "b.ex", "*.ex", "**.ex", "x*.ex", "*-a.ex", "xn--*.ex", "xn--a.ex", "**", "*.a.ex", "**.a.ex",
                    "10.1.2.3", "1.1.1.1", "'[fd00::5]'", "a", "*"},
                   3)),
        prefixes(Some(r,
                      {"10.0.0.0/8", "10.1.2.0/24", "0.0.0.0/0", "'[::/0]'", "169.254.169.254", "169.254.0.0/16",
                       "'[64:ff9b::/96]'", "'[2002::/16]'", "1.1.1.0/24", "'[fd00::/8]'", "'[2002:a00::/24]'"},
                      2)),
        ports(Some(r, {"", "", "443", "80", "22", "80,443", "1-65535", "79-81", "442-444", "8000-8099", "65535"}, 2)),
        paths(Some(r, {"",           "",
                       "/",          "/x",
                       "/x/**",      "/x/",
                       "/**",        "/*",
                       "/*/y",       "/**/y",
                       "/x/*/y",     "/x*",
                       "/x/**/y/**", "/o/r",
                       "/o/r.git",   "/o/*",
                       "/o/R",       "/o/r/info/refs",
                       "/o/r/**",    "/o/r/git-upload-pack",
                       "/x:y",       "/x%2Cy"},
                   4)),
        by(Some(r, {"/u/c", "/u/*", "/u/**", "/**", "/*/c", kDigestText}, 3)),
        ip(Some(r,
                {"10.0.0.0/8", "10.1.2.3", "10.1.2.0/24", "1.1.1.0/24", "1.1.1.1", "0.0.0.0/0", "::/0", "169.254.169.254/32",
                 "169.254.0.0/16", "64:ff9b::/96", "64:ff9b::a00:0/104", "64:ff9b::a9fe:a9fe/128", "2002::/16", "2002:a00::/24",
                 "fd00::/8", "fd00:ec2::254/128", "100.100.100.200/32", "2600::/16", "127.0.0.0/8"},
                3)),
        query(Some(r,
                   {"{k: [a]}", "{k: ['*']}", "{k: ['']}", "{k: [a, b]}", "{k: ['a*']}", "{j: ['*']}", "{k: [a], j: ['*']}",
                    "{service: [git-upload-pack]}", "{service: ['*']}", "{'': ['*']}", "{'k;': [a]}"},
                   3)),
        query_keys(Some(r, {"[]", "[k]", "[k, j]", "[service]", "['']"}, 2)),
        headers(Some(
            r,
            {"{x-a: ['1']}", "{x_a: ['1']}", "{x-a: ['*']}", "{x-a: ['']}", "{x-a: ['1'], x_a: ['2']}", "{x-http-method: ['*']}",
             "{content-type: [application/x-git-upload-pack-request]}", "{content-type: ['*']}", "{x-b: ['1*']}"},
            3)),
        until(Some(r, {"2024-10-01", "2024-10-10", "2024-11-01", "2024-10-10T12:00:00+02:00"}, 2)),
        types(Some(r, {"[A]", "[AAAA]", "[A, AAAA]", "[TXT]", "[A, TXT]"}, 2)) {
    for (bool& key : uses) key = OneIn(r, 4);
    audit = OneIn(r, 8);
  }

  enum Key : size_t { kBy, kUnder, kIp, kQuery, kQueryKeys, kHeaders, kUntil, kSlash, kParams, kOverride, kTypes, kKeys };
  Words verbs, schemes, hosts, prefixes, ports, paths, by, ip, query, query_keys, headers, until, types;
  std::array<bool, kKeys> uses{};
  bool audit = false;
};

// One entry of `rules:`. What the language refuses is drawn again by the caller.
std::string DrawRuleText(Random& r, const Vocabulary& v, bool allow) {
  using V = Vocabulary;
  const std::string& verb = Any(r, v.verbs);
  std::string target;
  const bool opaque = verb == "tcp" || verb == "udp";
  const bool inner = !opaque && verb != "tls" && verb != "dns" && verb != "unix";
  const bool git = verb.starts_with("git");
  if (verb == "unix") {
    const std::string& path = Any(r, v.paths);
    target = path.empty() ? "/**" : path;
  } else {
    if (inner && !git) target = Any(r, v.schemes);
    target += opaque && OneIn(r, 3) ? Any(r, v.prefixes) : Any(r, v.hosts);
    std::erase(target, '\'');
    std::string port = verb == "dns" ? "" : Any(r, v.ports);
    if (allow && opaque && port.empty()) port = "443";
    if (!port.empty()) target += ":" + port;
    if (inner) target += Any(r, v.paths);
  }
  std::string text = fmt::format("  - {}: '{} {}'\n", allow ? "allow" : "deny", verb, target);
  const auto key = [&](V::Key k, std::string_view name, const Words& words, const char* format = "{}") {
    if (v.uses[k] && !OneIn(r, 3)) text += fmt::format("    {}: {}\n", name, fmt::format(fmt::runtime(format), Any(r, words)));
  };
  static const Words kTrue{"true"};
  key(V::kBy, "by", v.by, "['{}']");
  if (allow) key(V::kUnder, "under", v.by, "['{}']");
  if (verb != "dns" && verb != "unix") key(V::kIp, "ip", v.ip, "['{}']");
  if (inner && !git) key(V::kQuery, "query", v.query);
  if (inner && !git && allow) key(V::kQueryKeys, "query-keys", v.query_keys);
  if (inner) key(V::kHeaders, "headers", v.headers);
  if (allow) key(V::kUntil, "until", v.until);
  if (inner && allow) {
    key(V::kSlash, "encoded-slash", kTrue);
    key(V::kParams, "path-params", kTrue);
    key(V::kOverride, "method-override", kTrue);
  }
  if (verb == "dns") key(V::kTypes, "types", v.types);
  return text;
}

std::string DrawLoadable(Random& r, const Vocabulary& v, bool allow) {
  for (int i = 0; i < 20; ++i) {
    std::string text = DrawRuleText(r, v, allow);
    if (policy::LoadText("version: 1\nrules:\n" + text, "p.yaml")) return text;
  }
  return "";
}

struct Draft {
  bool audit = false;
  Words rules{};
  [[nodiscard]] std::string Text() const {
    return fmt::format("version: 1\n{}rules:{}\n{}", audit ? "mode: audit\n" : "", rules.empty() ? " []" : "",
                       fmt::join(rules, ""));
  }
};

Draft DrawDraft(Random& r, const Vocabulary& v) {
  Draft draft;
  draft.audit = v.audit && OneIn(r, 3);
  for (size_t i = 1 + Below(r, 4); i > 0; --i)
    if (std::string rule = DrawLoadable(r, v, !OneIn(r, 3)); !rule.empty()) draft.rules.push_back(std::move(rule));
  return draft;
}

Draft Edited(Random& r, const Vocabulary& v, Draft draft) {
  if (v.audit && OneIn(r, 4)) draft.audit = !draft.audit;
  for (size_t i = 1 + Below(r, 2); i > 0; --i) {
    const size_t at = draft.rules.empty() ? 0 : Below(r, draft.rules.size());
    if (!draft.rules.empty() && OneIn(r, 3)) draft.rules.erase(draft.rules.begin() + static_cast<std::ptrdiff_t>(at));
    std::string rule = DrawLoadable(r, v, !OneIn(r, 3));
    if (rule.empty() || OneIn(r, 3)) continue;
    if (!draft.rules.empty() && OneIn(r, 2)) {
      draft.rules[Below(r, draft.rules.size())] = std::move(rule);
    } else {
      draft.rules.push_back(std::move(rule));
    }
  }
  return draft;
}

// One thing that a workload may try.
struct Attempt {
  enum class Kind : uint8_t { kLookup, kTcp, kTls, kUdp, kRequest, kSocket } kind = Kind::kRequest;
  std::optional<policy::Process> process{};
  std::string host{};
  IpAddress address{};
  uint16_t port = 0;
  policy::Scheme scheme = policy::Scheme::kHttps;
  std::string method{};
  std::string raw{};
  policy::CanonicalTarget target{};
  std::vector<std::pair<std::string, std::string>> headers{};
  uint16_t type = 1;
  WallTime now{};

  [[nodiscard]] std::string Text() const {
    return fmt::format("kind {} {} {}://{}({}):{}{} headers {} by {} type {} day {}", static_cast<int>(kind), method,
                       scheme == policy::Scheme::kHttp ? "http" : "https", host, address.ToString(), port, raw,
                       fmt::join(headers, ";"),
                       process ? fmt::format("{} trusted {} sha {} parents {}", process->exe.path, process->exe.trusted,
                                             process->exe.sha256.has_value(), process->ancestors.size())
                               : "unknown",
                       type, std::chrono::duration_cast<std::chrono::hours>(now - kStart).count() / 24);
  }
};

std::array<uint8_t, 32> Digest(uint8_t byte) {
  std::array<uint8_t, 32> digest{};
  digest.fill(byte);
  return digest;
}

policy::Executable DrawExecutable(Random& r) {
  static const Words kPaths{"/u/c", "/u/d", "/u/e/c", "/v/c", "/c", "/u/c"};
  policy::Executable exe{Any(r, kPaths), !OneIn(r, 6)};
  if (OneIn(r, 2)) exe.sha256 = Digest(OneIn(r, 2) ? 0xbb : 0x11);
  return exe;
}

std::string DrawTarget(Random& r) {
  static const Words kParts{"/",
                            "x",
                            "y",
                            "/x",
                            "/y",
                            "%2F",
                            "%2f",
                            ";",
                            ";z",
                            ".",
                            "..",
                            "a",
                            "/o/r",
                            ".git",
                            "/info/refs",
                            "/git-upload-pack",
                            "/git-receive-pack",
                            "R",
                            ":y",
                            "%3A",
                            "%2C",
                            ",",
                            "%3B",
                            "%25",
                            "/o/R"};
  static const Words kWhole{"/",
                            "/x",
                            "/x/",
                            "/x/y",
                            "/x/q/y",
                            "/y",
                            "/o/r/info/refs",
                            "/o/r.git/info/refs",
                            "/o/R/git-upload-pack",
                            "/o/r/git-upload-pack",
                            "/o/r.git/git-receive-pack",
                            "/o/r/git-receive-pack",
                            "/o/r",
                            "/x:y",
                            "/x%2Cy",
                            "/x%2Fy",
                            "/x;p/y",
                            "/o%2Fr/info/refs",
                            "/x/%2E",
                            "/x%2F..",
                            "/x%2F%2Fy",
                            "/o/r;z/git-upload-pack",
                            "/x/..;/y",
                            "/o/r/.git/info/refs",
                            "/o/r/info/refs/",
                            "/zz"};
  std::string path;
  if (OneIn(r, 2)) {
    path = Any(r, kWhole);
  } else {
    path = "/";
    for (size_t i = Below(r, 5); i > 0; --i) path += Any(r, kParts);
  }
  static const Words kQueries{"",
                              "?",
                              "?service=git-upload-pack",
                              "?service=git-receive-pack",
                              "?service=git-upload-pack&k=a",
                              "?service=x",
                              "?k=a",
                              "?k",
                              "?k=a&k=b",
                              "?k=a&j=1",
                              "?j=1",
                              "?k=ab",
                              "?k=b",
                              "?k=%61",
                              "?k=a;j=1",
                              "?b;k=a",
                              "?service=x;z",
                              "?zz",
                              "?=1",
                              "?k%3B=a",
                              "?&",
                              "?k=c"};
  return path + (OneIn(r, 2) ? "" : Any(r, kQueries));
}

Attempt DrawAttempt(Random& r) {
  static const Words kHosts{"a.ex",       "b.ex",  "c.ex",   "xn--a.ex", "xn-a.ex", "xn--b.ex", "q.a.ex", "q.q.a.ex",
                            "xn--a.a.ex", "x1.ex", "b-a.ex", "a",        "z",       "ex",       ""};
  static const Words kAddresses{"1.1.1.1",        "1.1.1.2",         "8.8.8.8",          "10.1.2.3",         "10.1.2.4",
                                "10.9.9.9",       "169.254.169.254", "169.254.1.1",      "100.100.100.200",  "127.0.0.1",
                                "fd00::5",        "fd00:ec2::254",   "2600::1",          "64:ff9b::a01:203", "64:ff9b::a9fe:a9fe",
                                "64:ff9b::101:1", "2002:a01:203::1", "2002:a9fe:a9fe::", "2002:101:101::1",  "::1",
                                "64:ff9b::a9fe:1"};
  static const std::vector<uint16_t> kPorts{443, 443, 443, 80, 80, 22, 1, 79, 81, 442, 444, 8000, 8099, 8100, 65535};
  static const Words kMethods{"GET", "GET", "POST", "HEAD", "PUT", "PROPFIND", "MKCOL"};
  Attempt a;
  a.kind = static_cast<Attempt::Kind>(OneIn(r, 2) ? 4 : Below(r, 6));
  if (!OneIn(r, 8)) {
    a.process.emplace();
    a.process->pid = 1;
    a.process->exe = DrawExecutable(r);
    for (size_t i = Below(r, 3); i > 0; --i) a.process->ancestors.push_back(DrawExecutable(r));
  }
  a.host = Any(r, kHosts);
  a.address = *IpAddress::Parse(OneIn(r, 2) ? "1.1.1.1" : Any(r, kAddresses));
  a.port = kPorts[Below(r, kPorts.size())];
  a.scheme = OneIn(r, 3) ? policy::Scheme::kHttp : policy::Scheme::kHttps;
  a.method = Any(r, kMethods);
  while (true) {
    a.raw = DrawTarget(r);
    auto target = policy::CanonicalizeTarget(a.raw);
    if (!target) continue;
    a.target = std::move(*target);
    break;
  }
  static const std::vector<std::pair<std::string, std::string>> kFields{
      {"x-a", "1"},
      {"x_a", "1"},
      {"x_a", "2"},
      {"x-a", "2"},
      {"x-b", "12"},
      {"x-http-method", "POST"},
      {"x_http_method", "get"},
      {"x-method-override", "PROPFIND"},
      {"content-type", "application/x-git-upload-pack-request"},
      {"content-type", "application/x-git-receive-pack-request"},
      {"content-type", "q"},
      {"x-a", ""}};
  if (OneIn(r, 2))
    for (size_t i = 1 + Below(r, 2); i > 0; --i) a.headers.push_back(kFields[Below(r, kFields.size())]);
  static const std::vector<uint16_t> kTypes{1, 28, 16, 65};
  a.type = kTypes[Below(r, kTypes.size())];
  a.now = kStart + std::chrono::hours{24} * (OneIn(r, 2) ? 0 : Below(r, 60));
  return a;
}

struct Outcome {
  bool reached = false;
  bool denied = false;  ///< by a deny rule
};

Outcome Try(const Snapshot& snapshot, const Attempt& a) {
  const policy::Process* process = a.process ? &*a.process : nullptr;
  const auto denied = [](const policy::Decision& d) { return d.reason == policy::Reason::kDenyRule; };
  if (a.kind == Attempt::Kind::kLookup) {
    if (a.host.empty()) return {};
    const auto name = snapshot.DecideName({process, a.host, a.type, a.now});
    return {name.verdict == policy::NameVerdict::kAllow, denied(name.decision)};
  }
  if (a.kind == Attempt::Kind::kSocket) {
    if (a.target.path.ends_with('/')) return {};
    const auto decision = snapshot.DecideUnix({process, a.target.path, a.now});
    return {decision.allowed, denied(decision)};
  }
  policy::ConnectQuery query;
  query.process = process;
  query.host = a.host;
  query.address = a.address;
  query.port = a.port;
  query.transport = a.kind == Attempt::Kind::kUdp ? policy::Transport::kUdp : policy::Transport::kTcp;
  query.now = a.now;
  const auto connect = snapshot.DecideConnect(query);
  using policy::ConnectVerdict;
  // The model (docs/prover.md): `mode: audit` passes all that the address guard does.
  const bool audit = snapshot.mode() == policy::Mode::kAudit && connect.allowed();
  switch (a.kind) {
    case Attempt::Kind::kUdp:
      return {connect.allowed(), denied(connect.decision)};
    case Attempt::Kind::kTcp:
      return {audit || connect.verdict == ConnectVerdict::kOpaqueTcp, denied(connect.decision)};
    case Attempt::Kind::kTls:
      return {audit || connect.verdict == ConnectVerdict::kOpaqueTcp || connect.verdict == ConnectVerdict::kOpaqueTls, false};
    default:
      break;
  }
  std::vector<policy::HeaderView> headers;
  for (const auto& [name, value] : a.headers) headers.emplace_back(name, value);
  policy::RequestQuery request;
  request.connection = query;
  request.scheme = a.scheme;
  request.method = a.method;
  request.target = &a.target;
  request.headers = headers;
  const auto decision = snapshot.DecideRequest(request);
  return {decision.allowed && connect.allowed(), denied(decision)};
}

bool Gains(const Proof& proof) {
  return proof.verdict == Verdict::kUnknown || proof.verdict == Verdict::kWidened || proof.verdict == Verdict::kIncomparable;
}
bool Loses(const Proof& proof) {
  return proof.verdict == Verdict::kUnknown || proof.verdict == Verdict::kNarrowed || proof.verdict == Verdict::kIncomparable;
}

policy::Rule OnlyRule(const std::string& text) { return Loaded(text)->compiled().rules.at(0); }

size_t FromEnvironment(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// All questions about one pair of policies, and every attempt against each answer.
class Pair {
 public:
  explicit Pair(Random& r) : random_(r), vocabulary_(r) {
    base_text_ = DrawDraft(r, vocabulary_);
    head_text_ = Edited(r, vocabulary_, base_text_);
    base_ = Loaded(base_text_.Text());
    head_ = Loaded(head_text_.Text());
    options_.at = kStart;
    options_.limit = 2'000'000;
    compared_ = Compare(*base_, *head_, options_);
    Known("compare", compared_);
    never_text_ = DrawLoadable(r, vocabulary_, false);
    always_text_ = DrawLoadable(r, vocabulary_, true);
  }

  void Run() {
    if (!never_text_.empty()) {
      never_ = Loaded(never_text_);
      never_proof_ = CheckNever(*head_, OnlyRule(never_text_), options_);
      Known("never", never_proof_);
    }
    if (!always_text_.empty()) {
      always_ = Loaded(always_text_);
      always_proof_ = CheckAlways(*head_, OnlyRule(always_text_), options_);
      Known("always", always_proof_);
      Options accepting = options_;
      accepting.accepted = {OnlyRule(always_text_)};
      accepting_proof_ = Compare(*base_, *head_, accepting);
      Known("accepted", accepting_proof_);
    }
    for (size_t i = 0; i < 1200 && !failed_; ++i) {
      const Attempt attempt = DrawAttempt(random_);
      Judge(attempt);
    }
  }
  [[nodiscard]] bool failed() const { return failed_; }
  [[nodiscard]] bool given_up() const { return given_up_; }
  [[nodiscard]] size_t differences() const { return differences_; }

 private:
  void Judge(const Attempt& a) {
    const bool base = Try(*base_, a).reached;
    const bool head = Try(*head_, a).reached;
    differences_ += base != head ? 1 : 0;
    if (head && !base && !Gains(compared_)) Fail("missed widening", a, compared_);
    if (base && !head && !Loses(compared_)) Fail("missed loss", a, compared_);
    if (never_ && head && Try(*never_, a).denied && !Gains(never_proof_)) Fail("missed never", a, never_proof_);
    if (!always_) return;
    const bool always = Try(*always_, a).reached;
    if (always && !head && !Loses(always_proof_)) Fail("missed always", a, always_proof_);
    if (head && !base && !always && !Gains(accepting_proof_)) Fail("missed beside the accepted", a, accepting_proof_);
  }
  // A bound that is reached is an answer that fails closed; a witness that does not hold is a fault.
  void Known(const char* what, const Proof& proof) {
    if (proof.verdict != Verdict::kUnknown) return;
    if (!proof.replay_failed) {
      given_up_ = true;
      return;
    }
    failed_ = true;
    ADD_FAILURE() << what << " is unknown: " << Shown(proof) << "\n" << Texts();
  }
  void Fail(const char* what, const Attempt& a, const Proof& proof) {
    failed_ = true;
    ADD_FAILURE() << what << ": " << a.Text() << "\n" << Shown(proof) << "\n" << Texts();
  }
  [[nodiscard]] std::string Texts() const {
    return "base:\n" + base_text_.Text() + "head:\n" + head_text_.Text() + "never:\n" + never_text_ + "always or accepted:\n" +
           always_text_;
  }

  Random& random_;
  Vocabulary vocabulary_;
  Options options_;
  Draft base_text_, head_text_;
  std::string never_text_, always_text_;
  policy::SnapshotPtr base_, head_, never_, always_;
  Proof compared_, never_proof_, always_proof_, accepting_proof_;
  bool failed_ = false;
  bool given_up_ = false;
  size_t differences_ = 0;
};

TEST(Attack, NothingIsLetOutThatTheProverDoesNotSee) {
  const size_t pairs = FromEnvironment("SLUICE_ATTACK_PAIRS", 800);
  const size_t seed = FromEnvironment("SLUICE_ATTACK_SEED", 20241004);
  size_t failures = 0;
  size_t differences = 0;
  size_t given_up = 0;
  for (size_t i = FromEnvironment("SLUICE_ATTACK_FROM", 0); i < pairs && failures < 3; ++i) {
    Random random(seed * 1000003 + i);
    SCOPED_TRACE(fmt::format("pair {} of seed {}", i, seed));
    Pair pair(random);
    if (!pair.failed()) pair.Run();
    failures += pair.failed() ? 1 : 0;
    differences += pair.differences();
    given_up += pair.given_up() ? 1 : 0;
  }
  EXPECT_LE(given_up, 2 + pairs / 300);
  EXPECT_GT(differences, pairs / 2);  // the policies do differ where they are asked
}

}  // namespace
}  // namespace sluice::prover
