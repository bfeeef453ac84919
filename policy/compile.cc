#include <set>

#include "policy/compiled.h"

namespace sluice::policy {
namespace {

void InsertGlob(LabelNode* root, const HostPattern& host, uint32_t index, bool allow) {
  LabelNode* node = root;
  for (size_t i = host.labels.size(); i-- > 0;) {
    if (allow) node->allow_below = true;
    const Glob& label = host.labels[i];
    if (label.is_literal()) {
      auto& next = node->exact[label.text()];
      if (!next) next = std::make_unique<LabelNode>();
      node = next.get();
      continue;
    }
    const auto [place, fresh] = node->glob_index.try_emplace(label.text(), node->globs.size());
    if (fresh) node->globs.push_back({label, std::make_unique<LabelNode>()});
    node = node->globs[place->second].node.get();
  }
  if (host.deep && allow) node->allow_below = node->deep_allow = true;
  (host.deep ? node->deep : node->here).push_back(index);
}

RuleInfo InfoOf(const Rule& rule) { return {rule.allow, rule.id, CompactText(rule), rule.note, rule.span, rule.origin}; }

void AddAncestors(Snapshot::Compiled* compiled, std::string_view name) {
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1))
    compiled->ancestors.emplace(name.substr(dot + 1));
}

void Index(Snapshot::Compiled* compiled, uint32_t index) {
  const Rule& rule = compiled->rules[index];
  if (rule.verb == Verb::kUnix) {
    compiled->sockets.push_back(index);
    return;
  }
  if (rule.allow && rule.host.kind != HostPattern::Kind::kAddress) compiled->any_allow_name = true;
  switch (rule.host.kind) {
    case HostPattern::Kind::kAny:
      compiled->any.push_back(index);
      break;
    case HostPattern::Kind::kName:
      compiled->names[rule.host.text].push_back(index);
      if (rule.allow) AddAncestors(compiled, rule.host.text);
      break;
    case HostPattern::Kind::kGlob:
      InsertGlob(&compiled->wildcards, rule.host, index, rule.allow);
      compiled->has_wildcards = true;
      break;
    case HostPattern::Kind::kAddress:
      compiled->prefixes[*rule.host.cidr].push_back(index);
      if (rule.allow && !IsInner(rule.verb) && rule.verb != Verb::kTls) compiled->opaque_prefixes.push_back(index);
      break;
  }
}

}  // namespace

std::string DigestInput(const std::vector<Rule>& rules, Mode mode) {
  PolicySource source;
  source.rules = rules;
  source.mode = mode;
  return DigestInput(source);
}

std::string DigestInput(const PolicySource& source) {
  std::set<std::string> lines;
  for (const Rule& rule : source.rules) lines.insert(CanonicalText(rule));
  for (const Credential& credential : source.credentials) lines.insert(CanonicalText(credential));
  for (const UpstreamProxy& proxy : source.proxies) lines.insert(CanonicalText(proxy));
  std::string text = source.mode == Mode::kAudit ? "mode audit\n" : "";
  if (!source.settings.via.empty()) text += "via " + source.settings.via + '\n';
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

SnapshotPtr Compile(PolicySource source) {
  auto compiled = std::make_unique<Snapshot::Compiled>();
  compiled->rules = std::move(source.rules);
  compiled->assertions = std::move(source.assertions);
  for (Assertion& assertion : compiled->assertions) assertion.info = InfoOf(assertion.rule);
  compiled->name = std::move(source.name);
  compiled->mode = source.mode;
  compiled->settings = source.settings;
  compiled->credentials = std::move(source.credentials);
  compiled->proxies = std::move(source.proxies);
  compiled->any_via = compiled->settings.proxy != kNoIndex16;
  compiled->files = std::move(source.files);
  compiled->file_names = std::move(source.file_names);
  compiled->read_from = source.read_from;
  compiled->digest = std::move(source.digest);
  compiled->origin = std::move(source.origin);
  compiled->remarks = std::move(source.remarks);
  std::set<unsigned> lengths;
  for (uint32_t i = 0; i < compiled->rules.size(); ++i) {
    const Rule& rule = compiled->rules[i];
    compiled->info.push_back(InfoOf(rule));
    for (const auto* list : {&rule.by, &rule.under})
      for (const ExecutablePattern& pattern : *list) compiled->needs_digests |= pattern.sha256.has_value();
    compiled->any_via |= rule.allow && !IsInner(rule.verb) && rule.proxy != kNoIndex16;
    Index(compiled.get(), i);
  }
  for (const auto& [cidr, list] : compiled->prefixes) lengths.insert(cidr.length128());
  compiled->prefix_lengths.assign(lengths.begin(), lengths.end());
  return std::make_shared<const Snapshot>(std::move(compiled));
}

}  // namespace sluice::policy
