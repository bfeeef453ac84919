#include "policy/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>

#include "policy/credential_keys.h"
#include "policy/rule_keys.h"
#include "policy/rule_text.h"

namespace sluice::policy {
namespace {

constexpr std::array<std::string_view, 10> kKeys = {"version", "name",        "mode",    "include", "settings",
                                                    "presets", "credentials", "proxies", "rules",   "assert"};
constexpr std::array<std::string_view, 3> kSettings = {"dns", "deny-errno", "via"};

template <size_t N>
bool Contains(const std::array<std::string_view, N>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::unexpected<Error> UnknownValue(const Node& node, std::string_view key, std::span<const std::string_view> values) {
  std::string list;
  for (const std::string_view value : values) list += fmt::format("{}`{}`", list.empty() ? "" : " or ", value);
  return NodeError(node, fmt::format("`{}` is {}, not `{}`{}", key, list, node.text, DidYouMean(node.text, values)));
}

Result<std::string> ReadWord(const Node& node, std::string_view key, std::span<const std::string_view> values) {
  if (node.kind != Node::Kind::kScalar || std::find(values.begin(), values.end(), node.text) == values.end())
    return UnknownValue(node, key, values);
  return node.text;
}

Result<void> ReadVersion(const Node& node) {
  if (node.kind != Node::Kind::kScalar || node.style != Node::Style::kPlain || node.text != "1")
    return NodeError(node, "this version reads `version: 1`");
  return {};
}

Result<void> ReadSettings(const Node& node, Settings* settings) {
  if (node.kind != Node::Kind::kMapping) return NodeError(node, "`settings` is a map, as in `{ deny-errno: ECONNREFUSED }`");
  for (const auto& [key, value] : node.members) {
    if (key.text == "dns") {
      static constexpr std::array<std::string_view, 2> kModes = {"synthetic", "real"};
      const auto mode = ReadWord(value, "dns", kModes);
      if (!mode) return std::unexpected(mode.error());
      settings->dns = *mode == "real" ? DnsMode::kReal : DnsMode::kSynthetic;
      settings->dns_at = value.span;
    } else if (key.text == "deny-errno") {
      static constexpr std::array<std::string_view, 2> kNames = {"EACCES", "ECONNREFUSED"};
      const auto name = ReadWord(value, "deny-errno", kNames);
      if (!name) return std::unexpected(name.error());
      settings->deny_errno = *name == "EACCES" ? EACCES : ECONNREFUSED;
    } else if (key.text == "via") {
      auto name = ReadText(value, "via");
      if (!name) return std::unexpected(name.error());
      if (name->empty()) return NodeError(value, "`via` is empty");
      settings->via = std::move(*name);
      settings->via_at = value.span;
    } else {
      return NodeError(key, fmt::format("unknown setting `{}`{}", key.text, DidYouMean(key.text, kSettings)));
    }
  }
  return {};
}

Result<void> ReadIncludes(const Node& node, std::vector<IncludeName>* includes) {
  if (node.kind != Node::Kind::kSequence) return NodeError(node, "`include` is a list of files, as in `[common.yaml]`");
  for (const Node& item : node.items) {
    auto path = ReadText(item, "include");
    if (!path) return std::unexpected(path.error());
    if (path->empty() || path->starts_with('/')) return NodeError(item, "an include is a path relative to this file");
    includes->push_back({std::move(*path), item.span});
  }
  return {};
}

Result<void> ReadRules(const Node& node, const std::string& label, std::vector<Rule>* rules) {
  if (node.kind != Node::Kind::kSequence) return NodeError(node, "`rules` is a list, each entry `- allow: …` or `- deny: …`");
  for (const Node& item : node.items) {
    auto rule = ReadRule(item, label);
    if (!rule) return std::unexpected(rule.error());
    rules->push_back(std::move(*rule));
  }
  return {};
}

Result<void> ReadPresets(const Node& node, std::vector<PresetUse>* presets) {
  if (node.kind != Node::Kind::kSequence) return NodeError(node, "`presets` is a list, as in `- npm@1: { host: … }`");
  for (const Node& item : node.items) {
    auto use = ReadPresetUse(item);
    if (!use) return std::unexpected(use.error());
    presets->push_back(std::move(*use));
  }
  return {};
}

Result<void> ReadAssertions(const Node& node, const std::string& label, std::vector<Assertion>* assertions) {
  if (node.kind != Node::Kind::kSequence) return NodeError(node, "`assert` is a list, each entry `- never: …` or `- always: …`");
  for (const Node& item : node.items) {
    auto assertion = ReadAssertion(item, label);
    if (!assertion) return std::unexpected(assertion.error());
    assertions->push_back(std::move(*assertion));
  }
  return {};
}

// One line may hold several entries, and each needs an id of its own.
class LineIds {
 public:
  explicit LineIds(const std::string& label) : label_(label) {}
  void Separate(Rule* rule) {
    if (rule->id == fmt::format("{}:{}", label_, rule->span.line)) rule->id = Of(rule->span);
  }
  std::string Of(const SourceSpan& span) {
    if (lines_.insert(span.line).second) return fmt::format("{}:{}", label_, span.line);
    return fmt::format("{}:{}:{}", label_, span.line, span.column);
  }

 private:
  const std::string& label_;
  std::set<uint32_t> lines_;
};

Result<void> ReadMember(const Node& key, const Node& value, FileRole role, const std::string& label, Document* document) {
  const std::string& word = key.text;
  if (!Contains(kKeys, word)) return NodeError(key, fmt::format("unknown key `{}`{}", word, DidYouMean(word, kKeys)));
  if (role == FileRole::kIncluded && (word == "name" || word == "mode" || word == "settings"))
    return NodeError(key, fmt::format("`{}` is set in the top file only", word));
  if (word == "version") return ReadVersion(value);
  if (word == "settings") return ReadSettings(value, &document->settings);
  if (word == "include") return ReadIncludes(value, &document->includes);
  if (word == "presets") return ReadPresets(value, &document->presets);
  if (word == "credentials") {
    auto credentials = ReadCredentials(value);
    if (!credentials) return std::unexpected(credentials.error());
    document->credentials = std::move(*credentials);
    return {};
  }
  if (word == "proxies") {
    auto proxies = ReadProxies(value);
    if (!proxies) return std::unexpected(proxies.error());
    document->proxies = std::move(*proxies);
    return {};
  }
  if (word == "rules") return ReadRules(value, label, &document->rules);
  if (word == "assert") return ReadAssertions(value, label, &document->assertions);
  if (word == "mode") {
    static constexpr std::array<std::string_view, 2> kModes = {"enforce", "audit"};
    const auto mode = ReadWord(value, "mode", kModes);
    if (!mode) return std::unexpected(mode.error());
    document->mode = *mode == "audit" ? Mode::kAudit : Mode::kEnforce;
    return {};
  }
  auto name = ReadText(value, "name");
  if (!name) return std::unexpected(name.error());
  if (name->empty()) return NodeError(value, "`name` is empty");
  document->name = std::move(*name);
  return {};
}

}  // namespace

Result<Document> ReadDocument(const Node& root, FileRole role, const std::string& label) {
  if (root.kind != Node::Kind::kMapping) return NodeError(root, "a policy is a map that begins with `version: 1`");
  Document document;
  bool versioned = false;
  for (const auto& [key, value] : root.members) {
    versioned |= key.text == "version";
    if (auto read = ReadMember(key, value, role, label, &document); !read) return std::unexpected(read.error());
  }
  if (!versioned) return NodeError(root, "`version: 1` is missing");
  LineIds ids(label);
  for (PresetUse& use : document.presets) use.id = ids.Of(use.span);
  for (Rule& rule : document.rules) ids.Separate(&rule);
  for (Assertion& assertion : document.assertions) ids.Separate(&assertion.rule);
  return document;
}

}  // namespace sluice::policy
