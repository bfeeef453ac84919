#include "app/policy_edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "app/file.h"
#include "policy/document.h"
#include "policy/format.h"
#include "policy/import/json.h"
#include "policy/io/yaml.h"

namespace sluice::app {
namespace {

using policy::Node;

constexpr std::string_view kJsonName = "the request";

// A JSON value as one line of YAML that every reader takes for the same.
Result<std::string> Flow(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kScalar: {
      if (node.style == Node::Style::kPlain) {
        if (node.text == "null") return Fail(Code::kInvalid, "a rule has no null");
        return node.text;
      }
      std::string out = "'";
      for (const char c : node.text) {
        if (static_cast<unsigned char>(c) < 0x20)
          return Fail(Code::kInvalid, "a text of a rule is one line without control characters");
        out += c == '\'' ? std::string("''") : std::string(1, c);
      }
      return out + "'";
    }
    case Node::Kind::kSequence: {
      std::string out;
      for (const Node& item : node.items) {
        auto text = Flow(item);
        if (!text) return text;
        out += (out.empty() ? "" : ", ") + *text;
      }
      return fmt::format("[{}]", out);
    }
    case Node::Kind::kMapping: {
      std::string out;
      for (const policy::Member& member : node.members) {
        auto value = Flow(member.value);
        if (!value) return value;
        Node key = member.key;
        key.style = Node::Style::kQuoted;
        auto name = Flow(key);
        if (!name) return name;
        out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", *name, *value);
      }
      return fmt::format("{{ {} }}", out);
    }
  }
  return Fail(Code::kInternal, "no value");
}

const Node* Get(const Node& map, std::string_view key) {
  const auto found = std::ranges::find_if(map.members, [&](const policy::Member& member) { return member.key.text == key; });
  return found == map.members.end() ? nullptr : &found->value;
}

Result<std::string> RuleFlow(const Node& rule, std::string_view id) {
  if (rule.kind != Node::Kind::kMapping)
    return Fail(Code::kInvalid, "a rule is a JSON object, as in {\"allow\": \"GET a.test/**\"}");
  auto flow = Flow(rule);
  if (!flow || id.empty() || IsPositionalId(id) || Get(rule, "id") != nullptr) return flow;
  Node name;
  name.style = Node::Style::kQuoted;
  name.text = id;
  auto quoted = Flow(name);
  if (!quoted) return quoted;
  return fmt::format("{}, 'id': {} }}", flow->substr(0, flow->size() - 2), *quoted);
}

Result<std::string> IdText(const Node& node) {
  if (node.kind != Node::Kind::kScalar || node.style == Node::Style::kPlain || node.text.empty())
    return Fail(Code::kInvalid, "an id is a text");
  return node.text;
}

enum class LineKind : uint8_t { kBlank, kComment, kOther };
LineKind KindOf(const std::string& line) {
  const size_t at = line.find_first_not_of(' ');
  return at == std::string::npos ? LineKind::kBlank : line[at] == '#' ? LineKind::kComment : LineKind::kOther;
}

// Lines of a rule, counted from 0; `last` is one past the end.
struct Range {
  size_t first = 0;
  size_t last = 0;
};

size_t LineOf(const Node& node) { return node.span.line == 0 ? 0 : node.span.line - 1; }

// Where the rules stand in text of the canonical form.
std::vector<Range> RuleRanges(const Node& root, const Node& rules, const std::vector<std::string>& lines) {
  std::vector<Range> ranges;
  size_t end = lines.size();
  for (const policy::Member& member : root.members)
    if (LineOf(member.key) > LineOf(rules)) end = std::min(end, LineOf(member.key));
  for (size_t i = 0; i < rules.items.size(); ++i) {
    Range range{LineOf(rules.items[i]), i + 1 < rules.items.size() ? LineOf(rules.items[i + 1]) : end};
    while (range.last > range.first + 1 && KindOf(lines[range.last - 1]) != LineKind::kOther) --range.last;
    ranges.push_back(range);
  }
  return ranges;
}

// Which rule an id names, in the text as its author wrote it.
Result<std::vector<std::string>> Ids(const Node& root, const std::string& name) {
  auto document = policy::ReadDocument(root, policy::FileRole::kTop, name);
  if (!document) return std::unexpected(document.error());
  std::vector<std::string> ids;
  for (const policy::Rule& rule : document->rules) ids.push_back(rule.id);
  return ids;
}

// What becomes of each rule that stands; nothing: it goes.
Result<std::vector<std::optional<std::string>>> Fates(const std::vector<std::string>& ids, const PolicyEdit& edit,
                                                      std::vector<bool>* kept) {
  std::vector<std::optional<std::string>> fates(ids.size());
  kept->assign(ids.size(), true);
  const auto find = [&](const std::string& id) -> Result<size_t> {
    const auto found = std::ranges::find(ids, id);
    if (found == ids.end()) return Fail(Code::kNotFound, fmt::format("no rule of the policy's own has the id `{}`", id));
    const auto index = static_cast<size_t>(found - ids.begin());
    if (!(*kept)[index]) return Fail(Code::kInvalid, fmt::format("the id `{}` is named twice", id));
    (*kept)[index] = false;
    return index;
  };
  for (const std::string& id : edit.remove)
    if (auto index = find(id); !index) return std::unexpected(index.error());
  for (const auto& [id, rule] : edit.replace) {
    auto index = find(id);
    if (!index) return std::unexpected(index.error());
    fates[*index] = rule;
  }
  return fates;
}

}  // namespace

bool IsPositionalId(std::string_view id) {
  const size_t colon = id.rfind(':');
  return colon != std::string_view::npos && colon + 1 < id.size() &&
         id.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
}

Result<std::string> ReadRuleJson(std::string_view json, std::string_view id) {
  const auto root = policy::ParseJson(json, std::string(kJsonName));
  if (!root) return std::unexpected(root.error());
  return RuleFlow(*root, id);
}

Result<PolicyEdit> ReadPolicyEdit(std::string_view json) {
  const auto root = policy::ParseJson(json, std::string(kJsonName));
  if (!root) return std::unexpected(root.error());
  if (root->kind != Node::Kind::kMapping)
    return Fail(Code::kInvalid, "an edit is a JSON object with `remove`, `replace` and `add`");
  PolicyEdit edit;
  for (const policy::Member& member : root->members) {
    const std::string& key = member.key.text;
    const Node& value = member.value;
    const bool map = key == "replace";
    if (key != "remove" && key != "add" && !map)
      return Fail(Code::kInvalid, fmt::format("an edit has no `{}`; it has `remove`, `replace` and `add`", key));
    if (value.kind != (map ? Node::Kind::kMapping : Node::Kind::kSequence))
      return Fail(Code::kInvalid, fmt::format("`{}` is {}", key, map ? "an object: id to rule" : "a list"));
    for (const policy::Member& replaced : value.members) {
      auto rule = RuleFlow(replaced.value, replaced.key.text);
      if (!rule) return std::unexpected(rule.error());
      edit.replace.emplace_back(replaced.key.text, *std::move(rule));
    }
    for (const Node& item : value.items) {
      auto text = key == "add" ? RuleFlow(item, "") : IdText(item);
      if (!text) return std::unexpected(text.error());
      (key == "add" ? edit.add : edit.remove).push_back(*std::move(text));
    }
  }
  const size_t edits = edit.remove.size() + edit.replace.size() + edit.add.size();
  if (edits == 0) return Fail(Code::kInvalid, "the edit names no rule");
  if (edits > kMaxEdits) return Fail(Code::kExhausted, fmt::format("an edit names at most {} rules", kMaxEdits));
  return edit;
}

Result<std::string> EditPolicy(std::string_view text, const std::string& name, const PolicyEdit& edit) {
  const auto written = policy::ParseYaml(text, name);
  if (!written) return std::unexpected(written.error());
  const auto ids = Ids(*written, name);
  if (!ids) return std::unexpected(ids.error());
  std::vector<bool> kept;
  const auto fates = Fates(*ids, edit, &kept);
  if (!fates) return std::unexpected(fates.error());
  const auto canonical = policy::FormatPolicy(text, *written);
  if (!canonical) return std::unexpected(canonical.error());
  const auto root = policy::ParseYaml(*canonical, name);
  if (!root) return std::unexpected(root.error());
  const std::vector<std::string> lines = SplitLines(*canonical);
  const Node* rules = Get(*root, "rules");
  if (rules != nullptr && rules->items.size() != ids->size())
    return Fail(Code::kInternal, "the policy's rules could not be counted");

  std::string block;
  for (const std::string& rule : edit.add) block += fmt::format("  - {}\n", rule);
  std::string out;
  if (rules == nullptr || rules->items.empty()) {
    for (const std::string& line : lines)
      if (!line.starts_with("rules:")) out += line + '\n';
    if (!block.empty()) out += "rules:\n" + block;
  } else {
    const std::vector<Range> ranges = RuleRanges(*root, *rules, lines);
    std::vector<std::optional<std::string>> shown(lines.begin(), lines.end());
    bool any = !block.empty();
    for (size_t i = 0; i < ranges.size(); ++i) {
      any = any || kept[i] || (*fates)[i];
      if (kept[i]) continue;
      for (size_t at = ranges[i].first; at < ranges[i].last; ++at) shown[at].reset();
      if ((*fates)[i]) {
        shown[ranges[i].first] = fmt::format("  - {}", *(*fates)[i]);
        continue;
      }
      // What stands right above speaks of it.
      const size_t before = i == 0 ? 0 : ranges[i - 1].last;
      for (size_t at = ranges[i].first; at > before && KindOf(lines[at - 1]) == LineKind::kComment; --at) shown[at - 1].reset();
    }
    for (size_t at = 0; at < shown.size(); ++at) {
      if (shown[at] && !(lines[at].starts_with("rules:") && !any)) out += *shown[at] + '\n';
      if (at + 1 == ranges.back().last) out += block;
    }
  }
  const auto edited = policy::ParseYaml(out, name);
  if (!edited) return std::unexpected(edited.error());
  return policy::FormatPolicy(out, *edited);
}

}  // namespace sluice::app
