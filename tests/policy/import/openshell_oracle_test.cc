// Random OpenShell policies over a small vocabulary, asked of the decisions and of a plain evaluator of what OpenShell does: its
// connection check, then, where an endpoint reads requests, the endpoint that the path selects, its allows and denies and whether
// they are enforced. Nothing is let through that OpenShell refuses unless a remark says that it is wider; nothing is refused that
// it lets through unless one says narrower.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <optional>
#include <random>

#include "../support.h"
#include "policy/compiled.h"
#include "policy/io/foreign.h"

namespace sluice::policy {
namespace {

struct Entry {
  std::string method;  ///< "*" is any
  std::string path;
  std::string value;  ///< of the query key k; empty is none
};
struct Endpoint {
  std::string host;
  std::string path;  ///< "" is any
  bool rest = false;
  bool enforce = false;
  bool skip = false;
  std::string access;
  std::vector<Entry> allows;
  std::vector<Entry> denies;
};
struct TheirPolicy {
  std::vector<Endpoint> endpoints;
  std::vector<std::string> binaries;
};

struct Who {
  std::string exe;
  std::vector<std::string> ancestors;
};
struct Asked {
  std::string host;
  std::string method;
  std::string path;
  std::optional<std::string> value;
};

bool HostIs(std::string_view pattern, std::string_view host) {
  if (pattern.starts_with("**.")) return host.ends_with(pattern.substr(2)) && host.size() > pattern.size() - 2;
  if (pattern.starts_with("*."))
    return host.ends_with(pattern.substr(1)) &&
           host.substr(0, host.size() - pattern.size() + 1).find('.') == std::string_view::npos &&
           host.size() > pattern.size() - 1;
  return pattern == host;
}

bool PathIs(std::string_view pattern, std::string_view path) {
  if (pattern == "**" || pattern == "/**") return true;
  if (pattern.ends_with("/**")) return path.starts_with(pattern.substr(0, pattern.size() - 2));
  if (pattern.ends_with("/*")) {
    const std::string_view prefix = pattern.substr(0, pattern.size() - 1);
    return path.starts_with(prefix) && path.substr(prefix.size()).find('/') == std::string_view::npos;
  }
  return pattern == path;
}

// How the proxy, in its own words, lets an endpoint's path select it: the prefix of `/x/**` counts too.
bool Selects(std::string_view pattern, std::string_view path) {
  return pattern.empty() || PathIs(pattern, path) || (pattern.ends_with("/**") && path == pattern.substr(0, pattern.size() - 3));
}

bool BinaryIs(const TheirPolicy& policy, const Who& who) {
  std::vector<std::string> all = who.ancestors;
  all.push_back(who.exe);
  for (const std::string& binary : policy.binaries)
    for (const std::string& path : all)
      if (PathIs(binary, path)) return true;
  return false;
}

bool MethodIs(std::string_view rule, std::string_view method) {
  return rule == "*" || rule == method || (rule == "GET" && method == "HEAD");
}

bool EntryIs(const Entry& entry, const Asked& asked) {
  if (!MethodIs(entry.method, asked.method) || !PathIs(entry.path, asked.path)) return false;
  return entry.value.empty() || (asked.value && *asked.value == entry.value);
}

bool Allows(const Endpoint& endpoint, const Asked& asked) {
  std::vector<Entry> entries = endpoint.allows;
  if (endpoint.access == "full") entries.push_back({"*", "**", ""});
  if (endpoint.access == "read-only")
    for (const char* method : {"GET", "HEAD", "OPTIONS"}) entries.push_back({method, "**", ""});
  for (const Entry& entry : entries)
    if (EntryIs(entry, asked)) return true;
  return false;
}

// Nothing where endpoints of one connection disagree on `tls`: OpenShell refuses such a policy, or used to take one at random.
std::optional<bool> Theirs(const std::vector<TheirPolicy>& policies, const Who& who, const Asked& asked) {
  std::vector<const Endpoint*> matching;
  for (const TheirPolicy& policy : policies) {
    if (!BinaryIs(policy, who)) continue;
    for (const Endpoint& endpoint : policy.endpoints)
      if (HostIs(endpoint.host, asked.host)) matching.push_back(&endpoint);
  }
  if (matching.empty()) return false;
  bool reads = false;
  const Endpoint* selected = nullptr;
  size_t best = 0;
  bool allowed = false;
  bool denied = false;
  for (const Endpoint* endpoint : matching) {
    if (endpoint->skip != matching[0]->skip) return std::nullopt;
    if (!endpoint->rest || endpoint->skip) continue;
    reads = true;
    if (Selects(endpoint->path, asked.path)) {
      const auto specificity =
          static_cast<size_t>(std::count_if(endpoint->path.begin(), endpoint->path.end(), [](char c) { return c != '*'; }));
      // Among equals the stricter: which one is taken is not written down.
      if (selected == nullptr || specificity > best || (specificity == best && endpoint->enforce)) {
        selected = endpoint;
        best = specificity;
      }
    }
    if (!endpoint->path.empty() && !PathIs(endpoint->path, asked.path)) continue;
    allowed |= Allows(*endpoint, asked);
    for (const Entry& deny : endpoint->denies) denied |= EntryIs(deny, asked);
  }
  if (!reads) return true;
  if (selected == nullptr) return false;
  return (allowed && !denied) || !selected->enforce;
}

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}
  template <size_t N>
  std::string Pick(const char* const (&list)[N]) {
    return list[random_() % N];
  }
  bool Chance(unsigned percent) { return random_() % 100 < percent; }

  std::vector<TheirPolicy> Policies() {
    std::vector<TheirPolicy> out(1 + random_() % 3);
    for (TheirPolicy& policy : out) {
      policy.endpoints.resize(1 + random_() % 2);
      for (Endpoint& endpoint : policy.endpoints) Fill(&endpoint);
      for (size_t n = random_() % 3; n > 0; --n) policy.binaries.push_back(Pick({"/bin/a", "/bin/b", "/bin/*", "/**", "/usr/c"}));
    }
    return out;
  }

 private:
  Entry MakeEntry() {
    return {Pick({"GET", "POST", "*", "DELETE", "HEAD"}), Pick({"**", "/p/**", "/p", "/p/*", "/p/q", "/r"}),
            Chance(30) ? "v" : ""};
  }
  void Fill(Endpoint* endpoint) {
    endpoint->host = Pick({"a.x.t", "*.x.t", "**.x.t", "y.t", "x.t"});
    endpoint->rest = Chance(75);
    if (!endpoint->rest) return;
    endpoint->enforce = Chance(75);
    endpoint->skip = Chance(5);
    endpoint->path = Chance(30) ? Pick({"/p/**", "/p", "/p/q", "/r"}) : "";
    if (Chance(50)) {
      endpoint->access = Pick({"full", "read-only"});
    } else {
      for (size_t n = 1 + random_() % 2; n > 0; --n) endpoint->allows.push_back(MakeEntry());
    }
    if (Chance(25)) endpoint->denies.push_back(MakeEntry());
  }
  std::mt19937 random_;
};

std::string EntryText(const Entry& entry) {
  return fmt::format("{{ method: \"{}\", path: \"{}\"{} }}", entry.method, entry.path,
                     entry.value.empty() ? "" : fmt::format(", query: {{ k: {} }}", entry.value));
}

std::string Yaml(const std::vector<TheirPolicy>& policies) {
  std::string text = "version: 1\nnetwork_policies:\n";
  for (size_t i = 0; i < policies.size(); ++i) {
    text += fmt::format("  p{}:\n    endpoints:\n", i);
    for (const Endpoint& e : policies[i].endpoints) {
      text += fmt::format("      - host: \"{}\"\n        port: 443\n", e.host);
      if (!e.rest) continue;
      text += "        protocol: rest\n";
      if (e.enforce) text += "        enforcement: enforce\n";
      if (e.skip) text += "        tls: skip\n";
      if (!e.path.empty()) text += fmt::format("        path: {}\n", e.path);
      if (!e.access.empty()) text += fmt::format("        access: {}\n", e.access);
      if (!e.allows.empty()) text += "        rules:\n";
      for (const Entry& entry : e.allows) text += fmt::format("          - allow: {}\n", EntryText(entry));
      if (!e.denies.empty()) text += "        deny_rules:\n";
      for (const Entry& entry : e.denies) text += fmt::format("          - {}\n", EntryText(entry));
    }
    text += "    binaries:\n";
    if (policies[i].binaries.empty()) text.replace(text.size() - 1, 1, " []\n");
    for (const std::string& binary : policies[i].binaries) text += fmt::format("      - {{ path: \"{}\" }}\n", binary);
  }
  return text;
}

bool Ours(const SnapshotPtr& policy, const Who& who, const Asked& asked) {
  Process process;
  process.exe = {who.exe, true, {}};
  for (const std::string& path : who.ancestors) process.ancestors.push_back({path, true, {}});
  ConnectQuery query = To(asked.host, 443);
  query.process = &process;
  Request request(asked.method, query, asked.value ? asked.path + "?k=" + *asked.value : asked.path);
  return policy->DecideRequest(request.Get()).allowed;
}

TEST(OpenShellOracle, ReachesNoMoreAndNoLessThanItSays) {
  const Who kWho[] = {{"/bin/a", {}}, {"/bin/b", {"/usr/c"}}, {"/usr/c", {"/bin/a"}}, {"/usr/d", {}}};
  const std::string kAskedHosts[] = {"a.x.t", "b.a.x.t", "x.t", "y.t"};
  const std::string kMethods[] = {"GET", "HEAD", "POST", "DELETE"};
  const std::string kPaths[] = {"/", "/p", "/p/q", "/p/q/s", "/r"};
  const std::optional<std::string> kValues[] = {std::nullopt, "v", "w"};
  size_t compared = 0;
  size_t exact = 0;
  for (unsigned seed = 0; seed < 1000; ++seed) {
    const std::vector<TheirPolicy> policies = Generator(seed).Policies();
    const std::string text = Yaml(policies);
    const auto policy = LoadText(text, "openshell.yaml");
    ASSERT_TRUE(policy) << RenderError(policy.error(), false) << "\n" << text;
    bool overlap = false;
    bool narrower = false;
    for (const Finding& remark : (*policy)->compiled().remarks) {
      overlap |= remark.message.find("covers too") != std::string::npos;
      narrower |= remark.code == "import-narrower" && remark.message.find("programs of its policy") != std::string::npos;
    }
    bool same = true;
    for (const Who& who : kWho)
      for (const std::string& host : kAskedHosts)
        for (const std::string& method : kMethods)
          for (const std::string& path : kPaths)
            for (const auto& value : kValues) {
              const Asked asked{host, method, path, value};
              const auto theirs_if_any = Theirs(policies, who, asked);
              if (!theirs_if_any) continue;
              const bool theirs = *theirs_if_any;
              const bool ours = Ours(*policy, who, asked);
              ++compared;
              same = same && ours == theirs;
              ASSERT_TRUE(!ours || theirs || overlap)
                  << "wider, unsaid: " << who.exe << " " << method << " " << host << path << "\n"
                  << text;
              ASSERT_TRUE(!theirs || ours || narrower)
                  << "narrower, unsaid: " << who.exe << " " << method << " " << host << path << "\n"
                  << text;
            }
    exact += same;
  }
  EXPECT_GT(compared, 600'000u);
  EXPECT_GT(exact, 500u);
}

}  // namespace
}  // namespace sluice::policy
