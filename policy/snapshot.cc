#include "policy/snapshot.h"

#include <fmt/format.h>

#include "policy/index.h"

namespace sluice::policy {
namespace {

bool AllowsBelow(const LabelNode& node, std::string_view rest) {
  if (rest.empty()) return node.allow_below;
  const size_t dot = rest.rfind('.');
  const std::string_view label = dot == std::string_view::npos ? rest : rest.substr(dot + 1);
  const std::string_view left = dot == std::string_view::npos ? std::string_view{} : rest.substr(0, dot);
  if (const auto it = node.exact.find(label); it != node.exact.end() && AllowsBelow(*it->second, left)) return true;
  for (const LabelNode::Edge& edge : node.globs)
    if (LabelMatches(edge.label, label, true) && AllowsBelow(*edge.node, left)) return true;
  return node.deep_allow;  // below "**.x" every name has names below it
}

}  // namespace

bool IsAncestor(const Snapshot::Compiled& compiled, std::string_view name) {
  if (name.empty()) return compiled.any_allow_name;
  return compiled.ancestors.contains(name) || (compiled.has_wildcards && AllowsBelow(compiled.wildcards, name));
}

std::string PlaceText(const SourceSpan& span, const SourceSpan& origin) {
  const std::string place = fmt::format("{}:{}", span.file, span.line);
  if (origin.line == 0) return place;
  constexpr std::string_view kPreset = "preset:";
  std::string_view preset = origin.file;
  if (preset.starts_with(kPreset)) preset.remove_prefix(kPreset.size());
  return fmt::format("{}:{}, from {}", preset, origin.line, place);
}

Snapshot::Snapshot(std::unique_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
Snapshot::~Snapshot() = default;

std::span<const RuleInfo> Snapshot::rules() const { return compiled_->info; }

const RuleInfo* Snapshot::rule(RuleRef ref) const {
  const auto index = static_cast<size_t>(ref);
  return index < compiled_->info.size() ? &compiled_->info[index] : nullptr;
}

const std::vector<Assertion>& Snapshot::assertions() const { return compiled_->assertions; }

const std::string& Snapshot::name() const { return compiled_->name; }
Mode Snapshot::mode() const { return compiled_->mode; }
const Settings& Snapshot::settings() const { return compiled_->settings; }
const std::vector<Credential>& Snapshot::credentials() const { return compiled_->credentials; }
const std::vector<UpstreamProxy>& Snapshot::proxies() const { return compiled_->proxies; }

std::span<const Pin> Snapshot::pins(RuleRef ref) const {
  const auto index = static_cast<size_t>(ref);
  if (index >= compiled_->rules.size()) return {};
  return compiled_->rules[index].pins;
}

const std::string& Snapshot::digest() const { return compiled_->digest; }
bool Snapshot::NeedsDigests() const { return compiled_->needs_digests; }
std::span<const std::string> Snapshot::files() const { return compiled_->files; }
std::span<const std::string> Snapshot::file_names() const { return compiled_->file_names; }
std::chrono::system_clock::time_point Snapshot::read_from() const { return compiled_->read_from; }

bool Snapshot::HasUnixRules() const { return !compiled_->sockets.empty(); }

std::vector<std::string> Snapshot::UnixPaths() const {
  std::vector<std::string> paths;
  for (const uint32_t i : compiled_->sockets)
    if (compiled_->rules[i].allow)
      for (const Glob& glob : compiled_->rules[i].paths) paths.push_back(glob.text());
  return paths;
}

std::vector<RuleRef> Snapshot::UdpRules() const {
  std::vector<RuleRef> refs;
  for (uint32_t i = 0; i < compiled_->rules.size(); ++i)
    if (compiled_->rules[i].allow && compiled_->rules[i].verb == Verb::kUdp) refs.push_back(RuleRef{i});
  return refs;
}

}  // namespace sluice::policy
