#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "policy/compiled.h"
#include "policy/finding.h"
#include "policy/overlap.h"
#include "policy/rule_text.h"

namespace sluice::policy {
namespace {

constexpr size_t kMaxWork = 500'000;  // comparisons of patterns, over the whole policy

class Linter {
 public:
  Linter(const Snapshot& snapshot, WallTime now) : compiled_(snapshot.compiled()), now_(now) {
    for (uint32_t i = 0; i < compiled_.rules.size(); ++i)
      if (!compiled_.rules[i].allow) denies_.push_back(i);
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
    if (!rule.allow) return;
    if (rule.until && now_ >= *rule.until) Add(Severity::kWarning, "expired", index, fmt::format("{} has expired", Text(index)));
    if (rule.verb == Verb::kHttp && rule.scheme == Scheme::kHttp)
      Add(Severity::kWarning, "cleartext", index,
          fmt::format("{} sends requests in the clear, and answers can be forged", Text(index)));
    if (rule.verb == Verb::kGitReceivePack)
      Add(Severity::kNote, "push", index, fmt::format("{} lets every branch of those repositories be written", Text(index)));
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
      if (const std::string_view half = HalfCut(allow, deny); !half.empty())
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

  // A deny by method that takes one of the two requests of a git exchange, and leaves the other.
  static std::string_view HalfCut(const Rule& allow, const Rule& deny) {
    if (!IsGit(allow.verb) || deny.verb != Verb::kHttp || !deny.query.empty() || !deny.headers.empty()) return {};
    if (deny.scheme == Scheme::kHttp || !PortsOverlap(allow.ports, deny.ports) || !ConnectionsOverlap(allow, deny)) return {};
    const std::string_view service = allow.verb == Verb::kGitFetchPack ? "/git-upload-pack" : "/git-receive-pack";
    const bool get = CutsRequest(allow, deny, "GET", "/info/refs");
    const bool post = CutsRequest(allow, deny, "POST", service);
    if (get == post) return {};
    return get ? "GET" : "POST";
  }

  static bool CutsRequest(const Rule& allow, const Rule& deny, std::string_view method, std::string_view suffix) {
    if (!deny.methods.empty() && std::find(deny.methods.begin(), deny.methods.end(), method) == deny.methods.end()) return false;
    if (deny.paths.empty() || allow.paths.empty()) return true;
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
        return IsInner(allow.verb) && (!deny.scheme || deny.scheme == allow.scheme) && MethodsCover(deny, allow) &&
               PathsCover(deny, allow);
      case Verb::kGitFetchPack:
      case Verb::kGitReceivePack:
        return allow.verb == deny.verb && PathsCover(deny, allow);
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
    if (IsGit(allow.verb)) return lists("GET") && lists("POST");
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
  std::vector<uint32_t> denies_;  ///< their indexes: 100,000 allows among themselves are nothing to compare
  std::vector<Finding> findings_;
  std::unordered_map<std::string, uint32_t> seen_;
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
