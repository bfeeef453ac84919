#include "policy/preset.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "policy/rule_keys.h"
#include "policy/rule_text.h"

namespace sluice::policy {
namespace {

constexpr std::string_view kPlace = "${";
constexpr size_t kMaxValues = 1024;  // of `ip` or `by`

std::unexpected<Error> At(const SourceSpan& span, std::string message) {
  return std::unexpected(Error{Code::kInvalid, std::move(message), 0, span});
}

Node TextNode(std::string_view text, SourceSpan span) {
  Node node;
  node.style = Node::Style::kQuoted;
  node.text = text;
  span.length = static_cast<uint32_t>(text.size());
  node.span = std::move(span);
  return node;
}

Result<void> ReadName(std::string_view text, const SourceSpan& span, PresetUse* use) {
  const size_t at = text.find('@');
  use->name = text.substr(0, at);
  use->span = span;
  if (at == std::string_view::npos) return {};
  const std::string_view digits = text.substr(at + 1);
  uint32_t version = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), version);
  if (error != std::errc{} || end != digits.data() + digits.size() || version == 0 || digits.starts_with('0'))
    return At(span, fmt::format("`{}` is not a version; write `{}@1`", digits, use->name));
  use->version = version;
  return {};
}

std::string Place(std::string_view name) { return fmt::format("{}{}}}", kPlace, name); }

// A copy with the places filled.
Node Filled(Node node, const PresetValues& values, bool* open) {
  if (node.text.find(kPlace) != std::string::npos) {
    node.text = FillPlaces(node.text, values, open);
    node.style = Node::Style::kQuoted;  // what was put in is a text, whatever it looks like
    node.verbatim = false;
  }
  for (Node& item : node.items) item = Filled(std::move(item), values, open);
  for (Member& member : node.members) member.value = Filled(std::move(member.value), values, open);
  return node;
}

const PresetParameter* FindParameter(const Preset& preset, std::string_view name) {
  for (const auto* list : {&preset.parameters, &CommonParameters()})
    for (const PresetParameter& parameter : *list)
      if (parameter.name == name) return &parameter;
  return nullptr;
}

const Node* FindValue(const PresetUse& use, std::string_view name) {
  for (const auto& [key, value] : use.values)
    if (key.text == name) return &value;
  return nullptr;
}

// What looks like a number is a host, an address or a prefix all the same; other texts are quoted where they are ambiguous.
Result<std::string> ReadValue(const PresetParameter& parameter, const Node& node) {
  if (node.kind == Node::Kind::kSequence && node.items.size() > 1)
    return NodeError(node, fmt::format("`{}` takes one value, and {} are given", parameter.name, node.items.size()));
  const bool numeric = parameter.type == ParameterType::kHost || parameter.type == ParameterType::kPrefixes;
  auto text = numeric && node.kind == Node::Kind::kScalar ? Result<std::string>(node.text) : ReadText(node, parameter.name);
  if (!text) return text;
  auto value = CheckParameter(parameter.type, *text);
  if (value) return value;
  Error error = std::move(value.error());
  error.message = fmt::format("`{}`: {}", parameter.name, error.message);
  if (parameter.fallback && parameter.fallback->find('*') != std::string::npos && text->find('*') != std::string::npos)
    error.message += fmt::format(", or leave `{}` out for every one", parameter.name);
  return MovedInto(node, std::move(error));
}

Result<std::vector<std::string>> ReadValues(const PresetUse& use, std::string_view name) {
  std::vector<std::string> values;
  const auto& common = CommonParameters();
  const auto parameter = std::find_if(common.begin(), common.end(), [&](const auto& p) { return p.name == name; });
  const Node* node = FindValue(use, name);
  if (node == nullptr || parameter == common.end()) return values;
  const bool list = node->kind == Node::Kind::kSequence;
  if (list && node->items.empty()) return NodeError(*node, fmt::format("`{}` is an empty list; leave it out or fill it", name));
  if (node->items.size() > kMaxValues) return NodeError(*node, fmt::format("`{}` has more than {} entries", name, kMaxValues));
  for (size_t i = 0; i < (list ? node->items.size() : 1); ++i) {
    auto value = ReadValue(*parameter, list ? node->items[i] : *node);
    if (!value) return std::unexpected(value.error());
    values.push_back(std::move(*value));
  }
  return values;
}

Result<void> CheckNames(const Preset& preset, const PresetUse& use) {
  for (const auto& [key, value] : use.values) {
    if (FindParameter(preset, key.text) != nullptr) continue;
    std::vector<std::string_view> names;
    for (const auto* list : {&preset.parameters, &CommonParameters()})
      for (const PresetParameter& parameter : *list) names.push_back(parameter.name);
    std::string hint = DidYouMean(key.text, names);
    if (hint.empty()) {
      for (const std::string_view name : names) hint += fmt::format("{}`{}`", hint.empty() ? "; it takes " : ", ", name);
    }
    return NodeError(key, fmt::format("`{}` has no parameter `{}`{}", preset.Id(), key.text, hint));
  }
  return {};
}

// `ip` and `by` of the use, on every allow.
Result<void> Narrow(const PresetUse& use, Rule* rule) {
  if (!rule->allow) return {};
  const auto prefixes = ReadValues(use, "ip");
  if (!prefixes) return std::unexpected(prefixes.error());
  for (const std::string& text : *prefixes) rule->ip.push_back(*Cidr::Parse(text));
  const auto executables = ReadValues(use, "by");
  if (!executables) return std::unexpected(executables.error());
  for (const std::string& text : *executables) {
    auto executable = ParseExecutable(text);
    if (!executable) return std::unexpected(executable.error());
    rule->by.push_back(std::move(*executable));
  }
  return {};
}

}  // namespace

Result<PresetUse> ReadPresetUse(const Node& item) {
  PresetUse use;
  constexpr std::string_view kForm = "an entry of `presets` is `NAME@VERSION: { host: … }`";
  if (item.kind == Node::Kind::kScalar) {
    const auto text = ReadText(item, "presets");
    if (!text) return std::unexpected(text.error());
    if (auto named = ReadName(*text, item.span, &use); !named) return std::unexpected(named.error());
    return use;
  }
  if (item.kind != Node::Kind::kMapping || item.members.empty()) return NodeError(item, std::string(kForm));
  if (item.members.size() > 1)
    return NodeError(item.members[1].key, "one preset an entry; its parameters stand in a map after its name");
  const auto& [key, value] = item.members.front();
  if (auto named = ReadName(key.text, key.span, &use); !named) return std::unexpected(named.error());
  if (value.kind != Node::Kind::kMapping) return NodeError(value, std::string(kForm));
  for (const auto& [name, inner] : value.members) use.values.emplace_back(name, inner);
  return use;
}

Result<PresetUse> ParsePresetUse(std::string_view text, const SourceSpan& where) {
  PresetUse use;
  const auto span = [&](size_t at, size_t length) {
    return SourceSpan{where.file, where.line, static_cast<uint32_t>(at + 1), static_cast<uint32_t>(std::max<size_t>(length, 1))};
  };
  const size_t colon = std::min(text.find(':'), text.size());
  if (auto named = ReadName(text.substr(0, colon), span(0, colon), &use); !named) return std::unexpected(named.error());
  for (size_t at = colon + 1; at <= text.size() && colon < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view pair = text.substr(at, comma - at);
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0)
      return At(span(at, pair.size()), "parameters are written `NAME=VALUE`, with commas between");
    const Node key = TextNode(pair.substr(0, equals), span(at, equals));
    Node value = TextNode(pair.substr(equals + 1), span(at + equals + 1, pair.size() - equals - 1));
    const auto earlier =
        std::find_if(use.values.begin(), use.values.end(), [&](const auto& v) { return v.first.text == key.text; });
    if (earlier == use.values.end()) {
      use.values.emplace_back(key, std::move(value));
    } else {
      Node& list = earlier->second;
      if (list.kind != Node::Kind::kSequence) {
        Node first = std::move(list);
        list = Node{};
        list.kind = Node::Kind::kSequence;
        list.span = first.span;
        list.items.push_back(std::move(first));
      }
      list.items.push_back(std::move(value));
    }
    at = comma + 1;
  }
  return use;
}

Result<const PresetText*> FindPreset(const PresetUse& use, VersionNeed need) {
  const PresetText* newest = nullptr;
  std::vector<std::string_view> names;
  for (const PresetText& text : PresetTexts()) {
    names.push_back(text.name);
    if (text.name != use.name) continue;
    newest = &text;
    if (use.version == text.version) return newest;
  }
  if (newest == nullptr) {
    std::string hint = DidYouMean(use.name, names);
    if (hint.empty()) hint = "; `sluice preset list` names them";
    return At(use.span, fmt::format("unknown preset `{}`{}", use.name, hint));
  }
  if (use.version)
    return At(use.span, fmt::format("there is no `{0}@{1}`; the newest is `{0}@{2}`", use.name, *use.version, newest->version));
  if (need == VersionNeed::kWritten)
    return At(use.span, fmt::format("`{0}` needs a version; the newest is `{0}@{1}`", use.name, newest->version));
  return newest;
}

std::string FillPlaces(std::string_view text, const PresetValues& values, bool* open) {
  std::string out;
  while (!text.empty()) {
    const size_t begin = std::min(text.find(kPlace), text.size());
    out += text.substr(0, begin);
    text.remove_prefix(begin);
    const size_t end = text.find('}');
    if (text.empty() || end == std::string_view::npos) break;
    const std::string_view name = text.substr(kPlace.size(), end - kPlace.size());
    const auto value = std::find_if(values.begin(), values.end(), [&](const auto& v) { return v.first == name; });
    out += value == values.end() ? Place(name) : value->second;
    *open |= value == values.end();
    text.remove_prefix(end + 1);
  }
  out += text;
  return out;
}

Result<PresetValues> BindParameters(const Preset& preset, const PresetUse& use, Missing missing) {
  if (auto named = CheckNames(preset, use); !named) return std::unexpected(named.error());
  PresetValues values;
  for (const PresetParameter& parameter : preset.parameters) {
    if (const Node* given = FindValue(use, parameter.name)) {
      auto value = ReadValue(parameter, *given);
      if (!value) return std::unexpected(value.error());
      values.emplace_back(parameter.name, std::move(*value));
    } else if (parameter.fallback) {
      bool open = false;
      std::string value = FillPlaces(*parameter.fallback, values, &open);
      if (!open) {
        values.emplace_back(parameter.name, std::move(value));
      } else if (missing == Missing::kRefused) {
        // Its rules would be left out without a word.
        return std::unexpected(
            Error{Code::kInternal,
                  fmt::format("`{}`: the default of `{}` names a parameter that is not set", preset.Id(), parameter.name), 0,
                  use.span});
      }
    } else if (parameter.required() && missing == Missing::kRefused) {
      return At(use.span, fmt::format("`{}` needs `{}`: {}", preset.Id(), parameter.name, parameter.about));
    }
  }
  return values;
}

Result<std::vector<Rule>> ExpandPreset(const Preset& preset, const PresetUse& use) {
  const auto values = BindParameters(preset, use, Missing::kRefused);
  if (!values) return std::unexpected(values.error());
  std::vector<Rule> rules;
  for (const Node& entry : preset.rules) {
    bool open = false;
    const Node filled = Filled(entry, *values, &open);
    if (open) continue;  // it names an optional parameter that is not given
    auto rule = ReadRule(filled, preset.Id());
    if (!rule) return At(use.span, fmt::format("`{}` with these values: {}", preset.Id(), rule.error().message));
    if (auto narrowed = Narrow(use, &*rule); !narrowed) return std::unexpected(narrowed.error());
    rule->origin = std::move(rule->span);
    rule->span = use.span;
    rule->id = fmt::format("{}/{}:{}", use.id, preset.Id(), rule->origin.line);
    rules.push_back(std::move(*rule));
  }
  return rules;
}

}  // namespace sluice::policy
