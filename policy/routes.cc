#include "policy/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "policy/address.h"
#include "policy/match.h"
#include "policy/overlap.h"
#include "policy/rule_text.h"

namespace sluice::policy {
namespace {

constexpr size_t kMaxPairs = 4'000'000;  // of rules with routes that are compared

std::unexpected<Error> At(const SourceSpan& span, std::string message, Code code = Code::kInvalid) {
  return std::unexpected(Error{code, std::move(message), 0, span});
}

std::string Shown(const Rule& rule) { return fmt::format("`allow: {}`", CompactText(rule)); }
std::string PlaceOf(const Rule& rule) { return PlaceText(rule.span, rule.origin); }

template <class T>
uint16_t IndexOf(const std::vector<T>& list, std::string_view name) {
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].name == name) return static_cast<uint16_t>(i);
  return kNoIndex16;
}

template <class T>
std::unexpected<Error> UnknownName(const SourceSpan& span, std::string_view what, std::string_view section, std::string_view name,
                                   const std::vector<T>& list) {
  std::vector<std::string_view> names;
  for (const T& item : list) names.push_back(item.name);
  std::string hint = DidYouMean(name, names);
  if (hint.empty()) hint = fmt::format("; `{}` defines them", section);
  return At(span, fmt::format("no {} is called `{}`{}", what, name, hint));
}

// --- `with` lies within `to` ---

bool HostHolds(const HostPattern& outer, const HostPattern& inner) {
  using Kind = HostPattern::Kind;
  if (outer == inner) return true;
  if (inner.kind == Kind::kName) return HostMatchesName(outer, inner.text, true);
  if (outer.kind != Kind::kGlob || inner.kind != Kind::kGlob || inner.labels.size() < outer.labels.size()) return false;
  const size_t extra = inner.labels.size() - outer.labels.size();
  if (outer.deep ? extra == 0 && !inner.deep : extra != 0 || inner.deep) return false;
  for (size_t i = 0; i < outer.labels.size(); ++i) {
    const Glob& o = outer.labels[i];
    const Glob& n = inner.labels[i + extra];
    if (!(o == n || o.text() == "*" || (n.is_literal() && LabelMatches(o, n.text(), true)))) return false;
  }
  return true;
}

// The paths of all requests that the rule covers, as patterns. A repository is any case of itself.
std::vector<PathPattern> PathsOf(const Rule& rule) {
  std::vector<PathPattern> out;
  if (rule.paths.empty()) return {AnyPath()};
  for (const Glob& path : rule.paths) {
    if (!IsGit(rule.verb)) {
      out.push_back(PatternOf(path, "", PathCase::kExact));
      continue;
    }
    for (const std::string_view suffix : {"", ".git"}) {
      out.push_back(PatternOf(path, fmt::format("{}/info/refs", suffix), PathCase::kFolded));
      out.push_back(PatternOf(path, fmt::format("{}/{}", suffix, GitService(rule.verb)), PathCase::kFolded));
      if (rule.lfs) out.push_back(PatternOf(path, fmt::format("{}/info/lfs/", suffix), PathCase::kFoldedBelow));
    }
  }
  return out;
}

bool PortsHold(const std::vector<PortRange>& outer, uint16_t port) {
  return std::any_of(outer.begin(), outer.end(), [&](const PortRange& r) { return r.first <= port && port <= r.last; });
}

bool LiesWithin(const Rule& rule, const Credential& credential) {
  std::vector<const CredentialScope*> hosts;
  for (const CredentialScope& scope : credential.to)
    if (HostHolds(scope.host, rule.host)) hosts.push_back(&scope);
  if (hosts.empty()) return false;
  // Between two edges of ranges nothing changes.
  std::vector<uint32_t> edges;
  for (const PortRange& range : rule.ports) edges.push_back(range.first);
  for (const CredentialScope* scope : hosts)
    for (const PortRange& range : scope->ports)
      for (const uint32_t edge : {uint32_t{range.first}, range.last + 1u})
        if (edge <= 65535 && PortsHold(rule.ports, static_cast<uint16_t>(edge))) edges.push_back(edge);
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  const std::vector<PathPattern> wanted = PathsOf(rule);
  const PathCase fold = IsGit(rule.verb) ? PathCase::kFolded : PathCase::kExact;
  return std::all_of(edges.begin(), edges.end(), [&](uint32_t port) {
    std::vector<PathPattern> given;
    for (const CredentialScope* scope : hosts) {
      if (!PortsHold(scope->ports, static_cast<uint16_t>(port))) continue;
      if (scope->paths.empty()) return true;
      for (const Glob& path : scope->paths) given.push_back(PatternOf(path, "", fold));
    }
    return std::all_of(wanted.begin(), wanted.end(), [&](const PathPattern& w) { return PathsHold(given, w); });
  });
}

Result<void> CheckScope(const Rule& rule, const Credential& credential) {
  if (LiesWithin(rule, credential)) return {};
  std::string to;
  for (const CredentialScope& scope : credential.to) to += (to.empty() ? "" : ", ") + scope.text;
  std::string target = CompactText(rule);
  target.erase(0, target.rfind(' ') + 1);
  if (rule.verb == Verb::kGrpc || IsGit(rule.verb)) target = rule.host.text;
  return At(rule.with_at, fmt::format("{} covers more than `{}` may go to ([{}]); narrow the rule, or add `{}` to its `to`",
                                      Shown(rule), credential.name, to, target));
}

// --- names ---

Result<void> ResolveNames(PolicySource* source) {
  for (Rule& rule : source->rules) {
    rule.routes = !rule.pins.empty();
    if (!rule.with.empty()) {
      rule.credential = IndexOf(source->credentials, rule.with);
      if (rule.credential == kNoIndex16)
        return UnknownName(rule.with_at, "credential", "credentials", rule.with, source->credentials);
      if (auto good = CheckScope(rule, source->credentials[rule.credential]); !good) return good;
      rule.routes = true;
    }
    if (!rule.via.empty()) {
      rule.proxy = IndexOf(source->proxies, rule.via);
      if (rule.proxy == kNoIndex16) return UnknownName(rule.via_at, "proxy", "proxies", rule.via, source->proxies);
      rule.routes = true;
    }
  }
  Settings& settings = source->settings;
  if (settings.via.empty()) return {};
  settings.proxy = IndexOf(source->proxies, settings.via);
  if (settings.proxy == kNoIndex16) return UnknownName(settings.via_at, "proxy", "proxies", settings.via, source->proxies);
  return {};
}

// --- two rules, one request ---

enum class BodyType : uint8_t { kAny, kJson, kGrpc, kGit };

BodyType TypeOf(const Rule& rule) {
  if (IsGit(rule.verb)) return BodyType::kGit;
  if (rule.verb == Verb::kGrpc) return BodyType::kGrpc;
  return rule.verb == Verb::kHttp || rule.verb == Verb::kWs ? BodyType::kAny : BodyType::kJson;
}

bool Sends(const Rule& rule, std::string_view method) {
  const bool get = method == "GET";
  const bool post = method == "POST";
  switch (rule.verb) {
    case Verb::kHttp:
      return ListsMethod(rule, method);
    case Verb::kWs:
      return get;
    case Verb::kGraphql:
      return post || (get && rule.graphql == GraphqlKind::kQuery);
    case Verb::kMcp:
      return post || ((get || method == "DELETE") && HoldsMcpSession(rule));
    case Verb::kGitFetchPack:
    case Verb::kGitReceivePack:
      return get || post || (rule.lfs && (method == "PUT" || method == "HEAD"));
    default:
      return post;
  }
}

// A method that both may send; empty where there is none.
std::string CommonMethod(const Rule& a, const Rule& b) {
  std::vector<std::string> methods = {"GET", "POST", "DELETE", "PUT", "HEAD"};
  for (const Rule* rule : {&a, &b}) methods.insert(methods.end(), rule->methods.begin(), rule->methods.end());
  for (const std::string& method : methods)
    if (Sends(a, method) && Sends(b, method)) return method;
  return "";
}

bool TextsMeet(const std::vector<Glob>& a, const std::vector<Glob>& b) {
  if (a.empty() || b.empty()) return true;
  return std::any_of(a.begin(), a.end(), [&](const Glob& x) {
    return std::any_of(b.begin(), b.end(), [&](const Glob& y) { return GlobsOverlap(x, y); });
  });
}

// Every value of a listed key must match: two lists apart on one key have no request in common.
bool MatchersMeet(const std::vector<ValueMatcher>& a, const std::vector<ValueMatcher>& b) {
  return std::all_of(a.begin(), a.end(), [&](const ValueMatcher& x) {
    return std::all_of(b.begin(), b.end(),
                       [&](const ValueMatcher& y) { return x.key != y.key || TextsMeet(x.values, y.values); });
  });
}

bool HostsMeet(const HostPattern& a, const HostPattern& b) {
  using Kind = HostPattern::Kind;
  if (a.kind == Kind::kAny || b.kind == Kind::kAny) return true;
  if (a.kind == Kind::kAddress || b.kind == Kind::kAddress) return a.kind == b.kind && a.cidr == b.cidr;
  if (a.kind == Kind::kName) return HostMatchesName(b, a.text, true);
  if (b.kind == Kind::kName) return HostMatchesName(a, b.text, true);
  return HostGlobsOverlap(a, b);
}

// A call that both name. The session of MCP has calls of its own.
bool CallsMeet(const Rule& a, const Rule& b) {
  if (a.verb == Verb::kGraphql && b.verb == Verb::kGraphql)
    return a.graphql == b.graphql && TextsMeet(a.fields, b.fields) && TextsMeet(a.operation, b.operation);
  const auto rpc = [](const Rule& r) { return r.verb == Verb::kJsonRpc || r.verb == Verb::kMcp; };
  if (!rpc(a) || !rpc(b)) return true;
  if (HoldsMcpSession(a) && HoldsMcpSession(b)) return true;
  const auto in_session = [](const Rule& session, const Rule& other) {
    static const Glob kNotifications = *Glob::Text("notifications/*");
    return HoldsMcpSession(session) && (other.rpc.Matches("ping") || GlobsOverlap(other.rpc, kNotifications));
  };
  if (in_session(a, b) || in_session(b, a)) return true;
  return GlobsOverlap(a.rpc, b.rpc) && TextsMeet(a.tool, b.tool);
}

// A path that both cover; nothing where there is none.
std::optional<std::string> CommonPath(const Rule& a, const Rule& b) {
  if (IsGit(a.verb) && IsGit(b.verb)) {
    if (a.verb != b.verb) return std::nullopt;
    if (a.paths.empty() || b.paths.empty()) return "/octo/hello.git/info/refs";
    for (const Glob& x : a.paths)
      for (const Glob& y : b.paths)
        if (const auto repo = CommonText(PatternOf(x, "", PathCase::kExact), PatternOf(y, "", PathCase::kExact)))
          return *repo + ".git/info/refs";
    return std::nullopt;
  }
  const PathCase fold = IsGit(a.verb) || IsGit(b.verb) ? PathCase::kFolded : PathCase::kExact;
  const auto patterns = [&](const Rule& rule) {
    if (IsGit(rule.verb) || rule.paths.empty()) return PathsOf(rule);
    std::vector<PathPattern> out;
    for (const Glob& path : rule.paths) out.push_back(PatternOf(path, "", fold));
    return out;
  };
  for (const PathPattern& x : patterns(a))
    for (const PathPattern& y : patterns(b))
      if (auto path = CommonText(x, y)) return path;
  return std::nullopt;
}

std::optional<std::string> CommonRequest(const Rule& a, const Rule& b) {
  if (a.scheme != b.scheme || (a.verb == Verb::kWs) != (b.verb == Verb::kWs)) return std::nullopt;
  if (!HostsMeet(a.host, b.host) || !PortsOverlap(a.ports, b.ports) || !ProcessesOverlap(a, b) || !PrefixesOverlap(a.ip, b.ip))
    return std::nullopt;
  const BodyType x = TypeOf(a);
  const BodyType y = TypeOf(b);
  if (x != y && x != BodyType::kAny && y != BodyType::kAny) return std::nullopt;
  const std::string method = CommonMethod(a, b);
  if (method.empty() || !CallsMeet(a, b) || !MatchersMeet(a.query, b.query) || !MatchersMeet(a.headers, b.headers) ||
      !MatchersMeet(a.json, b.json))
    return std::nullopt;
  const auto path = CommonPath(a, b);
  if (!path) return std::nullopt;
  const Rule& narrow = a.host.kind == HostPattern::Kind::kName ? a : b;
  std::string host = narrow.host.kind == HostPattern::Kind::kAny ? a.host.text : narrow.host.text;
  return fmt::format("{} {}{}", method, host, *path);
}

// Whether a connection that the inner allow speaks for may be passed through by the opaque one.
bool ConnectionsMeet(const Rule& inner, const Rule& opaque) {
  if (opaque.verb == Verb::kTls && inner.scheme == Scheme::kHttp) return false;
  if (!PortsOverlap(inner.ports, opaque.ports) || !ProcessesOverlap(inner, opaque) || !PrefixesOverlap(inner.ip, opaque.ip))
    return false;
  if (opaque.verb != Verb::kTcp || !opaque.host.cidr) return HostsMeet(inner.host, opaque.host);
  const Cidr& prefix = *opaque.host.cidr;
  if (inner.host.cidr) return prefix.Contains(*inner.host.cidr);
  if (!inner.ip.empty()) return PrefixesOverlap(inner.ip, {prefix});
  // By name alone an allow never leads to a special range.
  const auto special = FindSpecialRange(prefix.base(), {});
  return !special || !special->range.Contains(prefix);
}

class Conflicts {
 public:
  explicit Conflicts(const PolicySource& source) : rules_(source.rules) {
    for (uint32_t i = 0; i < rules_.size(); ++i) {
      const Rule& rule = rules_[i];
      if (!rule.allow) continue;
      if (rule.verb == Verb::kTcp || rule.verb == Verb::kTls) opaque_.push_back(i);
      if (IsInner(rule.verb) && rule.routes) Of(rule).push_back(i);
    }
  }

  Result<void> Check() {
    for (uint32_t i = 0; i < rules_.size(); ++i) {
      const Rule& rule = rules_[i];
      if (!rule.allow || !rule.routes) continue;
      auto checked = IsInner(rule.verb) ? CheckInner(i) : CheckOpaque(i);
      if (!checked) return checked;
    }
    return {};
  }

 private:
  std::vector<uint32_t>& Of(const Rule& rule) {
    return rule.host.kind == HostPattern::Kind::kName ? by_name_[rule.host.text] : wide_;
  }

  Result<void> Count(const Rule& rule) {
    if (++pairs_ <= kMaxPairs) return {};
    return At(rule.span,
              "too many rules with `with`, `via` or `pins` to compare each with each; use one rule with a list of paths",
              Code::kExhausted);
  }

  Result<void> CheckInner(uint32_t index) {
    const Rule& rule = rules_[index];
    const bool named = rule.host.kind == HostPattern::Kind::kName;
    if (named) {
      for (const auto* list : {&by_name_[rule.host.text], &wide_})
        if (auto good = Against(index, *list); !good) return good;
    } else {
      for (const auto& [name, list] : by_name_)
        if (auto good = Against(index, list); !good) return good;
      if (auto good = Against(index, wide_); !good) return good;
    }
    if (rule.with.empty()) return {};
    for (const uint32_t j : opaque_) {
      if (auto counted = Count(rule); !counted) return counted;
      const Rule& other = rules_[j];
      if (ConnectionsMeet(rule, other))
        return At(
            rule.with_at,
            fmt::format("{} sends `{}`, but {} at {} passes the same connection through unread, where nothing can be added; "
                        "narrow or remove one of them",
                        Shown(rule), rule.with, Shown(other), PlaceOf(other)));
    }
    return {};
  }

  Result<void> Against(uint32_t index, const std::vector<uint32_t>& list) {
    const Rule& rule = rules_[index];
    for (const uint32_t j : list) {
      const Rule& other = rules_[j];
      if (j >= index) continue;  // each pair once
      const bool credential = !rule.with.empty() && !other.with.empty() && rule.with != other.with;
      const bool proxy = !rule.via.empty() && !other.via.empty() && rule.via != other.via;
      const bool pins = !rule.pins.empty() && !other.pins.empty() && rule.pins != other.pins;
      if (!credential && !proxy && !pins) continue;
      if (auto counted = Count(rule); !counted) return counted;
      const auto request = CommonRequest(rule, other);
      if (!request) continue;
      const std::string what = credential ? fmt::format("`with: {}` and `with: {}`", other.with, rule.with)
                               : proxy    ? fmt::format("`via: {}` and `via: {}`", other.via, rule.via)
                                          : std::string("different `pins`");
      return At(credential ? rule.with_at
                : proxy    ? rule.via_at
                           : rule.span,
                fmt::format("{} and {} at {} both cover `{}`, with {}; narrow one of them so that each request has one answer",
                            Shown(rule), Shown(other), PlaceOf(other), *request, what));
    }
    return {};
  }

  Result<void> CheckOpaque(uint32_t index) {
    const Rule& rule = rules_[index];
    for (const uint32_t j : opaque_) {
      const Rule& other = rules_[j];
      if (j >= index || rule.via.empty() || other.via.empty() || rule.via == other.via) continue;
      if (auto counted = Count(rule); !counted) return counted;
      if (PortsOverlap(rule.ports, other.ports) && ConnectionsOverlap(rule, other))
        return At(rule.via_at,
                  fmt::format("{} and {} at {} both cover a connection, with `via: {}` and `via: {}`; narrow one of them",
                              Shown(rule), Shown(other), PlaceOf(other), other.via, rule.via));
    }
    return {};
  }

  const std::vector<Rule>& rules_;
  std::vector<uint32_t> opaque_;
  std::unordered_map<std::string, std::vector<uint32_t>> by_name_;
  std::vector<uint32_t> wide_;
  size_t pairs_ = 0;
};

}  // namespace

bool RequestsMeet(const Rule& a, const Rule& b) { return CommonRequest(a, b).has_value(); }

Result<void> ResolveRoutes(PolicySource* source) {
  if (auto resolved = ResolveNames(source); !resolved) return resolved;
  return Conflicts(*source).Check();
}

}  // namespace sluice::policy
