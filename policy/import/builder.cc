#include "policy/import/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "policy/address.h"
#include "policy/host_pattern.h"
#include "policy/overlap.h"
#include "policy/rule_keys.h"

namespace sluice::policy {
namespace {

constexpr size_t kMaxImportList = 4096;  // entries of one list in another tool's file
constexpr size_t kMaxImportRules = 100'000;

std::string_view Code(RemarkKind kind) {
  switch (kind) {
    case RemarkKind::kNote:
      return "import-note";
    case RemarkKind::kNarrower:
      return "import-narrower";
    case RemarkKind::kWider:
      return "import-wider";
    case RemarkKind::kNothing:
      break;
  }
  return "import-nothing";
}

// What grants nothing is most likely a mistake; what is wider must be seen.
Finding::Severity SeverityOf(RemarkKind kind) {
  return kind == RemarkKind::kWider || kind == RemarkKind::kNothing ? Finding::Severity::kWarning : Finding::Severity::kNote;
}

bool IsNull(const Node& node) {
  return node.kind == Node::Kind::kScalar && node.style == Node::Style::kPlain &&
         (node.text.empty() || node.text == "null" || node.text == "~");
}

}  // namespace

Result<Rule> ImportBuilder::Make(const RuleParts& parts, const Node& at) {
  RulePieces pieces;
  pieces.verb = {parts.verb, 1};
  if (!parts.scheme.empty()) pieces.scheme = Piece{parts.scheme, 1};
  if (!parts.host.empty()) pieces.host = Piece{parts.host, 1};
  if (!parts.ports.empty()) pieces.ports = Piece{parts.ports, 1};
  for (const std::string& path : parts.paths) pieces.paths.push_back({path, 1});
  auto rule = BuildRule(parts.effect, pieces);
  if (rule) return rule;
  // The column is one of the piece; it is one of the file where the node holds just that piece.
  if (at.kind == Node::Kind::kScalar && (at.text == parts.host || (parts.paths.size() == 1 && at.text == parts.paths[0])))
    return MovedInto(at, rule.error());
  return NodeError(at, rule.error().message);
}

void ImportBuilder::Add(Rule rule, const SourceSpan& span) {
  rule.span = span;
  imported_.rules.push_back(std::move(rule));
}

Result<void> ImportBuilder::Grant(const RuleParts& parts, const Node& at) {
  if (imported_.rules.size() >= kMaxImportRules)
    return std::unexpected(Error{Code::kExhausted, fmt::format("more than {} rules", kMaxImportRules), 0, at.span});
  auto rule = Make(parts, at);
  if (!rule) return std::unexpected(rule.error());
  Add(std::move(*rule), at.span);
  return {};
}

ImportRemark& ImportBuilder::Push(RemarkKind kind, std::string text, const SourceSpan& span) {
  ImportRemark remark;
  remark.finding = {SeverityOf(kind), std::string(policy::Code(kind)), std::move(text), span, {}};
  remark.before = imported_.rules.size();
  return imported_.remarks.emplace_back(std::move(remark));
}

void ImportBuilder::Say(RemarkKind kind, std::string text, const SourceSpan& span) {
  // Several values of one line may give cause for the same words.
  for (auto other = imported_.remarks.rbegin(); other != imported_.remarks.rend(); ++other) {
    if (other->before != imported_.rules.size() || other->finding.span.line != span.line) break;
    if (!other->of_file && other->finding.message == text) return;
  }
  Push(kind, std::move(text), span);
}

void ImportBuilder::SayOfFile(RemarkKind kind, std::string text, const SourceSpan& span) {
  if (said_of_file_.insert(text).second) Push(kind, std::move(text), span).of_file = true;
}

Imported ImportBuilder::Finish(const std::string& label) {
  std::unordered_map<uint32_t, int> seen;  // rules of one line
  for (Rule& rule : imported_.rules) {
    const int n = ++seen[rule.span.line];
    rule.id = n == 1 ? fmt::format("{}:{}", label, rule.span.line) : fmt::format("{}:{}#{}", label, rule.span.line, n);
  }
  return std::move(imported_);
}

Result<Fields> Fields::Of(const Node& node, std::string_view what) {
  if (node.kind != Node::Kind::kMapping) return NodeError(node, fmt::format("{} is a map", what));
  Fields fields;
  fields.node_ = &node;
  return fields;
}

const Node* Fields::Get(std::string_view key) {
  asked_.push_back(key);
  for (const Member& member : node_->members)
    if (member.key.text == key) return IsNull(member.value) ? nullptr : &member.value;
  return nullptr;
}

const Node* Fields::KeyNode(std::string_view key) const {
  for (const Member& member : node_->members)
    if (member.key.text == key) return &member.key;
  return nullptr;
}

Result<void> Fields::RefuseOthers(std::string_view what) const {
  for (const Member& member : node_->members) {
    if (std::find(asked_.begin(), asked_.end(), member.key.text) != asked_.end()) continue;
    return NodeError(member.key,
                     fmt::format("unknown field `{}` in {}{}", member.key.text, what, DidYouMean(member.key.text, asked_)));
  }
  return {};
}

Result<void> Fields::RefuseSet(std::string_view key, std::string_view why) {
  const Node* value = Get(key);
  if (value == nullptr || IsUnset(*value)) return {};
  return NodeError(*KeyNode(key), fmt::format("`{}` cannot be kept: {}", key, why));
}

Result<std::string> Text(const Node& node, std::string_view slot) {
  if (node.kind != Node::Kind::kScalar)
    return NodeError(node, fmt::format("`{}` is a text, not a {}", slot, node.kind == Node::Kind::kMapping ? "map" : "list"));
  if (IsNull(node)) return NodeError(node, fmt::format("`{}` has no value", slot));
  if (node.style != Node::Style::kBlock && node.text.find('\n') != std::string::npos)
    return NodeError(node, fmt::format("a line end inside `{}`", slot));
  return node.text;
}

Result<std::string> Word(const Node& node, std::string_view slot, std::initializer_list<std::string_view> values) {
  auto text = Text(node, slot);
  if (!text) return text;
  if (std::find(values.begin(), values.end(), *text) != values.end()) return text;
  std::string list;
  for (const std::string_view value : values) list += fmt::format("{}`{}`", list.empty() ? "" : " or ", value);
  return NodeError(node, fmt::format("`{}` is {}, not `{}`{}", slot, list, *text,
                                     DidYouMean(*text, std::span(values.begin(), values.size()))));
}

Result<bool> Flag(const Node& node, std::string_view slot) {
  if (node.kind == Node::Kind::kScalar && (node.text == "true" || node.text == "false")) return node.text == "true";
  return NodeError(node, fmt::format("`{}` is true or false", slot));
}

Result<uint16_t> Port(const Node& node, std::string_view slot) {
  unsigned value = 0;
  const std::string& text = node.text;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (node.kind != Node::Kind::kScalar || text.empty() || error != std::errc{} || end != text.data() + text.size() ||
      value > 65535 || (text.size() > 1 && text[0] == '0'))
    return NodeError(node, fmt::format("`{}` is a port number, not `{}`", slot, text));
  return static_cast<uint16_t>(value);
}

Result<std::vector<const Node*>> List(const Node* node, std::string_view slot) {
  std::vector<const Node*> items;
  if (node == nullptr) return items;
  if (node->kind != Node::Kind::kSequence) return NodeError(*node, fmt::format("`{}` is a list", slot));
  if (node->items.size() > kMaxImportList)
    return std::unexpected(
        Error{Code::kExhausted, fmt::format("`{}` has more than {} entries", slot, kMaxImportList), 0, node->span});
  items.reserve(node->items.size());
  for (const Node& item : node->items) items.push_back(&item);
  return items;
}

bool IsUnset(const Node& node) {
  if (node.kind == Node::Kind::kSequence) return node.items.empty();
  if (node.kind == Node::Kind::kMapping) return node.members.empty();
  return IsNull(node) || node.text.empty() || (node.style == Node::Style::kPlain && (node.text == "false" || node.text == "0"));
}

Result<HostPattern> HostAt(const Node& node, std::string_view text, uint32_t offset) {
  if (text.starts_with('[') && text.ends_with(']')) {
    text = text.substr(1, text.size() - 2);
    ++offset;
  }
  auto host = ParseHostPattern(text);
  // The tools compare names byte by byte with what is sent, which is ASCII and has no final dot: neither spelling matches
  // anything.
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (host && (!ascii || text.ends_with('.')))
    return NodeError(
        node, fmt::format("`{}` matches nothing there, since names are compared as they are sent; write `{}`", text, host->text));
  if (host) return host;
  Error error = host.error();
  if (error.span) error.span->column += offset;
  return MovedInto(node, std::move(error));
}

std::string HostText(const HostPattern& host) {
  return host.text.find(':') == std::string::npos ? host.text : fmt::format("[{}]", host.text);
}

bool HostCovers(const HostPattern& outer, const HostPattern& inner) {
  using Kind = HostPattern::Kind;
  if (outer.kind == Kind::kAny || outer == inner) return true;
  if (inner.kind == Kind::kAny || outer.kind != Kind::kGlob) {
    return outer.cidr && inner.cidr && outer.cidr->is_v4() == inner.cidr->is_v4() && outer.cidr->Contains(*inner.cidr);
  }
  if (inner.kind == Kind::kName) return HostMatchesName(outer, inner.text, false);
  if (inner.kind != Kind::kGlob || !outer.deep) return false;
  const bool literal = std::all_of(outer.labels.begin(), outer.labels.end(), [](const Glob& l) { return l.is_literal(); });
  return literal && inner.text.ends_with(outer.text.substr(2));  // "**.x" without its stars
}

bool HostsMeet(const HostPattern& a, const HostPattern& b) {
  using Kind = HostPattern::Kind;
  if (a.kind == Kind::kAny || b.kind == Kind::kAny) return true;
  if (a.kind == Kind::kAddress || b.kind == Kind::kAddress)
    return a.kind == b.kind && a.cidr->is_v4() == b.cidr->is_v4() && (a.cidr->Contains(*b.cidr) || b.cidr->Contains(*a.cidr));
  if (a.kind == Kind::kName) return b.kind == Kind::kName ? a.text == b.text : HostMatchesName(b, a.text, false);
  if (b.kind == Kind::kName) return HostMatchesName(a, b.text, false);
  // Most patterns differ in a label that both write out.
  for (auto i = a.labels.rbegin(), j = b.labels.rbegin(); i != a.labels.rend() && j != b.labels.rend(); ++i, ++j)
    if (i->is_literal() && j->is_literal() && i->text() != j->text()) return false;
  Rule x;
  x.host = a;
  Rule y;
  y.host = b;
  return ConnectionsOverlap(x, y);
}

std::string PrivateInside(const Cidr& prefix) {
  for (const char* text : {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"}) {
    const Cidr range = *Cidr::Parse(text);
    if (prefix != range && prefix.is_v4() == range.is_v4() && prefix.Contains(range)) return text;
  }
  return "";
}

std::string_view UnreachableLiteral(const HostPattern& host) {
  if (host.kind != HostPattern::Kind::kAddress) return {};
  const auto special = FindSpecialRange(host.cidr->base(), {});
  if (!special) return {};
  const std::string_view name = special->name;
  return name == "loopback" || name == "link-local" || name == "unspecified" || name == "metadata service" ? name
                                                                                                           : std::string_view{};
}

}  // namespace sluice::policy
