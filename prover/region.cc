#include "prover/region.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "policy/index.h"
#include "policy/overlap.h"

namespace sluice::prover {
namespace {

using policy::Glob;
using policy::PortRange;
using policy::Rule;
using policy::RuleRef;

constexpr size_t kMaxExcept = 8;  // of the other side's texts shown per field

std::vector<std::string> Texts(const std::vector<Glob>& globs) {
  std::vector<std::string> texts;
  for (const Glob& glob : globs) texts.push_back(glob.text());
  return texts;
}

std::vector<std::string> PortTexts(std::vector<PortRange> ports) {
  std::sort(ports.begin(), ports.end());
  std::vector<PortRange> merged;
  for (const PortRange& range : ports) {
    if (!merged.empty() && range.first <= merged.back().last + 1u) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  std::vector<std::string> texts;
  for (const PortRange& range : merged)
    texts.push_back(range.first == range.last ? fmt::format("{}", range.first) : fmt::format("{}-{}", range.first, range.last));
  return texts;
}

void Add(Region* region, std::string name, std::vector<std::string> values, std::vector<std::string> except = {}) {
  if (!values.empty()) region->fields.push_back({std::move(name), std::move(values), std::move(except)});
}

void AddExcept(std::vector<std::string>* out, const std::string& text, const std::vector<std::string>& own) {
  if (out->size() < kMaxExcept && std::find(out->begin(), out->end(), text) == out->end() &&
      std::find(own.begin(), own.end(), text) == own.end())
    out->push_back(text);
}

bool SameKind(const Rule& a, const Rule& b) { return a.verb == b.verb && policy::ConnectionsOverlap(a, b); }

// Rules of the same verb that may speak where the rule does: through the index for a name, since there may be thousands.
std::vector<const Rule*> Neighbours(const Rule& rule, const policy::Snapshot& snapshot) {
  std::vector<const Rule*> near;
  const auto& compiled = snapshot.compiled();
  const auto add = [&](const Rule& other) {
    if (SameKind(rule, other)) near.push_back(&other);
  };
  if (rule.host.kind == policy::HostPattern::Kind::kName) {
    policy::ForEachByName(compiled, rule.host.text, [&](uint32_t i) { add(compiled.rules[i]); });
  } else {
    for (const Rule& other : compiled.rules) add(other);
  }
  return near;
}

// Path globs of rules that overlap the rule's.
std::vector<std::string> PathExcept(const Rule& rule, const policy::Snapshot& winner, const policy::Snapshot& loser) {
  std::vector<std::string> except;
  const std::vector<std::string> own = Texts(rule.paths);
  const auto gather = [&](const policy::Snapshot& snapshot, bool allow) {
    for (const Rule* other : Neighbours(rule, snapshot)) {
      if (other->allow != allow) continue;
      for (const Glob& glob : other->paths)
        if (rule.paths.empty() ||
            std::any_of(rule.paths.begin(), rule.paths.end(), [&](const Glob& g) { return policy::GlobsOverlap(g, glob); }))
          AddExcept(&except, glob.text(), own);
    }
  };
  gather(loser, true);
  gather(winner, false);
  return except;
}

std::vector<std::string> HostExcept(const Rule& rule, const policy::Snapshot& loser) {
  std::vector<std::string> except;
  if (rule.host.kind == policy::HostPattern::Kind::kName) return except;
  for (const Rule* other : Neighbours(rule, loser))
    if (other->allow) AddExcept(&except, other->host.text, {rule.host.text});
  return except;
}

std::vector<std::string> AddressExcept(const Rule& rule, const policy::Snapshot& loser) {
  std::vector<std::string> except;
  std::vector<std::string> own;
  for (const Cidr& prefix : rule.ip) own.push_back(prefix.ToString());
  for (const Rule* other : Neighbours(rule, loser)) {
    if (!other->allow) continue;
    for (const Cidr& prefix : other->ip)
      if (std::any_of(rule.ip.begin(), rule.ip.end(), [&](const Cidr& c) { return c.Contains(prefix) || prefix.Contains(c); }))
        AddExcept(&except, prefix.ToString(), own);
  }
  return except;
}

std::vector<std::string> ProcessExcept(const Rule& rule, const policy::Snapshot& loser) {
  std::vector<std::string> except;
  std::vector<std::string> own;
  for (const auto& pattern : rule.by) own.push_back(pattern.text);
  for (const Rule* other : Neighbours(rule, loser))
    if (other->allow)
      for (const auto& pattern : other->by) AddExcept(&except, pattern.text, own);
  return except;
}

std::vector<std::string> MatcherTexts(const std::vector<policy::ValueMatcher>& matchers) {
  std::vector<std::string> texts;
  for (const auto& matcher : matchers) texts.push_back(fmt::format("{}={}", matcher.key, fmt::join(Texts(matcher.values), "|")));
  return texts;
}

void AddRequest(Region* region, const Rule& rule, const policy::Snapshot& winner, const policy::Snapshot& loser,
                const Gathered& gathered) {
  if (gathered.witness.layer != Layer::kHttp) return;
  Add(region, "scheme", {gathered.witness.scheme == policy::Scheme::kHttps ? "https" : "http"});
  if (policy::IsGit(rule.verb)) {
    Add(region, "operation", {std::string(policy::VerbText(rule.verb))});
  } else {
    Add(region, "method", {gathered.methods.begin(), gathered.methods.end()});
  }
  std::vector<std::string> paths = Texts(rule.paths);
  if (paths.empty()) paths.emplace_back("/**");
  Add(region, policy::IsGit(rule.verb) ? "repo" : "path", std::move(paths), PathExcept(rule, winner, loser));
  Add(region, "query", MatcherTexts(rule.query));
  Add(region, "header", MatcherTexts(rule.headers));
}

Region Everything(const Gathered& gathered) {
  Region region;
  Add(&region, "everything", {"mode: audit"});
  Add(&region, "layer", {std::string(LayerText(gathered.witness.layer))});
  return region;
}

}  // namespace

Region RegionOf(const policy::Snapshot& winner, RuleRef ref, const policy::Snapshot& loser, const Gathered& gathered) {
  if (ref == RuleRef::kNone) return Everything(gathered);
  const Rule& rule = winner.compiled().rules[static_cast<uint32_t>(ref)];
  const Layer layer = gathered.witness.layer;
  Region region;
  std::vector<std::string> who;
  for (const auto& pattern : rule.by) who.push_back(pattern.text);
  Add(&region, "process", std::move(who), ProcessExcept(rule, loser));
  std::vector<std::string> under;
  for (const auto& pattern : rule.under) under.push_back(pattern.text);
  Add(&region, "under", std::move(under));
  Add(&region, "layer", {std::string(LayerText(layer))});
  if (layer == Layer::kUnix) {
    Add(&region, "path", Texts(rule.paths), PathExcept(rule, winner, loser));
    return region;
  }
  Add(&region, "host", {rule.host.text}, HostExcept(rule, loser));
  std::vector<std::string> prefixes;
  for (const Cidr& prefix : rule.ip) prefixes.push_back(prefix.ToString());
  Add(&region, "ip", std::move(prefixes), AddressExcept(rule, loser));
  if (layer == Layer::kDns) return region;
  Add(&region, "port", PortTexts(gathered.ports));
  AddRequest(&region, rule, winner, loser, gathered);
  if (rule.until) Add(&region, "time", {"until " + FormatRfc3339(*rule.until)});
  return region;
}

}  // namespace sluice::prover
