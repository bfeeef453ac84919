// A shipped preset's own text: what it is for, its parameters, its rules with places in them.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "policy/preset.h"
#include "policy/rule_keys.h"

namespace sluice::policy {
namespace {

constexpr ParameterType kTypes[] = {ParameterType::kHost, ParameterType::kPath,  ParameterType::kSegments,
                                    ParameterType::kName, ParameterType::kLabel, ParameterType::kScheme};

Result<void> ReadParameterKey(const Node& key, const Node& value, PresetParameter* parameter) {
  if (key.text == "optional") {
    if (value.text != "true") return NodeError(value, "`optional` is true or is not there");
    parameter->optional = true;
    return {};
  }
  auto text = ReadText(value, key.text);
  if (!text) return std::unexpected(text.error());
  if (key.text == "about") {
    parameter->about = std::move(*text);
    return {};
  }
  if (key.text == "default") {
    parameter->fallback = std::move(*text);
    return {};
  }
  if (key.text != "type") return NodeError(key, fmt::format("unknown key `{}` of a parameter", key.text));
  const auto type =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](ParameterType known) { return ParameterTypeText(known) == *text; });
  if (type == std::end(kTypes)) return NodeError(value, fmt::format("unknown type `{}`", *text));
  parameter->type = *type;
  return {};
}

Result<void> ReadParameters(const Node& node, std::vector<PresetParameter>* parameters) {
  if (node.kind != Node::Kind::kMapping) return NodeError(node, "`parameters` is a map");
  for (const auto& [name, value] : node.members) {
    if (value.kind != Node::Kind::kMapping) return NodeError(value, "a parameter is a map");
    PresetParameter parameter;
    parameter.name = name.text;
    for (const auto& [key, inner] : value.members)
      if (auto read = ReadParameterKey(key, inner, &parameter); !read) return read;
    if (parameter.about.empty()) return NodeError(name, "a parameter needs `about`");
    if (parameter.fallback && parameter.optional) return NodeError(name, "a parameter has a default or is optional");
    // "/" is how a person writes the root; in a rule it is nothing.
    if (parameter.type == ParameterType::kPath && parameter.fallback == "/") parameter.fallback = "";
    parameters->push_back(std::move(parameter));
  }
  return {};
}

Result<void> ReadId(const Node& value, Preset* preset) {
  const size_t at = value.text.find('@');
  const char* end = value.text.data() + value.text.size();
  if (at == std::string::npos || at == 0 || std::from_chars(value.text.data() + at + 1, end, preset->version).ptr != end ||
      preset->version == 0)
    return NodeError(value, "`preset` is NAME@VERSION");
  preset->name = value.text.substr(0, at);
  return {};
}

}  // namespace

std::string Preset::Id() const { return fmt::format("{}@{}", name, version); }

const std::vector<PresetParameter>& CommonParameters() {
  static const std::vector<PresetParameter> parameters{
      {"ip", ParameterType::kPrefixes, {}, true, "prefixes in which the address dialled must lie; opens private ones"},
      {"by", ParameterType::kExecutables, {}, true, "the executables that may make these requests"}};
  return parameters;
}

Result<Preset> ReadPreset(const Node& root) {
  if (root.kind != Node::Kind::kMapping) return NodeError(root, "a preset is a map");
  Preset preset;
  for (const auto& [key, value] : root.members) {
    Result<void> read{};
    if (key.text == "preset") {
      read = ReadId(value, &preset);
    } else if (key.text == "about" || key.text == "notes") {
      (key.text == "about" ? preset.about : preset.notes) = value.text;
    } else if (key.text == "parameters") {
      read = ReadParameters(value, &preset.parameters);
    } else if (key.text == "rules") {
      preset.rules = value.items;
    } else if (key.text != "version") {
      return NodeError(key, fmt::format("unknown key `{}` of a preset", key.text));
    }
    if (!read) return std::unexpected(read.error());
  }
  if (preset.version == 0 || preset.about.empty() || preset.rules.empty())
    return NodeError(root, "a preset has `preset`, `about` and `rules`");
  return preset;
}

}  // namespace sluice::policy
