#include "policy/operation.h"

#include <algorithm>
#include <charconv>

namespace sluice::policy {
namespace {

using Type = JsonLeaf::Type;

bool AnyGlob(const std::vector<Glob>& globs, std::string_view text) {
  return std::any_of(globs.begin(), globs.end(), [&](const Glob& g) { return g.Matches(text); });
}

bool IsStar(const Glob& glob) { return glob.tokens().size() == 1 && glob.tokens()[0].kind == Glob::Kind::kAny; }

std::string_view Literal(const Glob& glob) {
  return glob.tokens().empty() ? std::string_view{} : std::string_view(glob.tokens()[0].literal);
}

bool HoldsGlob(const Glob& outer, const Glob& inner) {
  return IsStar(outer) || outer == inner || (inner.is_literal() && outer.Matches(Literal(inner)));
}

// Whether each text of `inner` is one of `outer`; an empty list is every text.
bool HoldsGlobs(const std::vector<Glob>& outer, const std::vector<Glob>& inner) {
  if (outer.empty() || std::any_of(outer.begin(), outer.end(), IsStar)) return true;
  return !inner.empty() && std::all_of(inner.begin(), inner.end(), [&](const Glob& i) {
    return std::any_of(outer.begin(), outer.end(), [&](const Glob& o) { return HoldsGlob(o, i); });
  });
}

bool IsScalar(const JsonLeaf& leaf) { return leaf.type != Type::kArray && leaf.type != Type::kObject; }

// The next character of a pointer as readers that ignore case see it. Beside the ASCII letters two others fold into them: the
// Kelvin sign (U+212A) into k, the long s (U+017F) into s.
char NextFolded(std::string_view* text) {
  if (text->starts_with("\xe2\x84\xaa")) {
    text->remove_prefix(3);
    return 'k';
  }
  if (text->starts_with("\xc5\xbf")) {
    text->remove_prefix(2);
    return 's';
  }
  const char c = text->front();
  text->remove_prefix(1);
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

bool SamePointer(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty())
    if (NextFolded(&a) != NextFolded(&b)) return false;
  return a.empty() && b.empty();
}

bool LiesBelow(std::string_view pointer, std::string_view parent) {
  while (!parent.empty()) {
    if (pointer.empty() || NextFolded(&pointer) != NextFolded(&parent)) return false;
  }
  return pointer.starts_with('/');
}

std::optional<double> NumberOf(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A number has many spellings, and a deny of one means them all.
bool DenyMatchesScalar(const std::vector<Glob>& values, const JsonLeaf& leaf) {
  if (!IsScalar(leaf)) return false;
  if (AnyGlob(values, leaf.text)) return true;
  if (leaf.type != Type::kNumber) return false;
  const auto number = NumberOf(leaf.text);
  return std::any_of(values.begin(), values.end(), [&](const Glob& g) {
    if (!g.is_literal()) return false;
    const auto listed = NumberOf(g.text());
    return listed && (!number || *listed == *number);
  });
}

bool AllowCoversLeaves(const std::vector<ValueMatcher>& matchers, const JsonLeaves& leaves) {
  return std::all_of(matchers.begin(), matchers.end(), [&](const ValueMatcher& matcher) {
    const JsonLeaf* found = nullptr;
    for (const JsonLeaf& leaf : leaves) {
      if (!SamePointer(leaf.pointer, matcher.key)) continue;
      if (found != nullptr) return false;
      found = &leaf;
    }
    return found != nullptr && found->pointer == matcher.key && IsScalar(*found) && AnyGlob(matcher.values, found->text);
  });
}

bool DenyCoversLeaves(const std::vector<ValueMatcher>& matchers, const JsonLeaves& leaves) {
  return std::all_of(matchers.begin(), matchers.end(), [&](const ValueMatcher& matcher) {
    return std::any_of(leaves.begin(), leaves.end(), [&](const JsonLeaf& leaf) {
      return (SamePointer(leaf.pointer, matcher.key) || LiesBelow(leaf.pointer, matcher.key)) &&
             DenyMatchesScalar(matcher.values, leaf);
    });
  });
}

bool DenyCoversItem(const Rule& rule, const GraphqlItem& item) {
  return item.kind == rule.graphql && (rule.fields.empty() || AnyGlob(rule.fields, item.field)) &&
         (rule.operation.empty() || AnyGlob(rule.operation, item.operation));
}

bool DenyCoversItem(const Rule& rule, const RpcItem& item) {
  if (!rule.rpc.Matches(item.method)) return false;
  if (!rule.tool.empty() && item.tool && !AnyGlob(rule.tool, *item.tool)) return false;
  return DenyCoversLeaves(rule.json, item.message);
}

bool DenyCoversItem(const Rule& rule, const RefUpdate& item) {
  return (RefChangesOf(rule) & item.change) != 0 && (rule.refs.empty() || AnyGlob(rule.refs, item.ref));
}

bool DenyCoversItem(const Rule& rule, LfsOperation item) { return AllowCoversItem(rule, item); }

template <class Item>
bool DenyCoversReading(const Rule& rule, const std::optional<BodyReading<Item>>& reading) {
  if (!reading || !reading->readable()) return true;
  return std::any_of(reading->items.begin(), reading->items.end(), [&](const Item& item) { return DenyCoversItem(rule, item); });
}

}  // namespace

bool AllowCoversItem(const Rule& rule, const GraphqlItem& item) {
  if (item.kind != rule.graphql || (!rule.fields.empty() && !AnyGlob(rule.fields, item.field))) return false;
  return rule.operation.empty() || (!item.operation.empty() && AnyGlob(rule.operation, item.operation));
}

bool AllowCoversItem(const Rule& rule, const RpcItem& item) {
  // Answers that a client posts have no method; those of MCP, pings and notifications belong to the session.
  if (HoldsMcpSession(rule) && (item.method.empty() || item.method == "ping" || item.method.starts_with("notifications/")))
    return true;
  if (item.method.empty() || !rule.rpc.Matches(item.method)) return false;
  if (!rule.tool.empty() && (!item.tool || !AnyGlob(rule.tool, *item.tool))) return false;
  return AllowCoversLeaves(rule.json, item.message);
}

bool AllowCoversItem(const Rule& rule, const RefUpdate& item) {
  return (RefChangesOf(rule) & item.change) != 0 && (rule.refs.empty() || AnyGlob(rule.refs, item.ref));
}

bool AllowCoversItem(const Rule& rule, const LfsOperation& item) {
  return (rule.verb == Verb::kGitReceivePack) == (item == LfsOperation::kUpload);
}

bool DenyCoversAllow(const Rule& deny, const Rule& allow, BodyKinds reading) {
  switch (reading) {
    case kBodyGraphql:
      return deny.graphql == allow.graphql && HoldsGlobs(deny.fields, allow.fields) &&
             HoldsGlobs(deny.operation, allow.operation);
    case kBodyRpc:
      if (!deny.json.empty()) return false;
      if (HoldsMcpSession(allow)) return IsStar(deny.rpc) && deny.tool.empty();
      return HoldsGlob(deny.rpc, allow.rpc) && HoldsGlobs(deny.tool, allow.tool);
    case kBodyPush:
      return (RefChangesOf(allow) & ~RefChangesOf(deny)) == 0 && HoldsGlobs(deny.refs, allow.refs);
    case kBodyLfs:
      return deny.verb == allow.verb;
    default:
      return std::all_of(deny.json.begin(), deny.json.end(), [&](const ValueMatcher& d) {
        return std::any_of(allow.json.begin(), allow.json.end(),
                           [&](const ValueMatcher& a) { return a.key == d.key && HoldsGlobs(d.values, a.values); });
      });
  }
}

bool AllowCoversJson(const Rule& rule, const JsonLeaves& leaves) { return AllowCoversLeaves(rule.json, leaves); }
bool DenyCoversJson(const Rule& rule, const JsonLeaves& leaves) { return DenyCoversLeaves(rule.json, leaves); }

bool DenyCoversBody(const Rule& rule, BodyKinds reading, const RequestBody& body) {
  switch (reading) {
    case kBodyGraphql:
      return DenyCoversReading(rule, body.graphql);
    case kBodyRpc:
      return DenyCoversReading(rule, body.rpc);
    case kBodyPush:
      return DenyCoversReading(rule, body.push);
    case kBodyLfs:
      return DenyCoversReading(rule, body.lfs);
    default:
      return !body.json || !body.json->readable() || DenyCoversLeaves(rule.json, body.json->items);
  }
}

}  // namespace sluice::policy
