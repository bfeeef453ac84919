#include "prover/request_boxes.h"

#include <algorithm>
#include <set>

#include "policy/match.h"

namespace sluice::prover {
namespace {

using policy::Glob;
using policy::Rule;
using policy::ValueMatcher;
using Part = InnerRules::Part;

bool AnyGlob(const std::vector<Glob>& globs, const std::string& text) {
  return std::any_of(globs.begin(), globs.end(), [&](const Glob& g) { return g.Matches(text); });
}

bool AllMatch(const ValueMatcher& matcher, const Values& values) {
  return !values.empty() &&
         std::all_of(values.begin(), values.end(), [&](const std::string& v) { return AnyGlob(matcher.values, v); });
}

bool AnyMatches(const ValueMatcher& matcher, const Values& values) {
  return std::any_of(values.begin(), values.end(), [&](const std::string& v) { return AnyGlob(matcher.values, v); });
}

std::string Lowered(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  return text;
}

// As RequestView::DenyCoversMethod reads the field.
bool NamesListedMethod(const Rule& rule, const Values& values) {
  return std::any_of(values.begin(), values.end(), [&](const std::string& value) {
    return std::any_of(rule.methods.begin(), rule.methods.end(), [&](const std::string& listed) {
      return Lowered(listed) == Lowered(value) || (listed == "GET" && Lowered(value) == "head");
    });
  });
}

bool Contains(const std::vector<std::string>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// The listed name and its spellings with '-' and '_' exchanged, as many as are worth trying.
std::vector<std::string> Spellings(const std::string& name) {
  std::vector<std::string> spellings{name};
  for (size_t i = 0; i < name.size() && spellings.size() < 64; ++i) {
    if (name[i] != '-' && name[i] != '_') continue;
    const size_t count = spellings.size();
    for (size_t s = 0; s < count; ++s) {
      spellings.push_back(spellings[s]);
      spellings.back()[i] = name[i] == '-' ? '_' : '-';
    }
  }
  return spellings;
}

// One spelling that no allow looks at, where there is one.
void AddUnlisted(const std::string& name, std::set<std::string>* names, const std::set<std::string>& listed) {
  for (const std::string& spelling : Spellings(name)) {
    if (listed.contains(spelling)) continue;
    names->insert(spelling);
    return;
  }
}

}  // namespace

InnerRules::InnerRules() { rules_.push_back(std::make_unique<Rule>()); }

InnerId InnerRules::Intern(const Rule& rule) {
  auto inner = std::make_unique<Rule>(rule);
  inner->host = {};
  inner->ports.clear();
  inner->by.clear();
  inner->under.clear();
  inner->ip.clear();
  inner->until.reset();
  const auto [at, fresh] = numbers_.try_emplace(policy::CanonicalText(*inner), static_cast<InnerId>(rules_.size()));
  if (fresh) rules_.push_back(std::move(inner));
  return at->second;
}

const PathPattern& InnerRules::Paths(InnerId id, Part part) {
  auto& pattern = paths_[PathsNumber(id, part)];
  if (pattern) return *pattern;
  const Rule& rule = *rules_[id];
  const bool universal = id == kUniversal;
  pattern = std::make_unique<PathPattern>();
  pattern->reading = rule.allow || universal ? Reading::kNarrow : Reading::kWide;
  pattern->encoded_slash = rule.encoded_slash || universal;
  pattern->path_params = rule.path_params || universal;
  if (part == Part::kPlain) {
    pattern->nfa = AnyOf(rule.paths);
  } else {
    pattern->nfa = OfRepositories(rule, part == Part::kGitRefs ? "/info/refs" : "/" + std::string(policy::GitService(rule.verb)));
  }
  return *pattern;
}

bool AdmitsMethod(const Box& box, const std::string& method) {
  if (box.universal()) return true;
  if (policy::IsGit(box.rule->verb)) return IsDeny(box.role) || method == (box.part == Part::kGitRefs ? "GET" : "POST");
  return !box.override_name.empty() || policy::ListsMethod(*box.rule, method);
}

std::string GitContentType(policy::Verb verb) { return "application/x-" + std::string(policy::GitService(verb)) + "-request"; }

bool AdmitsHeader(const Box& box, const std::string& name, const Values& values) {
  const bool overrides = policy::IsMethodOverrideHeader(name);
  if (box.universal()) return true;
  const Rule& rule = *box.rule;
  if (IsDeny(box.role)) {
    for (size_t i = 0; i < rule.headers.size(); ++i)
      if (box.header_names[i] == name && !AnyMatches(rule.headers[i], values)) return false;
    return box.override_name != name || NamesListedMethod(rule, values);
  }
  if (overrides && !values.empty() && !rule.method_override) return false;
  for (const ValueMatcher& matcher : rule.headers)
    if (matcher.key == name && !AllMatch(matcher, values)) return false;
  if (box.part != Part::kGitService || name != "content-type") return true;
  return values.size() == 1 && values[0] == GitContentType(rule.verb);
}

bool AdmitsShape(const Box& box, QueryShape shape) {
  if (box.universal() || IsDeny(box.role) || box.part == Part::kPlain) return true;
  if (box.part == Part::kGitService) return shape == QueryShape::kNone;
  return shape == (box.rule->verb == policy::Verb::kGitFetchPack ? QueryShape::kExactUpload : QueryShape::kExactReceive);
}

bool AdmitsQuery(const Box& box, const std::string& key, const Values& values) {
  if (box.universal()) return true;
  const Rule& rule = *box.rule;
  if (IsDeny(box.role)) {
    for (const ValueMatcher& matcher : rule.query)
      if (matcher.key == key && !AnyMatches(matcher, values)) return false;
    if (box.part != Part::kGitRefs || key != "service") return true;
    // Without a service it is a fetch of the dumb protocol.
    if (values.empty()) return rule.verb == policy::Verb::kGitFetchPack;
    return Contains(values, std::string(policy::GitService(rule.verb)));
  }
  bool listed = !rule.query_keys || Contains(*rule.query_keys, key);
  for (const ValueMatcher& matcher : rule.query) {
    if (matcher.key != key) continue;
    listed = true;
    if (!AllMatch(matcher, values)) return false;
  }
  return listed || values.empty();
}

bool AdmitsOtherKey(const Box& box, OtherKey other) {
  if (other == OtherKey::kNone || box.universal() || IsDeny(box.role)) return true;
  return !box.rule->query_keys && (other == OtherKey::kPlain || box.rule->query.empty());
}

std::vector<std::string> HeaderNames(const std::vector<std::pair<Role, const Rule*>>& rules) {
  std::set<std::string> listed;
  bool overrides = false;
  for (const auto& [role, rule] : rules) {
    if (IsDeny(role)) continue;
    for (const ValueMatcher& matcher : rule->headers) listed.insert(matcher.key);
    if (policy::IsGit(rule->verb)) listed.insert("content-type");
    overrides |= role == Role::kHeadAllow && rule->method_override;
  }
  std::set<std::string> names = listed;
  if (overrides) AddUnlisted("x-http-method-override", &names, listed);
  for (const auto& [role, rule] : rules)
    if (IsDeny(role))
      for (const ValueMatcher& matcher : rule->headers) AddUnlisted(matcher.key, &names, listed);
  return {names.begin(), names.end()};
}

void AddBoxes(Role role, InnerId inner, const Rule& rule, const std::vector<std::string>& header_names, std::vector<Box>* boxes) {
  const auto add_parts = [&](Box box) {
    if (!policy::IsGit(rule.verb)) {
      boxes->push_back(std::move(box));
      return;
    }
    for (const Part part : {Part::kGitRefs, Part::kGitService}) {
      box.part = part;
      boxes->push_back(box);
    }
  };
  if (!IsDeny(role)) {
    add_parts({role, inner, &rule});
    return;
  }
  // Each matcher may be met by any field that is the same to some server.
  std::vector<Box> open{{role, inner, &rule}};
  for (const ValueMatcher& matcher : rule.headers) {
    std::vector<Box> next;
    for (const Box& box : open) {
      for (const std::string& name : header_names) {
        if (!policy::SameToSomeServer(matcher.key, name)) continue;
        next.push_back(box);
        next.back().header_names.push_back(name);
      }
    }
    open = std::move(next);
  }
  for (const Box& box : open) {
    add_parts(box);
    if (rule.methods.empty() || policy::IsGit(rule.verb)) continue;
    for (const std::string& name : header_names) {
      if (!policy::IsMethodOverrideHeader(name)) continue;
      boxes->push_back(box);
      boxes->back().override_name = name;
    }
  }
}

}  // namespace sluice::prover
