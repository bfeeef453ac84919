// The decisions against a slow reading of docs/policy-language.md that shares no code with them: no index, no precedence by
// class of rule, hosts and paths through RE2, sets of tuples as the page describes them.

#include <re2/re2.h>

#include <map>
#include <random>
#include <set>

#include "tests/policy/support.h"

namespace sluice::policy {
namespace {

struct Words {
  bool allow = false;
  std::string verb;  ///< "GET,POST", "http", "tls", "tcp", "dns"
  std::string scheme;
  std::string host;
  std::string port;
  std::string path;
  std::string by;
  std::string ip;

  [[nodiscard]] bool http() const { return verb == "http" || isupper(static_cast<unsigned char>(verb[0])); }
  [[nodiscard]] std::string Yaml() const {
    std::string text =
        (allow ? "  - allow: " : "  - deny: ") + verb + " " + scheme + host + (port.empty() ? "" : ":" + port) + path + "\n";
    if (!by.empty()) text += "    by: [" + by + "]\n";
    if (!ip.empty()) text += "    ip: ['" + ip + "']\n";
    return text;
  }
};

struct Tuple {
  std::string exe;   ///< empty: unknown
  std::string host;  ///< empty: by literal
  std::string address;
  uint16_t port = 0;
  bool tls = true;
  std::string method;
  std::string path;
};

bool FullMatch(const std::string& subject, const std::string& glob, const char* one, const char* many) {
  static std::map<std::string, std::unique_ptr<RE2>> cache;
  std::string regex;
  for (size_t i = 0; i < glob.size(); ++i) {
    if (glob.compare(i, 2, "**") == 0) {
      regex += many;
      ++i;
    } else {
      regex += glob[i] == '*' ? one : RE2::QuoteMeta(glob.substr(i, 1));
    }
  }
  auto& compiled = cache[regex];
  if (!compiled) compiled = std::make_unique<RE2>(regex);
  return RE2::FullMatch(subject, *compiled);
}

bool IsLiteral(const std::string& host) { return IpAddress::Parse(host.substr(0, host.find('/'))).has_value(); }

bool HostHolds(const Words& rule, const Tuple& t) {
  if (rule.host == "**") return true;
  if (IsLiteral(rule.host)) {
    const bool inside = Cidr::Parse(rule.host)->Contains(*IpAddress::Parse(t.address));
    return inside && (t.host.empty() || !rule.allow || rule.verb == "tcp");
  }
  if (t.host.empty()) return false;
  if (!FullMatch(t.host, rule.host, "[^.]*", "[^.]+(?:\\.[^.]+)*")) return false;
  if (rule.host.starts_with("*.") && t.host.starts_with(".")) return false;
  // A star inside a label holds no A-label, in an allow.
  const bool inner_star = rule.host.starts_with("x*");
  return !(rule.allow && inner_star && t.host.starts_with("xn--"));
}

bool ProcessHolds(const Words& rule, const Tuple& t) {
  if (rule.by.empty()) return true;
  return t.exe.empty() ? !rule.allow : FullMatch(t.exe, rule.by, "[^/]*", ".*");
}

std::string DefaultPort(const Words& rule) {
  if (!rule.port.empty()) return rule.port;
  if (!rule.allow) return "";
  return rule.scheme == "http://" ? "80" : "443";
}

bool PortHolds(const Words& rule, const Tuple& t) {
  return DefaultPort(rule).empty() || DefaultPort(rule) == std::to_string(t.port);
}

const std::pair<const char*, const char*> kSpecial[] = {{"10.1.2.3", "10.0.0.0/8"}, {"169.254.169.254", "169.254.169.254/32"}};

bool AddressHolds(const Words& rule, const Tuple& t) {
  const IpAddress address = *IpAddress::Parse(t.address);
  if (!rule.ip.empty() && !Cidr::Parse(rule.ip)->Contains(address)) return false;
  if (!rule.allow) return true;
  for (const auto& [special, range] : kSpecial) {
    if (t.address != special) continue;
    for (const std::string& text : {rule.ip, IsLiteral(rule.host) ? rule.host : std::string()})
      if (!text.empty() && Cidr::Parse(text)->Contains(address) && Cidr::Parse(range)->Contains(*Cidr::Parse(text))) return true;
    return false;
  }
  return true;
}

bool ConnectionHolds(const Words& rule, const Tuple& t) {
  return HostHolds(rule, t) && ProcessHolds(rule, t) && PortHolds(rule, t) && AddressHolds(rule, t);
}

bool SchemeHolds(const Words& rule, bool tls) {
  if (rule.scheme.empty()) return !rule.allow || tls;
  return (rule.scheme == "https://") == tls;
}

bool RequestHolds(const Words& rule, const Tuple& t) {
  bool method = rule.verb == "http";
  for (size_t at = 0; at < rule.verb.size() && !method;) {
    const size_t comma = std::min(rule.verb.find(',', at), rule.verb.size());
    const std::string listed = rule.verb.substr(at, comma - at);
    method = listed == t.method || (listed == "GET" && t.method == "HEAD");
    at = comma + 1;
  }
  return method && SchemeHolds(rule, t.tls) && (rule.path.empty() || FullMatch(t.path, rule.path, "[^/]*", ".*"));
}

using Policy = std::vector<Words>;

bool OuterDenied(const Policy& policy, const Tuple& t) {
  for (const Words& rule : policy) {
    if (rule.allow || !ProcessHolds(rule, t)) continue;
    if (rule.verb == "dns" && !t.host.empty() && HostHolds(rule, t)) return true;
    if (rule.verb == "tcp" && ConnectionHolds(rule, t)) return true;
  }
  return false;
}

bool TlsDenied(const Policy& policy, const Tuple& t) {
  return std::any_of(policy.begin(), policy.end(),
                     [&](const Words& r) { return !r.allow && r.verb == "tls" && ConnectionHolds(r, t); });
}

// Exact point 3, for one opaque verb.
bool EffectiveOpaque(const Policy& policy, const Tuple& t, const std::string& verb) {
  if (OuterDenied(policy, t) || (verb == "tls" && TlsDenied(policy, t))) return false;
  bool allowed = false;
  for (const Words& rule : policy) {
    if (rule.verb == verb && rule.allow) allowed = allowed || ConnectionHolds(rule, t);
    if (rule.allow || !ConnectionHolds(rule, t)) continue;
    if (rule.port.empty() && t.port != 80 && t.port != 443) continue;
    if (verb == "tcp" && (rule.verb == "tls" || rule.http())) return false;
    if (verb == "tls" && rule.http() && SchemeHolds(rule, true)) return false;
  }
  return allowed;
}

bool OracleRequest(const Policy& policy, const Tuple& t) {
  if (EffectiveOpaque(policy, t, "tcp") || (t.tls && EffectiveOpaque(policy, t, "tls"))) return true;
  if (OuterDenied(policy, t) || (t.tls && TlsDenied(policy, t))) return false;
  bool allowed = false;
  for (const Words& rule : policy) {
    if (!rule.http() || !ConnectionHolds(rule, t) || !RequestHolds(rule, t)) continue;
    if (!rule.allow) return false;
    allowed = true;
  }
  return allowed;
}

ConnectVerdict OracleConnect(const Policy& policy, const Tuple& t) {
  if (OuterDenied(policy, t)) return ConnectVerdict::kDeny;
  if (EffectiveOpaque(policy, t, "tcp")) return ConnectVerdict::kOpaqueTcp;
  if (EffectiveOpaque(policy, t, "tls")) return ConnectVerdict::kOpaqueTls;
  for (const Words& rule : policy)
    for (const bool tls : {true, false})
      if (rule.allow && rule.http() && ConnectionHolds(rule, t) && SchemeHolds(rule, tls) && !(tls && TlsDenied(policy, t)))
        return ConnectVerdict::kInspect;
  return ConnectVerdict::kDeny;
}

bool OracleName(const Policy& policy, const Tuple& t) {
  bool allowed = false;
  for (const Words& rule : policy) {
    if (IsLiteral(rule.host) || !HostHolds(rule, t) || !ProcessHolds(rule, t)) continue;
    if (rule.allow) allowed = true;
    if (!rule.allow && rule.verb == "dns") return false;
  }
  return allowed;
}

template <size_t N>
std::string Pick(std::mt19937* random, const char* const (&options)[N]) {
  return options[(*random)() % N];
}

Words RandomRule(std::mt19937* random) {
  static const char* const kVerbs[] = {"GET", "GET,POST", "http", "HEAD", "tls", "tcp", "dns", "GET"};
  static const char* const kHosts[] = {"a.test",  "b.test", "*.a.test", "**.a.test", "**",
                                       "x*.test", "*.test", "a.test",   "x.a.test"};
  static const char* const kTcpHosts[] = {"10.0.0.0/8", "10.1.2.3", "0.0.0.0/0", "1.1.1.1"};
  static const char* const kPorts[] = {"", "", "443", "80", "8443"};
  static const char* const kPaths[] = {"", "", "/v1/**", "/v1", "/*", "/**/b", "/v*/a"};
  static const char* const kBy[] = {"", "", "", "/usr/bin/node", "/usr/*/c*"};
  static const char* const kIp[] = {"", "", "", "10.0.0.0/8", "1.1.1.1", "0.0.0.0/0", "169.254.169.254"};
  Words rule;
  rule.allow = (*random)() % 10 < 7;
  rule.verb = Pick(random, kVerbs);
  rule.host = Pick(random, kHosts);
  if (rule.verb == "tcp" && (*random)() % 3 == 0) rule.host = Pick(random, kTcpHosts);
  if (rule.http() && (*random)() % 12 == 0) rule.host = "1.1.1.1";
  if (rule.verb != "dns") rule.port = Pick(random, kPorts);
  if (rule.verb == "tcp" && rule.allow && rule.port.empty()) rule.port = "443";
  if (rule.http()) rule.path = Pick(random, kPaths);
  if (rule.http() && (*random)() % 3 == 0) rule.scheme = (*random)() % 2 == 0 ? "http://" : "https://";
  rule.by = Pick(random, kBy);
  if (rule.verb != "dns") rule.ip = Pick(random, kIp);
  return rule;
}

std::string Show(const Policy& policy, const Tuple& t) {
  std::string text;
  for (const Words& rule : policy) text += rule.Yaml();
  return text + t.exe + " " + t.method + " " + (t.tls ? "https " : "http ") + t.host + " " + t.address + ":" +
         std::to_string(t.port) + " " + t.path;
}

void Compare(const Policy& policy, const SnapshotPtr& s, const Tuple& t) {
  Process process;
  process.exe = {t.exe, true, {}};
  ConnectQuery connect = To(t.host, t.port, t.address.c_str());
  if (!t.exe.empty()) connect.process = &process;
  ASSERT_EQ(s->DecideConnect(connect).verdict, OracleConnect(policy, t)) << Show(policy, t);
  Request request(t.method, connect, t.path, t.tls ? Scheme::kHttps : Scheme::kHttp);
  ASSERT_EQ(s->DecideRequest(request.Get()).allowed, OracleRequest(policy, t)) << Show(policy, t);
  if (!t.host.empty()) {
    const NameQuery name{connect.process, t.host, 1, kNow};
    ASSERT_EQ(s->DecideName(name).verdict == NameVerdict::kAllow, OracleName(policy, t)) << Show(policy, t);
  }
}

TEST(Oracle, AgreesOnRandomPolicies) {
  std::mt19937 random(42);
  static const char* const kExes[] = {"", "/usr/bin/node", "/usr/bin/curl", "/usr/lib/cc"};
  static const char* const kHosts[] = {"a.test", "b.test", "x.a.test", "y.x.a.test", "xn--q.test", "xz.test", "other", ""};
  static const char* const kAddresses[] = {"1.1.1.1", "1.1.1.1", "8.8.8.8", "10.1.2.3", "169.254.169.254"};
  static const char* const kMethods[] = {"GET", "HEAD", "POST", "PUT"};
  static const char* const kPaths[] = {"/", "/v1", "/v1/", "/v1/a", "/v1/a/b", "/b", "/x"};
  size_t allowed = 0;
  size_t asked = 0;
  for (int round = 0; round < 2500; ++round) {
    Policy policy(1 + random() % 6);
    std::string text = "version: 1\nrules:\n";
    for (Words& rule : policy) {
      rule = RandomRule(&random);
      text += rule.Yaml();
    }
    const auto s = Loaded(text);
    for (int i = 0; i < 60; ++i) {
      Tuple t{Pick(&random, kExes),    Pick(&random, kHosts), Pick(&random, kAddresses), 443, true,
              Pick(&random, kMethods), Pick(&random, kPaths)};
      const uint16_t ports[] = {443, 443, 80, 8443};
      t.port = ports[random() % 4];
      t.tls = t.port != 80 || random() % 4 == 0;
      ASSERT_NO_FATAL_FAILURE(Compare(policy, s, t));
      allowed += OracleRequest(policy, t) ? 1u : 0u;
      ++asked;
    }
  }
  // Both answers are well represented.
  EXPECT_GT(allowed, asked / 40);
  EXPECT_LT(allowed, asked / 2);
}

// Exact point 4: order never matters, and more allows never narrow reach.
TEST(Oracle, MoreAllowsNeverNarrow) {
  std::mt19937 random(43);
  for (int round = 0; round < 1500; ++round) {
    Policy policy(1 + random() % 5);
    for (Words& rule : policy) rule = RandomRule(&random);
    Words extra = RandomRule(&random);
    extra.allow = true;
    if (extra.verb == "tcp" && extra.port.empty()) extra.port = "443";
    std::string text;
    std::string reversed;
    for (const Words& rule : policy) {
      text += rule.Yaml();
      reversed = rule.Yaml() + reversed;
    }
    const auto small = Loaded(WithRules(text));
    const auto large = Loaded(WithRules(text + extra.Yaml()));
    const auto turned = Loaded(WithRules(reversed));
    ASSERT_EQ(small->digest(), turned->digest());
    for (const char* host : {"a.test", "x.a.test", "b.test", ""}) {
      for (const char* method : {"GET", "POST"}) {
        Request request(method, To(host, 443, "1.1.1.1"), "/v1/a");
        const bool before = small->DecideRequest(request.Get()).allowed;
        EXPECT_EQ(turned->DecideRequest(request.Get()).allowed, before) << text;
        if (before) EXPECT_TRUE(large->DecideRequest(request.Get()).allowed) << text << extra.Yaml();
      }
    }
  }
}

}  // namespace
}  // namespace sluice::policy
