#include "prover/region.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "policy/compiled.h"
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

std::vector<std::string> PrefixTexts(const std::vector<Cidr>& prefixes) {
  std::vector<std::string> texts;
  for (const Cidr& prefix : prefixes) texts.push_back(prefix.ToString());
  return texts;
}

// Address lookups go without saying.
std::vector<std::string> TypeTexts(const std::vector<uint16_t>& types) {
  std::vector<std::string> texts;
  if (types == std::vector<uint16_t>{policy::kDnsA, policy::kDnsAaaa}) return texts;
  for (const uint16_t type : types) texts.push_back(policy::DnsTypeText(type));
  return texts;
}

std::vector<std::string> PatternTexts(const std::vector<policy::ExecutablePattern>& patterns) {
  std::vector<std::string> texts;
  for (const auto& pattern : patterns) texts.push_back(pattern.text);
  return texts;
}

// A date alone ends with its day, and is what an author writes.
std::string UntilText(WallTime end) {
  const std::string text = FormatRfc3339(end);
  if (text.find("T00:00:00.000000Z") != std::string::npos)
    return FormatRfc3339(end - std::chrono::days(1)).substr(0, text.find('T'));
  const size_t fraction = text.find(".000000");
  return fraction == std::string::npos ? text : text.substr(0, fraction) + "Z";
}

void Add(Region* region, std::string name, std::vector<std::string> values, std::vector<std::string> except = {}) {
  if (!values.empty()) region->fields.push_back({std::move(name), std::move(values), std::move(except)});
}

void AddExcept(std::vector<std::string>* out, const std::string& text, const std::vector<std::string>& own) {
  if (out->size() < kMaxExcept && std::find(out->begin(), out->end(), text) == out->end() &&
      std::find(own.begin(), own.end(), text) == own.end())
    out->push_back(text);
}

enum class Free : uint8_t { kHost, kPath, kAddress, kProcess };  // the one field in which a rule may hold less than another

// f(rule) for all that may speak where the rule does: through the index for a name, since there may be thousands.
template <class F>
void ForEachNear(const Rule& rule, const policy::Snapshot& snapshot, F f) {
  const auto& compiled = snapshot.compiled();
  if (rule.host.kind != policy::HostPattern::Kind::kName) {
    for (const Rule& other : compiled.rules) f(other);
    return;
  }
  policy::ForEachByName(compiled, rule.host.text, [&](uint32_t i) { f(compiled.rules[i]); });
  for (const auto& [prefix, list] : compiled.prefixes)
    for (const uint32_t i : list) f(compiled.rules[i]);
}

// What is asked of the other side's rules: one that differs elsewhere too has not all that it would be said to have.
class Elsewhere {
 public:
  Elsewhere(const Rule& rule, const policy::Snapshot& winner, const policy::Snapshot& loser, const Gathered& gathered)
      : rule_(rule), winner_(winner), loser_(loser), gathered_(gathered) {
    // What the loser's own denies take of its allows is not looked into: then nothing is excepted.
    ForEachNear(rule, loser, [&](const Rule& other) {
      denied_ |= !other.allow && (rule.verb == policy::Verb::kUnix || policy::ConnectionsOverlap(rule, other));
    });
  }

  [[nodiscard]] std::vector<std::string> Hosts() const {
    std::vector<std::string> except;
    if (rule_.host.kind == policy::HostPattern::Kind::kName) return except;
    ForEach(Free::kHost, [&](const Rule& other) { AddExcept(&except, other.host.text, {rule_.host.text}); });
    return except;
  }
  [[nodiscard]] std::vector<std::string> Paths() const {
    std::vector<std::string> except;
    const std::vector<std::string> own = Texts(rule_.paths);
    ForEach(Free::kPath, [&](const Rule& other) {
      for (const Glob& glob : other.paths)
        if (rule_.paths.empty() ||
            std::any_of(rule_.paths.begin(), rule_.paths.end(), [&](const Glob& g) { return policy::GlobsOverlap(g, glob); }))
          AddExcept(&except, glob.text(), own);
    });
    return except;
  }
  [[nodiscard]] std::vector<std::string> Addresses() const {
    std::vector<std::string> except;
    const std::vector<std::string> own = PrefixTexts(rule_.ip);
    ForEach(Free::kAddress, [&](const Rule& other) {
      for (const Cidr& prefix : other.ip)
        if (std::any_of(rule_.ip.begin(), rule_.ip.end(), [&](const Cidr& c) { return c.Contains(prefix); }))
          AddExcept(&except, prefix.ToString(), own);
    });
    return except;
  }
  [[nodiscard]] std::vector<std::string> Processes() const {
    std::vector<std::string> except;
    const std::vector<std::string> own = PatternTexts(rule_.by);
    ForEach(Free::kProcess, [&](const Rule& other) {
      for (const auto& pattern : other.by) AddExcept(&except, pattern.text, own);
    });
    return except;
  }

 private:
  template <class F>
  void ForEach(Free free, F take) const {
    ForEachNear(rule_, loser_, [&](const Rule& other) {
      if (!denied_ && other.allow && HoldsAllBut(other, free)) take(other);
    });
    ForEachNear(rule_, winner_, [&](const Rule& other) {
      if (!other.allow && HoldsAllBut(other, free)) take(other);
    });
  }

  // Whether `other` says the same of the whole gain, but for the free field.
  [[nodiscard]] bool HoldsAllBut(const Rule& other, Free free) const {
    if (other.verb != rule_.verb || !other.under.empty() || !other.query.empty() || !other.headers.empty()) return false;
    // What bodies ask for is not looked into here.
    if (policy::ReadsBody(other)) return false;
    if (other.query_keys || !other.types.empty() || (other.until && (!rule_.until || *other.until < *rule_.until))) return false;
    if (rule_.verb != policy::Verb::kUnix && !policy::ConnectionsOverlap(rule_, other)) return false;
    if (other.allow && ((rule_.encoded_slash && !other.encoded_slash) || (rule_.path_params && !other.path_params) ||
                        (rule_.method_override && !other.method_override)))
      return false;
    return HoldsRequests(other) && (free == Free::kHost || HoldsHost(other)) && (free == Free::kPath || HoldsPaths(other)) &&
           (free == Free::kAddress || HoldsAddresses(other)) &&
           (free == Free::kProcess || other.by.empty() || PatternTexts(other.by) == PatternTexts(rule_.by));
  }
  [[nodiscard]] bool HoldsRequests(const Rule& other) const {
    if (gathered_.witness.layer == Layer::kHttp && other.scheme && *other.scheme != gathered_.witness.scheme) return false;
    const auto listed = [&](const std::string& method) {
      return std::find(other.methods.begin(), other.methods.end(), method) != other.methods.end();
    };
    const bool methods =
        other.methods.empty() || std::all_of(gathered_.methods.begin(), gathered_.methods.end(), [&](const std::string& method) {
          return listed(method) || (method == "HEAD" && listed("GET"));
        });
    const auto holds_port = [&](const PortRange& gained) {
      return std::any_of(other.ports.begin(), other.ports.end(),
                         [&](const PortRange& range) { return range.first <= gained.first && gained.last <= range.last; });
    };
    return methods && (other.ports.empty() || std::all_of(gathered_.ports.begin(), gathered_.ports.end(), holds_port));
  }
  [[nodiscard]] bool HoldsHost(const Rule& other) const {
    return other.host == rule_.host || other.host.kind == policy::HostPattern::Kind::kAny ||
           (rule_.host.kind == policy::HostPattern::Kind::kName &&
            policy::HostMatchesName(other.host, rule_.host.text, other.allow));
  }
  [[nodiscard]] bool HoldsPaths(const Rule& other) const {
    const std::vector<std::string> has = Texts(other.paths);
    const std::vector<std::string> asked = Texts(rule_.paths);
    const auto named = [&](const std::string& text) { return std::find(has.begin(), has.end(), text) != has.end(); };
    return has.empty() || named("/**") || (!asked.empty() && std::all_of(asked.begin(), asked.end(), named));
  }
  [[nodiscard]] bool HoldsAddresses(const Rule& other) const {
    return PrefixTexts(other.ip) == PrefixTexts(rule_.ip) || (!other.allow && other.ip.empty());
  }

  const Rule& rule_;
  const policy::Snapshot& winner_;
  const policy::Snapshot& loser_;
  const Gathered& gathered_;
  bool denied_ = false;
};

std::vector<std::string> MatcherTexts(const std::vector<policy::ValueMatcher>& matchers) {
  std::vector<std::string> texts;
  for (const auto& matcher : matchers) texts.push_back(fmt::format("{}={}", matcher.key, fmt::join(Texts(matcher.values), "|")));
  return texts;
}

// "graphql mutation", "mcp tools/call": the verb with what makes it one.
std::string OperationText(const Rule& rule) {
  const std::string verb(policy::VerbText(rule.verb));
  if (rule.verb == policy::Verb::kGraphql) return fmt::format("{} {}", verb, policy::GraphqlKindText(rule.graphql));
  const bool call = rule.verb == policy::Verb::kJsonRpc || rule.verb == policy::Verb::kMcp;
  return call ? fmt::format("{} {}", verb, rule.rpc.text()) : verb;
}

std::vector<std::string> ChangeTexts(policy::RefChanges changes) {
  std::vector<std::string> texts;
  if ((changes & policy::kRefCreate) != 0) texts.emplace_back("create");
  if ((changes & policy::kRefUpdate) != 0) texts.emplace_back("update");
  if ((changes & policy::kRefDelete) != 0) texts.emplace_back("delete");
  return texts;
}

void AddRequest(Region* region, const Rule& rule, const Elsewhere& elsewhere, const Gathered& gathered) {
  if (gathered.witness.layer != Layer::kHttp) return;
  Add(region, "scheme", {gathered.witness.scheme == policy::Scheme::kHttps ? "https" : "http"});
  if (rule.verb != policy::Verb::kHttp) {
    Add(region, "operation", {OperationText(rule)});
  } else {
    Add(region, "method", {gathered.methods.begin(), gathered.methods.end()});
  }
  std::vector<std::string> paths = Texts(rule.paths);
  if (paths.empty()) paths.emplace_back("/**");
  Add(region, policy::IsGit(rule.verb) ? "repo" : "path", std::move(paths), elsewhere.Paths());
  Add(region, "operation_name", Texts(rule.operation));
  Add(region, "field", Texts(rule.fields));
  Add(region, "tool", Texts(rule.tool));
  Add(region, "json", MatcherTexts(rule.json));
  Add(region, "ref", Texts(rule.refs));
  if (rule.ref_changes) Add(region, "ref_change", ChangeTexts(*rule.ref_changes));
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
  const Elsewhere elsewhere(rule, winner, loser, gathered);
  Region region;
  Add(&region, "process", PatternTexts(rule.by), elsewhere.Processes());
  Add(&region, "under", PatternTexts(rule.under));
  Add(&region, "layer", {std::string(LayerText(layer))});
  if (layer == Layer::kUnix) {
    Add(&region, "path", Texts(rule.paths), elsewhere.Paths());
  } else {
    Add(&region, "host", {rule.host.text}, elsewhere.Hosts());
    Add(&region, "ip", PrefixTexts(rule.ip), elsewhere.Addresses());
  }
  if (layer == Layer::kDns && rule.verb == policy::Verb::kDns) Add(&region, "type", TypeTexts(rule.types));
  if (layer != Layer::kDns && layer != Layer::kUnix) Add(&region, "port", PortTexts(gathered.ports));
  AddRequest(&region, rule, elsewhere, gathered);
  const Witness& witness = gathered.witness;
  if (witness.way == Way::kCredential) Add(&region, "credential", {witness.way_name});
  if (witness.way == Way::kOwn) Add(&region, "own", {witness.way_name});
  if (witness.way == Way::kVia) Add(&region, "via", {witness.way_name.empty() ? "(directly)" : witness.way_name});
  if (rule.until) Add(&region, "time", {"until " + UntilText(*rule.until)});
  return region;
}

}  // namespace sluice::prover
