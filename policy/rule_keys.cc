#include "policy/rule_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "policy/rule_text.h"
#include "policy/target.h"

namespace sluice::policy {
namespace {

constexpr std::array<std::string_view, 25> kKeys = {"allow",       "deny",
                                                    "by",          "under",
                                                    "ip",          "query",
                                                    "query-keys",  "headers",
                                                    "until",       "note",
                                                    "id",          "encoded-slash",
                                                    "path-params", "method-override",
                                                    "types",       "refs",
                                                    "ref-changes", "lfs",
                                                    "fields",      "operation",
                                                    "tool",        "json",
                                                    "with",        "via",
                                                    "pins"};
// What does not apply to an assertion is `until`, since it holds in every version of the file, and how a request travels.
constexpr std::array<std::string_view, 21> kAssertionKeys = {
    "never", "always", "by",        "under",         "ip",          "query",           "query-keys", "headers",
    "types", "note",   "id",        "encoded-slash", "path-params", "method-override", "refs",       "ref-changes",
    "lfs",   "fields", "operation", "tool",          "json"};
constexpr std::array<std::string_view, 8> kTargetKeys = {"verb", "methods", "scheme", "host", "ports", "path", "repo", "rpc"};

constexpr size_t kMaxList = 1024;  // entries of one list in a rule

template <size_t N>
bool Contains(const std::array<std::string_view, N>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// A scalar or a list of scalars.
Result<std::vector<const Node*>> ListOf(const Node& node, std::string_view slot) {
  std::vector<const Node*> nodes;
  if (node.kind == Node::Kind::kScalar) {
    nodes.push_back(&node);
  } else if (node.kind == Node::Kind::kSequence) {
    for (const Node& item : node.items) nodes.push_back(&item);
  } else {
    return NodeError(node, fmt::format("`{}` is a value or a list", slot));
  }
  if (nodes.empty())
    return NodeError(node, fmt::format("`{}` is an empty list, which matches nothing; leave the key out or fill it", slot));
  if (nodes.size() > kMaxList) return NodeError(node, fmt::format("`{}` has more than {} entries", slot, kMaxList));
  return nodes;
}

// Each entry of a list, through `parse(text) -> Result<T>`, errors moved to their place.
template <class T, class F>
Result<void> ReadList(const Node& node, std::string_view slot, std::vector<T>* out, F parse) {
  const auto nodes = ListOf(node, slot);
  if (!nodes) return std::unexpected(nodes.error());
  for (const Node* item : *nodes) {
    // What looks like a number is an address all the same: no reader can take 10.0.0.1 for another one.
    const bool address = slot == "ip" && item->kind == Node::Kind::kScalar;
    auto text = address ? Result<std::string>(item->text) : ReadText(*item, slot);
    if (!text) return std::unexpected(text.error());
    auto value = parse(*text);
    if (!value) return MovedInto(*item, value.error());
    out->push_back(std::move(*value));
  }
  return {};
}

Result<bool> ReadFlag(const Node& node, std::string_view key) {
  if (node.kind == Node::Kind::kScalar && node.style == Node::Style::kPlain) {
    if (node.text == "true") return true;
    if (node.text == "false") return false;
  }
  return NodeError(node, fmt::format("`{}` is true or false", key));
}

std::unexpected<Error> TextError(std::string message, std::string_view text) {
  return std::unexpected(Error{Code::kInvalid, std::move(message), 0, SourceSpan{"", 1, 1, static_cast<uint32_t>(text.size())}});
}

Result<Cidr> ParseIp(const std::string& text) {
  if (const auto cidr = Cidr::Parse(text)) return *cidr;
  return TextError(fmt::format("`{}` is not an address or a prefix without bits after its length (10.1.0.0/16, fd00::/8)", text),
                   text);
}

Result<uint16_t> ParseType(const std::string& text) {
  if (const uint16_t type = DnsTypeNumber(text); type != 0) return type;
  return TextError(fmt::format("unknown record type `{}`; types are upper-case, as in `[A, AAAA, HTTPS]`", text), text);
}

Result<void> ReadMatchers(const Node& node, std::string_view slot, std::vector<ValueMatcher>* out) {
  if (node.kind != Node::Kind::kMapping)
    return NodeError(node, fmt::format("`{}` is a map, as in `{{ tag: [v1*, v2*] }}`", slot));
  if (node.members.empty()) return NodeError(node, fmt::format("`{}` is empty; leave the key out or fill it", slot));
  for (const auto& [key, value] : node.members) {
    auto name = ReadText(key, slot);
    if (!name) return std::unexpected(name.error());
    if (slot == "headers") {
      if (!IsToken(*name)) return NodeError(key, fmt::format("`{}` is not a header name", *name));
      for (char& c : *name)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
      for (const ValueMatcher& other : *out)
        if (other.key == *name) return NodeError(key, fmt::format("the header `{}` is listed twice", *name));
    }
    ValueMatcher matcher{std::move(*name), {}};
    auto read = ReadList(value, slot, &matcher.values, [](const std::string& text) { return Glob::Text(text); });
    if (!read) return read;
    out->push_back(std::move(matcher));
  }
  return {};
}

Result<std::string> JoinedMethods(const Node& node) {
  std::vector<std::string> methods;
  auto read = ReadList(node, "methods", &methods, [](std::string text) { return Result<std::string>(std::move(text)); });
  if (!read) return std::unexpected(read.error());
  std::string joined;
  for (const std::string& method : methods) joined += (joined.empty() ? "" : ",") + method;
  if (joined.find(' ') != std::string::npos ||
      !std::any_of(joined.begin(), joined.end(), [](char c) { return c >= 'A' && c <= 'Z'; }))
    return NodeError(node, "`methods` lists upper-case methods, as in `[GET, POST]`");
  return joined;
}

Result<std::string> JoinedPorts(const Node& node) {
  const auto nodes = ListOf(node, "ports");
  if (!nodes) return std::unexpected(nodes.error());
  std::string joined;
  for (const Node* item : *nodes) {
    if (item->kind != Node::Kind::kScalar) return NodeError(*item, "a port is a number or a range");
    joined += (joined.empty() ? "" : ",") + item->text;
  }
  return joined;
}

// Errors inside a piece of the long form have columns of that piece alone; the whole value is what can be pointed at.
Result<RulePieces> ReadLong(const Node& node) {
  RulePieces pieces;
  bool has_verb = false;
  for (const auto& [key, value] : node.members) {
    const std::string& word = key.text;
    if (word == "verb" || word == "methods") {
      if (has_verb) return NodeError(key, "a rule has `verb` or `methods`, not both");
      has_verb = true;
      auto text = word == "verb" ? ReadText(value, word) : JoinedMethods(value);
      if (!text) return std::unexpected(text.error());
      pieces.verb = {std::move(*text), 1};
    } else if (word == "ports") {
      auto text = JoinedPorts(value);
      if (!text) return std::unexpected(text.error());
      pieces.ports = Piece{std::move(*text), 1};
    } else if (word == "path" || word == "repo" || word == "rpc") {
      if (!pieces.paths.empty()) return NodeError(key, "a rule has one of `path`, `repo` and `rpc`");
      auto read = ReadList(value, word, &pieces.paths, [](std::string text) { return Result<Piece>(Piece{std::move(text), 1}); });
      if (!read) return std::unexpected(read.error());
    } else if (word == "host" || word == "scheme") {
      if (value.kind != Node::Kind::kScalar) return NodeError(value, fmt::format("`{}` is a text", word));
      (word == "host" ? pieces.host : pieces.scheme) = Piece{value.text, 1};
    } else if (Contains(kKeys, word) && word != "allow" && word != "deny") {
      return NodeError(key, fmt::format("`{}` stands beside the target, not in it", word));
    } else {
      return NodeError(key, fmt::format("unknown key `{}` in a target{}", word, DidYouMean(word, kTargetKeys)));
    }
  }
  if (!has_verb) return NodeError(node, "the long form needs `verb` or `methods`");
  return pieces;
}

Result<Rule> ReadTarget(const Node& key, const Node& value) {
  const Effect effect = key.text == "allow" || key.text == "always" ? Effect::kAllow : Effect::kDeny;
  if (value.kind == Node::Kind::kScalar) {
    const auto text = ReadText(value, key.text);
    if (!text) return std::unexpected(text.error());
    const auto pieces = CutCompact(*text);
    if (!pieces) return MovedInto(value, pieces.error());
    auto rule = BuildRule(effect, *pieces);
    if (!rule) return MovedInto(value, rule.error());
    return rule;
  }
  if (value.kind != Node::Kind::kMapping) return NodeError(value, fmt::format("`{}` is `VERB TARGET` or a map", key.text));
  const auto pieces = ReadLong(value);
  if (!pieces) return std::unexpected(pieces.error());
  auto rule = BuildRule(effect, *pieces);
  if (rule) return rule;
  return NodeError(value, rule.error().message);
}

// Whether a key means something beside the verb; nothing is ever ignored.
bool Applies(std::string_view key, const Rule& rule) {
  const Verb verb = rule.verb;
  const bool rpc = verb == Verb::kJsonRpc || verb == Verb::kMcp;
  if (key == "query" || key == "query-keys") return IsInner(verb) && !IsGit(verb) && verb != Verb::kGrpc;
  if (key == "refs" || key == "ref-changes") return verb == Verb::kGitReceivePack;
  if (key == "lfs") return IsGit(verb);
  if (key == "fields" || key == "operation") return verb == Verb::kGraphql;
  if (key == "tool") return verb == Verb::kMcp && rule.rpc.text() == "tools/call";
  if (key == "json") return verb == Verb::kHttp || rpc;
  if (key == "with" || key == "pins") return IsInner(verb);
  if (key == "via") return IsInner(verb) || verb == Verb::kTls || verb == Verb::kTcp;
  if (key == "headers" || key == "encoded-slash" || key == "path-params" || key == "method-override") return IsInner(rule.verb);
  if (key == "ip") return rule.verb != Verb::kDns && rule.verb != Verb::kUnix;
  if (key == "types") return rule.verb == Verb::kDns;
  return true;
}

// `effect` is "deny" or "never".
Result<void> RefuseInDeny(const Node& key, const Rule& rule, std::string_view effect) {
  if (rule.allow) return {};
  const std::string& word = key.text;
  const std::string_view opposite = effect == "deny" ? "an allow" : "an always";
  if (word == "until") return NodeError(key, "`until` in a deny: time only narrows, so a deny has no end");
  if (word == "with" || word == "via" || word == "pins")
    return NodeError(key, fmt::format("`{}` says how what is allowed travels; a deny has nothing to send", word));
  if (word == "under")
    return NodeError(key, fmt::format("`under` in a {0}: a process could shed its ancestors, so a {0} takes `by` alone", effect));
  if (word == "query-keys")
    return NodeError(key, fmt::format("`query-keys` closes the keys of {}; a {} takes `query`", opposite, effect));
  if (word == "encoded-slash" || word == "path-params" || word == "method-override")
    return NodeError(key, fmt::format("`{}` opens {}; a {} reads every form already", word, opposite, effect));
  return {};
}

Result<void> ReadFlagKey(const Node& key, const Node& value, Rule* rule) {
  const auto flag = ReadFlag(value, key.text);
  if (!flag) return std::unexpected(flag.error());
  (key.text == "encoded-slash" ? rule->encoded_slash
   : key.text == "path-params" ? rule->path_params
   : key.text == "lfs"         ? rule->lfs
                               : rule->method_override) = *flag;
  return {};
}

// A pointer into a JSON text (RFC 6901).
bool IsPointer(std::string_view text) {
  if (!text.empty() && text[0] != '/') return false;
  for (size_t at = text.find('~'); at != std::string_view::npos; at = text.find('~', at + 1))
    if (at + 1 == text.size() || (text[at + 1] != '0' && text[at + 1] != '1')) return false;
  return true;
}

Result<void> ReadJson(const Node& node, Rule* rule) {
  if (auto read = ReadMatchers(node, "json", &rule->json); !read) return read;
  for (const auto& [key, value] : node.members)
    if (!IsPointer(key.text))
      return NodeError(
          key, fmt::format("`{}` is not a JSON pointer, as in `/params/name`; in one `~0` is `~` and `~1` is `/`", key.text));
  return {};
}

Result<void> ReadRefChanges(const Node& node, Rule* rule) {
  static constexpr std::array<std::string_view, 3> kWords = {"create", "update", "delete"};
  std::vector<RefChange> changes;
  auto read = ReadList(node, "ref-changes", &changes, [](const std::string& text) -> Result<RefChange> {
    if (text == "create") return kRefCreate;
    if (text == "update") return kRefUpdate;
    if (text == "delete") return kRefDelete;
    if (text == "force")
      return TextError("`force` cannot be told from `update`: the commands of a push do not say whether history is lost", text);
    return TextError(fmt::format("`ref-changes` lists create, update and delete, not `{}`{}", text, DidYouMean(text, kWords)),
                     text);
  });
  if (!read) return read;
  rule->ref_changes = 0;
  for (const RefChange change : changes) *rule->ref_changes |= change;
  return {};
}

Result<Glob> ParseRef(const std::string& text) {
  if (!text.starts_with("refs/") && !text.starts_with('*'))
    return TextError(fmt::format("a ref is written in full: `refs/heads/{0}` for a branch, `refs/tags/{0}` for a tag", text),
                     text);
  return Glob::Text(text);
}

// "sha256//" and the digest in base64, as curl and HPKP write it.
Result<Pin> ParsePin(const std::string& text) {
  constexpr std::string_view kPrefix = "sha256//";
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto bad = [&] {
    return TextError("a pin is `sha256//` and the SHA-256 of the key (SubjectPublicKeyInfo) in base64, 44 characters", text);
  };
  if (!text.starts_with(kPrefix) || text.size() != kPrefix.size() + 44 || !text.ends_with('=')) return bad();
  Pin pin{};
  uint32_t bits = 0;
  size_t filled = 0;
  size_t have = 0;
  for (const char c : std::string_view(text).substr(kPrefix.size(), 43)) {
    const size_t value = kDigits.find(c);
    if (value == std::string_view::npos) return bad();
    bits = (bits << 6) | static_cast<uint32_t>(value);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    pin[filled++] = static_cast<uint8_t>(bits >> have);
  }
  if ((bits & 3) != 0) return bad();  // another spelling of the same digest
  return pin;
}

// What the body asks for, and how the request travels. Nothing where the key is another.
std::optional<Result<void>> ReadOperationKey(const Node& key, const Node& value, Rule* rule) {
  const std::string& word = key.text;
  const auto glob = [](const std::string& text) { return Glob::Text(text); };
  if (word == "operation") return ReadList(value, word, &rule->operation, glob);
  if (word == "fields") return ReadList(value, word, &rule->fields, glob);
  if (word == "tool") return ReadList(value, word, &rule->tool, glob);
  if (word == "refs") return ReadList(value, word, &rule->refs, ParseRef);
  if (word == "ref-changes") return ReadRefChanges(value, rule);
  if (word == "json") return ReadJson(value, rule);
  if (word == "pins") {
    auto read = ReadList(value, word, &rule->pins, ParsePin);
    std::sort(rule->pins.begin(), rule->pins.end());
    return read;
  }
  if (word == "with" || word == "via") {
    auto text = ReadText(value, word);
    if (!text) return Result<void>(std::unexpected(text.error()));
    if (text->empty()) return Result<void>(NodeError(value, fmt::format("`{}` is empty", word)));
    (word == "with" ? rule->with : rule->via) = std::move(*text);
    (word == "with" ? rule->with_at : rule->via_at) = value.span;
    return Result<void>{};
  }
  return std::nullopt;
}

Result<void> ReadKey(const Node& key, const Node& value, std::string_view effect, Rule* rule) {
  const std::string& word = key.text;
  if (!Applies(word, *rule)) {
    if (word == "tool" && rule->verb == Verb::kMcp) return NodeError(key, "`tool` belongs to `mcp tools/call`");
    return NodeError(key, fmt::format("`{}` does not apply to `{}`", word, VerbText(rule->verb)));
  }
  if (auto good = RefuseInDeny(key, *rule, effect); !good) return good;
  if (auto read = ReadOperationKey(key, value, rule)) return *read;
  if (word == "by") return ReadList(value, word, &rule->by, ParseExecutable);
  if (word == "under") return ReadList(value, word, &rule->under, ParseExecutable);
  if (word == "ip") return ReadList(value, word, &rule->ip, ParseIp);
  if (word == "query") return ReadMatchers(value, word, &rule->query);
  if (word == "headers") return ReadMatchers(value, word, &rule->headers);
  if (word == "query-keys")
    return ReadList(value, word, &rule->query_keys.emplace(),
                    [](std::string text) { return Result<std::string>(std::move(text)); });
  if (word == "types") {
    rule->types.clear();
    return ReadList(value, word, &rule->types, ParseType);
  }
  if (word == "encoded-slash" || word == "path-params" || word == "method-override" || word == "lfs")
    return ReadFlagKey(key, value, rule);
  if (word == "until") {
    if (value.kind != Node::Kind::kScalar) return NodeError(value, "`until` is a date or a timestamp");
    const auto until = ParseUntil(value.text);
    if (!until) return MovedInto(value, until.error());
    rule->until = *until;
    return {};
  }
  auto text = ReadText(value, word);
  if (!text) return std::unexpected(text.error());
  if (word == "id" && text->empty()) return NodeError(value, "`id` is empty");
  (word == "id" ? rule->id : rule->note) = std::move(*text);
  return {};
}

// A list's entries: what they are called, the two words one of which each has, and its keys.
struct EntryKind {
  std::string_view name;
  std::string_view granting;
  std::string_view refusing;
  std::span<const std::string_view> keys;
};
constexpr EntryKind kRuleEntry{"a rule", "allow", "deny", kKeys};
constexpr EntryKind kAssertionEntry{"an assertion", "always", "never", kAssertionKeys};

// What is known elsewhere in a policy says more than the nearest spelling.
std::string Hint(std::string_view word, const EntryKind& kind) {
  if (word == "allow" || word == "deny" || word == "until")
    return fmt::format("; {}", word == "until"  ? "it holds in every version of the file, without an end"
                               : word == "deny" ? "here it is `never`, which reads as widely"
                                                : "here it is `always`, which reads as narrowly");
  if (word == "never" || word == "always") return "; it stands under `assert`";
  return DidYouMean(word, kind.keys);
}

Result<const Member*> FindTarget(const Node& node, const EntryKind& kind) {
  if (node.kind != Node::Kind::kMapping)
    return NodeError(node, fmt::format("{} is `{}: VERB TARGET` or `{}: VERB TARGET`", kind.name, kind.granting, kind.refusing));
  const Member* target = nullptr;
  for (const auto& member : node.members) {
    const std::string& word = member.key.text;
    if (std::find(kind.keys.begin(), kind.keys.end(), word) == kind.keys.end())
      return NodeError(member.key, fmt::format("unknown key `{}` in {}{}", word, kind.name, Hint(word, kind)));
    if (word != kind.granting && word != kind.refusing) continue;
    if (target != nullptr)
      return NodeError(member.key, fmt::format("{} is one `{}` or one `{}`", kind.name, kind.granting, kind.refusing));
    target = &member;
  }
  if (target == nullptr) return NodeError(node, fmt::format("{} needs `{}` or `{}`", kind.name, kind.granting, kind.refusing));
  return target;
}

Result<Rule> ReadEntry(const Node& node, const std::string& label, const EntryKind& kind) {
  const auto target = FindTarget(node, kind);
  if (!target) return std::unexpected(target.error());
  const auto& [target_key, target_value] = **target;
  auto rule = ReadTarget(target_key, target_value);
  if (!rule) return rule;
  for (const auto& [key, value] : node.members) {
    if (&key == &target_key) continue;
    if (auto read = ReadKey(key, value, target_key.text, &*rule); !read) return std::unexpected(read.error());
  }
  if (auto checked = CheckRule(*rule); !checked) return NodeError(target_value, checked.error().message);
  rule->span = target_value.span.line == target_key.span.line ? target_value.span : target_key.span;
  if (rule->id.empty()) rule->id = fmt::format("{}:{}", label, rule->span.line);
  return rule;
}

}  // namespace

std::unexpected<Error> NodeError(const Node& node, std::string message) {
  return std::unexpected(Error{Code::kInvalid, std::move(message), 0, node.span});
}

std::unexpected<Error> MovedInto(const Node& node, Error error) {
  SourceSpan span = node.span;
  if (error.span && node.verbatim && node.kind == Node::Kind::kScalar) {
    span.column += node.text_offset + error.span->column - 1;
    span.length = std::max<uint32_t>(error.span->length, 1);
  }
  error.span = std::move(span);
  return std::unexpected(std::move(error));
}

Result<std::string> ReadText(const Node& node, std::string_view slot) {
  if (node.kind != Node::Kind::kScalar)
    return NodeError(
        node, fmt::format("a text is expected for `{}`, not a {}", slot, node.kind == Node::Kind::kMapping ? "map" : "list"));
  if (node.style == Node::Style::kPlain && IsAmbiguousPlain(node.text)) {
    if (node.text.empty()) return NodeError(node, fmt::format("`{}` has no value", slot));
    return NodeError(node, fmt::format("`{0}` is not a text to every YAML reader; write '{0}' in quotes", node.text));
  }
  if (node.style == Node::Style::kBlock && slot != "note")
    return NodeError(node, fmt::format("`{}` is written on one line", slot));
  if (slot != "note" && node.text.find('\n') != std::string::npos) return NodeError(node, "a line end inside a text");
  return node.text;
}

std::span<const std::string_view> RuleKeys() { return kKeys; }
std::span<const std::string_view> TargetKeys() { return kTargetKeys; }

Result<Rule> ReadRule(const Node& node, const std::string& label) { return ReadEntry(node, label, kRuleEntry); }

Result<Assertion> ReadAssertion(const Node& node, const std::string& label) {
  auto rule = ReadEntry(node, label, kAssertionEntry);
  if (!rule) return std::unexpected(rule.error());
  const auto kind = rule->allow ? Assertion::Kind::kAlways : Assertion::Kind::kNever;
  return Assertion{kind, std::move(*rule), {}};
}

}  // namespace sluice::policy
