#include "policy/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "policy/comments.h"
#include "policy/document.h"
#include "policy/rule_keys.h"
#include "policy/rule_text.h"

namespace sluice::policy {
namespace {

constexpr size_t kWidth = 100;  // columns that a line may fill before its list is broken up

constexpr std::array<std::string_view, 10> kTopOrder = {"version", "name",        "mode",    "include", "settings",
                                                        "presets", "credentials", "proxies", "rules",   "assert"};
constexpr std::array<std::string_view, 27> kRuleOrder = {
    "allow",           "deny", "never", "always", "types", "operation", "fields",     "tool",    "json",          "refs",
    "ref-changes",     "lfs",  "by",    "under",  "ip",    "query",     "query-keys", "headers", "encoded-slash", "path-params",
    "method-override", "with", "via",   "pins",   "until", "note",      "id"};
constexpr std::array<std::string_view, 12> kAlwaysLists = {"by",        "under",  "ip",   "types", "query-keys",  "include",
                                                           "operation", "fields", "tool", "refs",  "ref-changes", "pins"};
// Maps of names, a line or more each.
constexpr std::array<std::string_view, 2> kNameMaps = {"credentials", "proxies"};
// Entries of these are rules, each on its own.
constexpr std::array<std::string_view, 3> kBlockKeys = {"rules", "assert", "presets"};

template <size_t N>
bool Contains(const std::array<std::string_view, N>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

template <size_t N>
size_t Rank(const std::array<std::string_view, N>& order, std::string_view word) {
  return static_cast<size_t>(std::find(order.begin(), order.end(), word) - order.begin());
}

enum class Context : uint8_t { kBlock, kFlow };

bool IsSafePlain(std::string_view text, Context context) {
  if (text.empty() || text.front() == ' ' || text.back() == ' ' || text.back() == ':') return false;
  if (std::string_view("-?:,[]{}#&*!|>'\"%@`=~").find(text.front()) != std::string_view::npos) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte > 0x7e) return false;
    if (text[i] == ':' && i + 1 < text.size() && text[i + 1] == ' ') return false;
    if (text[i] == '#' && text[i - 1] == ' ') return false;
    if (context == Context::kFlow && std::string_view(",[]{}").find(text[i]) != std::string_view::npos) return false;
    if (context == Context::kFlow && text[i] == ':') return false;
  }
  return true;
}

std::string Quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

// What was written plain may be plain again where the surroundings allow it.
std::string ScalarText(const Node& node, Context context) {
  const bool was_plain = node.style == Node::Style::kPlain;
  if (was_plain && node.text.empty()) return "";
  if (IsSafePlain(node.text, context) && (was_plain || !IsAmbiguousPlain(node.text))) return node.text;
  if (was_plain && context == Context::kBlock) return node.text;
  return Quoted(node.text);
}

std::string KeyText(const Node& key) { return ScalarText(key, Context::kFlow); }

// The whole value on one line. Nothing where it holds a block scalar.
std::optional<std::string> Inline(const Node& node, Context context) {
  std::string out;
  switch (node.kind) {
    case Node::Kind::kScalar:
      if (node.style == Node::Style::kBlock) return std::nullopt;
      return ScalarText(node, context);
    case Node::Kind::kSequence:
      for (const Node& item : node.items) {
        const auto text = Inline(item, Context::kFlow);
        if (!text) return std::nullopt;
        out += (out.empty() ? "" : ", ") + *text;
      }
      return fmt::format("[{}]", out);
    case Node::Kind::kMapping:
      for (const auto& [key, value] : node.members) {
        const auto text = Inline(value, Context::kFlow);
        if (!text) return std::nullopt;
        out += fmt::format("{}{}:{}{}", out.empty() ? "" : ", ", KeyText(key), text->empty() ? "" : " ", *text);
      }
      return out.empty() ? "{}" : fmt::format("{{ {} }}", out);
  }
  return std::nullopt;
}

Node Listed(Node node) {
  if (node.kind != Node::Kind::kScalar || node.style == Node::Style::kBlock || node.text.empty()) return node;
  Node list;
  list.kind = Node::Kind::kSequence;
  list.span = node.span;
  list.items.push_back(std::move(node));
  return list;
}

// A rule's target in the compact form, where that says the same.
Node CanonicalTarget(Effect effect, const Node& target) {
  const Node rule_node = [&] {
    Node node;
    node.kind = Node::Kind::kMapping;
    Node key;
    key.text = effect == Effect::kAllow ? "allow" : "deny";
    node.members.push_back({std::move(key), target});
    return node;
  }();
  const auto rule = ReadRule(rule_node, "");
  // A name in another script is easier to read as its author wrote it.
  const bool ascii = target.kind != Node::Kind::kScalar || std::all_of(target.text.begin(), target.text.end(), [](char c) {
                       return static_cast<unsigned char>(c) < 0x80;
                     });
  if (!rule || !ascii) return target;
  Node compact;
  compact.text = CompactText(*rule);
  compact.style = Node::Style::kQuoted;
  const auto again = ParseCompact(effect, compact.text);
  return again && CanonicalText(*again) == CanonicalText(*rule) ? compact : target;
}

class Formatter {
 public:
  Formatter(std::string_view text, const Node& root) : comments_(text, root) {}

  std::string Run(const Node& root) {
    for (const Member* member : Sorted(root.members, kTopOrder)) {
      Lead(member->key, 0);
      Top(*member);
      for (const std::string& line : comments_.TailOf(member->key)) Line(2, line);
    }
    for (const std::string& line : comments_.end()) Line(0, line);
    return std::move(out_);
  }

 private:
  template <size_t N>
  static std::vector<const Member*> Sorted(const std::vector<Member>& members, const std::array<std::string_view, N>& order) {
    std::vector<const Member*> sorted;
    sorted.reserve(members.size());
    for (const Member& member : members) sorted.push_back(&member);
    std::sort(sorted.begin(), sorted.end(), [&](const Member* a, const Member* b) {
      return std::pair(Rank(order, a->key.text), a) < std::pair(Rank(order, b->key.text), b);
    });
    return sorted;
  }

  void Line(size_t indent, std::string_view text) {
    if (!text.empty()) out_ += std::string(indent, ' ') + std::string(text);
    out_ += '\n';
  }

  // Blank line and comments before an entry.
  void Lead(const Node& anchor, size_t indent) {
    const Surroundings& around = comments_.Of(anchor);
    if (around.blank_before && !out_.empty() && !out_.ends_with("\n\n")) out_ += '\n';
    for (const std::string& line : around.leading) Line(indent, line);
  }

  [[nodiscard]] std::string Trail(const Node& anchor) const {
    const std::string& trailing = comments_.Of(anchor).trailing;
    return trailing.empty() ? "" : "  " + trailing;
  }

  void Top(const Member& member) {
    const auto& [key, value] = member;
    const bool listed = Contains(kBlockKeys, key.text) && value.kind == Node::Kind::kSequence && !value.items.empty();
    if (Contains(kNameMaps, key.text) && !value.members.empty()) {
      out_ += key.text + ":" + Trail(key) + "\n";
      return Below(value, 2);
    }
    if (!listed) return Entry(member, 0);
    out_ += key.text + ":" + Trail(key) + "\n";
    for (const Node& item : value.items) Item(item, 2, key.text != "presets");
  }

  // "key: value" at `indent`, the value on the line or below it.
  void Entry(const Member& member, size_t indent) {
    const Node& key = member.key;
    const Node normal = Contains(kAlwaysLists, key.text) ? Listed(member.value) : member.value;
    // Comments are found by the nodes of the file, not of a copy.
    const Node& value = normal.kind == member.value.kind ? member.value : normal;
    const std::string head = std::string(indent, ' ') + KeyText(key) + ":";
    if (value.kind == Node::Kind::kScalar && value.style == Node::Style::kBlock) return BlockScalar(head, key, value, indent);
    const auto text = comments_.Within(value) ? std::nullopt : Inline(value, Context::kBlock);
    const bool fits = text && head.size() + 1 + text->size() <= kWidth;
    const bool empty = value.items.empty() && value.members.empty();
    if (fits || (text && (value.kind == Node::Kind::kScalar || empty))) {
      out_ += head + (text->empty() ? "" : " " + *text) + Trail(key) + "\n";
      return;
    }
    out_ += head + Trail(key) + "\n";
    Below(value, indent + 2);
  }

  void Below(const Node& value, size_t indent) {
    for (const Node& item : value.items) Item(item, indent, false);
    for (const Member& member : value.members) {
      Lead(member.key, indent);
      Entry(member, indent);
    }
  }

  // "- value" at `indent`.
  void Item(const Node& item, size_t indent, bool rule) {
    Lead(item, indent);
    if (item.kind == Node::Kind::kMapping && !item.members.empty()) return MapItem(item, indent, rule);
    const auto text = Inline(item, Context::kBlock);
    Line(indent, fmt::format("- {}{}", text.value_or("''"), Trail(item)));
  }

  void MapItem(const Node& item, size_t indent, bool rule) {
    std::string trailing = Trail(item);
    bool first = true;
    for (const Member* member : Sorted(item.members, kRuleOrder)) {
      if (first && !comments_.Of(member->key).leading.empty()) Lead(member->key, indent);
      if (!first) Lead(member->key, indent + 2);
      const size_t line = out_.size();
      RuleEntry(*member, indent + 2, rule);
      if (first) {
        out_[line + indent] = '-';
        // A comment of the entry as a whole stands on its first line.
        if (!trailing.empty()) out_.insert(std::min(out_.find('\n', line), out_.size()), trailing);
      }
      first = false;
    }
  }

  void RuleEntry(const Member& member, size_t indent, bool rule) {
    const std::string& word = member.key.text;
    const bool allow = word == "allow" || word == "always";
    if (!rule || (!allow && word != "deny" && word != "never") || comments_.Within(member.value)) return Entry(member, indent);
    const Node target = CanonicalTarget(allow ? Effect::kAllow : Effect::kDeny, member.value);
    const auto text = Inline(target, Context::kBlock);
    if (!text) return Entry(member, indent);
    Line(indent, fmt::format("{}: {}{}", word, *text, Trail(member.key)));
  }

  void BlockScalar(const std::string& head, const Node& key, const Node& value, size_t indent) {
    const bool ends = value.text.ends_with('\n');
    out_ += head + (ends ? " |" : " |-") + Trail(key) + "\n";
    std::string_view rest = value.text;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      Line(indent + 2, rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }

  Comments comments_;
  std::string out_;
};

}  // namespace

Result<std::string> FormatPolicy(std::string_view text, const Node& root) {
  if (const auto document = ReadDocument(root, FileRole::kIncluded, ""); !document) {
    // A top file may hold more; what is wrong there is wrong here.
    if (const auto top = ReadDocument(root, FileRole::kTop, ""); !top) return std::unexpected(top.error());
  }
  return Formatter(text, root).Run(root);
}

}  // namespace sluice::policy
