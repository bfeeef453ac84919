#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <unordered_set>

#include "policy/compiled.h"
#include "policy/finding.h"
#include "policy/match.h"
#include "policy/operation.h"
#include "policy/overlap.h"
#include "policy/preset.h"
#include "policy/rule_text.h"

namespace sluice::policy {
namespace {

constexpr size_t kMaxWork = 500'000;  // comparisons of patterns, over the whole policy

class Linter {
 public:
  Linter(const Snapshot& snapshot, WallTime now) : compiled_(snapshot.compiled()), now_(now) {
    for (uint32_t i = 0; i < compiled_.rules.size(); ++i) {
      const Rule& rule = compiled_.rules[i];
      if (!rule.allow) denies_.push_back(i);
      if (rule.allow && (HoldsMcpSession(rule) || rule.verb == Verb::kHttp)) sessions_.push_back(i);
    }
  }

  std::vector<Finding> UnknownMethods() {
    for (uint32_t i = 0; i < compiled_.rules.size(); ++i) Methods(i, compiled_.rules[i]);
    return std::move(findings_);
  }

  std::vector<Finding> Run() {
    for (uint32_t i = 0; i < compiled_.rules.size(); ++i) {
      const Rule& rule = compiled_.rules[i];
      Alone(i, rule);
      Duplicate(i, rule);
      if (rule.allow) AgainstDenies(i, rule);
      if (rule.allow && rule.verb == Verb::kMcp) Session(i, rule);
    }
    return std::move(findings_);
  }

 private:
  using Severity = Finding::Severity;

  void Add(Severity severity, std::string code, uint32_t index, std::string message, uint32_t other = kNone) {
    if (findings_.size() >= kMaxFindings) return;
    // A preset's rules all have the place of the line that uses it: which one it is, the preset's own line says.
    const Rule& rule = compiled_.rules[index];
    if (rule.origin.line != 0) message += fmt::format(" ({})", Place(index));
    findings_.push_back({severity, std::move(code), std::move(message), rule.span,
                         other == kNone ? SourceSpan{} : compiled_.rules[other].span, rule.origin});
  }

  [[nodiscard]] std::string Text(uint32_t index) const {
    return fmt::format("`{}: {}`", compiled_.rules[index].allow ? "allow" : "deny", compiled_.info[index].text);
  }
  [[nodiscard]] std::string Place(uint32_t index) const {
    return PlaceText(compiled_.rules[index].span, compiled_.rules[index].origin);
  }

  // What can be said of one rule by itself.
  void Alone(uint32_t index, const Rule& rule) {
    Methods(index, rule);
    OlderPreset(index, rule);
    if (!rule.allow) return WholeHost(index, rule);
    if (rule.until && now_ >= *rule.until) Add(Severity::kWarning, "expired", index, fmt::format("{} has expired", Text(index)));
    if (IsInner(rule.verb) && rule.scheme == Scheme::kHttp)
      Add(Severity::kWarning, "cleartext", index,
          fmt::format("{} sends requests in the clear, and answers can be forged", Text(index)));
    if (rule.verb == Verb::kGitReceivePack && rule.refs.empty())
      Add(Severity::kNote, "push", index,
          fmt::format("{} lets every branch of those repositories be written; `refs` names the ones that may be", Text(index)));
    if (!rule.with.empty() && rule.host.kind != HostPattern::Kind::kName && rule.host.kind != HostPattern::Kind::kAddress)
      Add(Severity::kWarning, "broad-credential", index,
          fmt::format("{} sends `{}` to every host that `{}` holds; name the hosts", Text(index), rule.with, rule.host.text));
    if (!rule.with.empty() && (!rule.by.empty() || !rule.under.empty()))
      Add(Severity::kWarning, "credential-by", index,
          fmt::format("{} sends `{}` for programs by name, which keeps no other process of the sandbox from it", Text(index),
                      rule.with));
    const bool every_port = rule.ports.size() == 1 && rule.ports[0] == PortRange{1, 65535};
    if ((rule.verb == Verb::kTcp || rule.verb == Verb::kUdp) && !every_port && PortsOverlap(rule.ports, {{53, 53}}))
      Add(Severity::kWarning, "port-53", index,
          fmt::format("{} has no effect on port 53, which belongs to the resolver", Text(index)));
  }

  void Methods(uint32_t index, const Rule& rule) {
    for (const std::string& method : rule.methods)
      if (!IsCommonMethod(method))
        Add(Severity::kWarning, "unknown-method", index,
            fmt::format("{} is about the method {}, which is not a usual one; methods are matched to the letter", Text(index),
                        method));
  }

  // A rule of a preset that has a newer version.
  void OlderPreset(uint32_t index, const Rule& rule) {
    constexpr std::string_view kPreset = "preset:";
    std::string_view id = rule.origin.file;
    if (!id.starts_with(kPreset)) return;
    id.remove_prefix(kPreset.size());
    const std::string_view name = id.substr(0, id.find('@'));
    const PresetText* newest = nullptr;
    for (const PresetText& text : PresetTexts())
      if (text.name == name) newest = &text;
    const auto newer = newest == nullptr ? std::string() : fmt::format("{}@{}", name, newest->version);
    if (newer.empty() || newer == id || !older_.insert(fmt::format("{}:{}:{}", rule.span.file, rule.span.line, id)).second)
      return;
    Add(Severity::kNote, "older-preset", index, fmt::format("`{}` has a newer version, `{}`", id, newer));
  }

  // A deny by body takes all that it cannot read: without a path, nearly every POST to its host.
  void WholeHost(uint32_t index, const Rule& rule) {
    const bool by_body =
        rule.verb == Verb::kGraphql || rule.verb == Verb::kJsonRpc || rule.verb == Verb::kMcp || !rule.json.empty();
    if (by_body && rule.paths.empty())
      Add(Severity::kWarning, "deny-by-body", index,
          fmt::format("{} also refuses every body on every path of its hosts that it cannot read; name the path", Text(index)));
  }

  // What an MCP client does first is to initialize.
  void Session(uint32_t index, const Rule& rule) {
    if (HoldsMcpSession(rule)) return;
    for (const uint32_t j : sessions_) {
      const Rule& other = compiled_.rules[j];
      if (++work_ > kMaxWork) return TooLarge(index);
      if (other.verb == Verb::kHttp && !ListsMethod(other, "POST")) continue;
      if (other.scheme == rule.scheme && PortsOverlap(other.ports, rule.ports) && ConnectionsOverlap(other, rule) &&
          PathsMeet(other, rule))
        return;
    }
    Add(Severity::kWarning, "mcp-session", index,
        fmt::format("{} is of no use to a client that may not `mcp initialize` there", Text(index)));
  }

  static bool PathsMeet(const Rule& a, const Rule& b) {
    if (a.paths.empty() || b.paths.empty()) return true;
    return std::any_of(a.paths.begin(), a.paths.end(), [&](const Glob& x) {
      return std::any_of(b.paths.begin(), b.paths.end(), [&](const Glob& y) { return GlobsOverlap(x, y); });
    });
  }

  void Duplicate(uint32_t index, const Rule& rule) {
    const auto [it, fresh] = seen_.try_emplace(CanonicalText(rule), index);
    if (!fresh)
      Add(Severity::kWarning, "duplicate", index, fmt::format("{} is the rule at {} again", Text(index), Place(it->second)),
          it->second);
  }

  void TooLarge(uint32_t index) {
    if (too_large_) return;
    too_large_ = true;
    Add(Severity::kWarning, "not-compared", index,
        "the policy is too large to compare each allow with each deny: from here on they are not");
  }

  void AgainstDenies(uint32_t index, const Rule& allow) {
    for (const uint32_t j : denies_) {
      const Rule& deny = compiled_.rules[j];
      if (deny.verb == Verb::kUnix || allow.verb == Verb::kUnix) continue;
      work_ += 1 + allow.by.size() * deny.by.size() + allow.paths.size() * deny.paths.size();
      if (work_ > kMaxWork) return TooLarge(index);
      if (Shadows(deny, allow)) {
        Add(Severity::kWarning, "shadowed", index,
            fmt::format("{} grants nothing: {} at {} refuses all of it", Text(index), Text(j), Place(j)), j);
        continue;
      }
      if (OpaqueMeetsDeny(allow, deny))
        Add(Severity::kError, "opaque-allow-meets-deny", index,
            fmt::format("{} grants nothing where {} at {} looks inside; narrow one of them", Text(index), Text(j), Place(j)), j);
      if (const std::string half = HalfCut(allow, deny); !half.empty())
        Add(Severity::kWarning, "half-working", index,
            fmt::format("{} at {} refuses the {} of {}, which does not work without", Text(j), Place(j), half, Text(index)), j);
    }
  }

  // Exact point 3: a deny without a port counts as 80 and 443 inside an opaque allow.
  static bool OpaqueMeetsDeny(const Rule& allow, const Rule& deny) {
    if (allow.verb != Verb::kTcp && allow.verb != Verb::kTls) return false;
    const bool inner = IsInner(deny.verb) && (allow.verb == Verb::kTcp || deny.scheme != Scheme::kHttp);
    if (!inner && !(allow.verb == Verb::kTcp && deny.verb == Verb::kTls)) return false;
    const std::vector<PortRange> ports = deny.ports.empty() ? std::vector<PortRange>{{80, 80}, {443, 443}} : deny.ports;
    return PortsOverlap(allow.ports, ports) && ConnectionsOverlap(allow, deny);
  }

  // The requests that an operation is made of.
  struct Part {
    std::string_view method;
    std::string_view suffix;  ///< after the path; of git alone
  };
  static std::vector<Part> PartsOf(const Rule& allow) {
    switch (allow.verb) {
      case Verb::kGitFetchPack:
        if (allow.lfs) return {{"GET", "/info/refs"}, {"POST", "/git-upload-pack"}, {"POST", "/info/lfs/objects/batch"}};
        return {{"GET", "/info/refs"}, {"POST", "/git-upload-pack"}};
      case Verb::kGitReceivePack:
        if (allow.lfs) return {{"GET", "/info/refs"}, {"POST", "/git-receive-pack"}, {"POST", "/info/lfs/objects/batch"}};
        return {{"GET", "/info/refs"}, {"POST", "/git-receive-pack"}};
      case Verb::kGraphql:
        if (allow.graphql != GraphqlKind::kQuery) return {};
        return {{"POST", ""}, {"GET", ""}};
      case Verb::kMcp:
        if (!HoldsMcpSession(allow)) return {};
        return {{"POST", ""}, {"GET", ""}, {"DELETE", ""}};
      default:
        return {};
    }
  }

  // The methods of which a deny by method takes requests, where it leaves others of the operation.
  static std::string HalfCut(const Rule& allow, const Rule& deny) {
    if (deny.verb != Verb::kHttp || !deny.query.empty() || !deny.headers.empty() || !deny.json.empty()) return {};
    if ((deny.scheme && deny.scheme != allow.scheme) || !PortsOverlap(allow.ports, deny.ports)) return {};
    const std::vector<Part> parts = PartsOf(allow);
    if (parts.empty() || !ConnectionsOverlap(allow, deny)) return {};
    std::string cut;
    bool left = false;
    for (const Part& part : parts) {
      if (!CutsRequest(allow, deny, part.method, part.suffix)) {
        left = true;
      } else if (cut.find(part.method) == std::string::npos) {
        cut += fmt::format("{}{}", cut.empty() ? "" : " and ", part.method);
      }
    }
    return left ? cut : std::string();
  }

  static bool CutsRequest(const Rule& allow, const Rule& deny, std::string_view method, std::string_view suffix) {
    if (!deny.methods.empty() && std::find(deny.methods.begin(), deny.methods.end(), method) == deny.methods.end()) return false;
    if (deny.paths.empty() || allow.paths.empty()) return true;
    if (!IsGit(allow.verb)) return PathsMeet(allow, deny);
    for (const Glob& path : deny.paths)
      for (const Glob& repo : allow.paths)
        if (GlobOverlapsSuffixed(path, repo, suffix) || GlobOverlapsSuffixed(path, repo, fmt::format(".git{}", suffix)))
          return true;
    return false;
  }

  // Whether the deny refuses every tuple of the allow. Only where that is plain to see.
  static bool Shadows(const Rule& deny, const Rule& allow) {
    if (!deny.by.empty() || !deny.ip.empty() || !deny.query.empty() || !deny.headers.empty() || !HostCovers(deny, allow))
      return false;
    if (IsInner(deny.verb) && deny.scheme && deny.scheme != allow.scheme) return false;
    if (deny.verb == Verb::kDns) return deny.types.empty() && allow.host.kind != HostPattern::Kind::kAny;
    if (allow.verb == Verb::kDns || !PortsCover(deny, allow)) return false;
    switch (deny.verb) {
      case Verb::kUdp:
        return allow.verb == Verb::kUdp;
      case Verb::kTcp:
        return allow.verb != Verb::kUdp;
      case Verb::kTls:
        return allow.verb == Verb::kTls || (IsInner(allow.verb) && allow.scheme == Scheme::kHttps);
      case Verb::kHttp:
        return IsInner(allow.verb) && deny.json.empty() && MethodsCover(deny, allow) && PathsCover(deny, allow);
      case Verb::kGitFetchPack:
      case Verb::kGitReceivePack:
        return allow.verb == deny.verb && !ReadsPush(deny) && (!allow.lfs || deny.lfs) && PathsCover(deny, allow);
      case Verb::kWs:
      case Verb::kGrpc:
        return allow.verb == deny.verb && PathsCover(deny, allow);
      case Verb::kGraphql:
        return allow.verb == deny.verb && PathsCover(deny, allow) && DenyCoversAllow(deny, allow, kBodyGraphql);
      case Verb::kJsonRpc:
      case Verb::kMcp:
        return (allow.verb == Verb::kJsonRpc || (allow.verb == Verb::kMcp && !HoldsMcpSession(allow))) &&
               PathsCover(deny, allow) && DenyCoversAllow(deny, allow, kBodyRpc);
      default:
        return false;
    }
  }

  static bool HostCovers(const Rule& deny, const Rule& allow) {
    if (deny.host.kind == HostPattern::Kind::kAny || deny.host == allow.host)
      return deny.verb != Verb::kDns || allow.host.kind != HostPattern::Kind::kAddress;
    return allow.host.kind == HostPattern::Kind::kName && HostMatchesName(deny.host, allow.host.text, false);
  }
  static bool PortsCover(const Rule& deny, const Rule& allow) {
    if (deny.ports.empty()) return true;
    return std::all_of(allow.ports.begin(), allow.ports.end(), [&](const PortRange& a) {
      return std::any_of(deny.ports.begin(), deny.ports.end(),
                         [&](const PortRange& d) { return d.first <= a.first && a.last <= d.last; });
    });
  }
  static bool MethodsCover(const Rule& deny, const Rule& allow) {
    if (deny.methods.empty()) return true;
    const auto lists = [&](std::string_view m) {
      return std::find(deny.methods.begin(), deny.methods.end(), m) != deny.methods.end();
    };
    if (IsGit(allow.verb)) return lists("GET") && lists("POST") && (!allow.lfs || lists("PUT"));
    if (allow.verb == Verb::kWs) return lists("GET");
    if (allow.verb == Verb::kGraphql) return lists("POST") && (allow.graphql != GraphqlKind::kQuery || lists("GET"));
    if (allow.verb == Verb::kMcp) return lists("POST") && (!HoldsMcpSession(allow) || (lists("GET") && lists("DELETE")));
    if (allow.verb != Verb::kHttp) return lists("POST");
    return !allow.methods.empty() && std::all_of(allow.methods.begin(), allow.methods.end(),
                                                 [&](const std::string& m) { return lists(m) || (m == "HEAD" && lists("GET")); });
  }
  static bool PathsCover(const Rule& deny, const Rule& allow) {
    if (deny.paths.empty()) return true;
    if (allow.paths.empty() || IsGit(allow.verb) != IsGit(deny.verb))
      return std::any_of(deny.paths.begin(), deny.paths.end(), CoversAll);
    return std::all_of(allow.paths.begin(), allow.paths.end(), [&](const Glob& a) {
      return std::any_of(deny.paths.begin(), deny.paths.end(),
                         [&](const Glob& d) { return CoversAll(d) || d == a || (a.is_literal() && d.Matches(a.text())); });
    });
  }
  static bool CoversAll(const Glob& glob) { return glob.text() == "/**"; }

  static constexpr uint32_t kNone = 0xffffffff;
  const Snapshot::Compiled& compiled_;
  const WallTime now_;
  std::vector<uint32_t> denies_;    ///< their indexes: 100,000 allows among themselves are nothing to compare
  std::vector<uint32_t> sessions_;  ///< allows that may let an MCP client initialize
  std::vector<Finding> findings_;
  std::unordered_map<std::string, uint32_t> seen_;
  std::unordered_set<std::string> older_;  ///< uses of older presets that have their remark
  size_t work_ = 0;
  bool too_large_ = false;
};

}  // namespace

std::vector<Finding> UnknownMethods(const Snapshot& snapshot) { return Linter(snapshot, {}).UnknownMethods(); }

// The remarks of an import come first, and never take the room of what the rules themselves give cause for.
std::vector<Finding> Lint(const Snapshot& snapshot, WallTime now) {
  std::vector<Finding> findings = snapshot.compiled().remarks;
  if (findings.size() > kMaxFindings) findings.resize(kMaxFindings);
  std::vector<Finding> own = Linter(snapshot, now).Run();
  findings.insert(findings.end(), std::make_move_iterator(own.begin()), std::make_move_iterator(own.end()));
  return findings;
}

}  // namespace sluice::policy
