#include "tests/prover/attack_policies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "policy/io/load.h"

namespace sluice::prover {
namespace {

Words Some(Random& random, const Words& words, size_t most) {
  Words some;
  for (size_t i = 1 + Below(random, most); i > 0; --i) some.push_back(Any(random, words));
  return some;
}

const std::string kDigestText = "sha256:" + std::string(64, 'b');

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

}  // namespace

Vocabulary::Vocabulary(Random& r)
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

std::string Draft::Text() const {
  return fmt::format("version: 1\n{}rules:{}\n{}", audit ? "mode: audit\n" : "", rules.empty() ? " []" : "",
                     fmt::join(rules, ""));
}

std::string DrawLoadable(Random& r, const Vocabulary& v, bool allow) {
  for (int i = 0; i < 20; ++i) {
    std::string text = DrawRuleText(r, v, allow);
    if (policy::LoadText("version: 1\nrules:\n" + text, "p.yaml")) return text;
  }
  return "";
}

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

}  // namespace sluice::prover
