#include "app/preset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/file.h"
#include "app/standard_output.h"
#include "base/log.h"
#include "policy/io/load.h"
#include "policy/io/preset_store.h"

namespace sluice::app {
namespace {

using nlohmann::json;
using policy::Preset;
using policy::PresetParameter;

int Refuse(const Error& error) {
  PrintError(policy::RenderError(error, StderrHasColor()) + "\n");
  return 2;
}

void PrintJson(const json& value) { fmt::print("{}\n", value.dump(2, ' ', false, json::error_handler_t::replace)); }

std::string Needed(const Preset& preset) {
  std::string text;
  for (const PresetParameter& parameter : preset.parameters)
    if (parameter.required()) text += fmt::format("{}{}: …", text.empty() ? "" : ", ", parameter.name);
  return text;
}

/// What is shown of one preset: its rules as written, with the places filled that have a value.
struct ShownRule {
  uint32_t line = 0;
  std::vector<std::string> lines{};
  std::string without{};  ///< the optional parameter that is not given, so that the rule is left out
};
struct Shown {
  Preset preset;
  std::vector<ShownRule> rules{};
};

ShownRule ShowRule(const Preset& preset, size_t index, const std::vector<std::string>& source,
                   const policy::PresetValues& values) {
  ShownRule rule;
  rule.line = preset.rules[index].span.line;
  const size_t end = index + 1 < preset.rules.size() ? preset.rules[index + 1].span.line : source.size() + 1;
  for (size_t at = rule.line; at < end && source[at - 1].starts_with(' '); ++at) {
    bool open = false;
    rule.lines.push_back(policy::FillPlaces(source[at - 1], values, &open));
    for (const PresetParameter& parameter : preset.parameters)
      if (parameter.optional && rule.lines.back().find("${" + parameter.name + "}") != std::string::npos)
        rule.without = parameter.name;
  }
  return rule;
}

Result<Shown> Find(const PresetShowOptions& options) {
  std::string text = options.name;
  for (const std::string& set : options.sets) text += (&set == &options.sets.front() ? ":" : ",") + set;
  // Places in a text that nobody wrote: the message names what is wrong.
  const auto unplaced = [](Error error) {
    error.span.reset();
    return std::unexpected(std::move(error));
  };
  const auto use = policy::ParsePresetUse(text, SourceSpan{"preset", 1, 1, 0});
  if (!use) return unplaced(use.error());
  const auto found = policy::FindPreset(*use, policy::VersionNeed::kNewestByDefault);
  if (!found) return unplaced(found.error());
  auto preset = policy::LoadPreset(**found);
  if (!preset) return std::unexpected(preset.error());
  // Without a value, not even the defaults are put in: a reader sees where they would stand.
  policy::PresetValues values;
  if (!options.sets.empty()) {
    auto bound = policy::BindParameters(*preset, *use, policy::Missing::kLeftOpen);
    if (!bound) return unplaced(bound.error());
    values = std::move(*bound);
  }
  Shown shown{std::move(*preset)};
  const std::vector<std::string> source = SplitLines((*found)->text);
  for (size_t i = 0; i < shown.preset.rules.size(); ++i) shown.rules.push_back(ShowRule(shown.preset, i, source, values));
  return shown;
}

std::string Standing(const PresetParameter& parameter) {
  if (parameter.required()) return "required";
  if (!parameter.fallback) return "optional";
  const bool root = parameter.type == policy::ParameterType::kPath && parameter.fallback->empty();
  return root ? "/" : *parameter.fallback;
}

json ParameterJson(const PresetParameter& parameter) {
  json out{{"name", parameter.name},
           {"type", policy::ParameterTypeText(parameter.type)},
           {"required", parameter.required()},
           {"about", parameter.about}};
  if (parameter.fallback) out["default"] = Standing(parameter);
  return out;
}

void PrintShown(const Shown& shown, bool filled) {
  const Preset& preset = shown.preset;
  fmt::print("{}: {}\n\nparameters\n", preset.Id(), preset.about);
  for (const auto* list : {&preset.parameters, &policy::CommonParameters()})
    for (const PresetParameter& parameter : *list)
      fmt::print("  {:<12} {:<28} {}\n", parameter.name, Standing(parameter), parameter.about);
  fmt::print("\nrules\n");
  for (const ShownRule& rule : shown.rules) {
    if (!rule.without.empty()) fmt::print("  # only with {}:\n", rule.without);
    for (const std::string& line : rule.lines) fmt::print("{}{}\n", filled && !rule.without.empty() ? "  #" : "", line);
  }
  fmt::print("\nnotes\n");
  for (const std::string& line : SplitLines(preset.notes)) fmt::print("  {}\n", line);
  const std::string needed = Needed(preset);
  fmt::print("\nuse it\n  presets:\n    - {}{}\n", preset.Id(), needed.empty() ? "" : fmt::format(": {{ {} }}", needed));
}

void PrintShownJson(const Shown& shown) {
  const Preset& preset = shown.preset;
  json out{{"name", preset.name},   {"version", preset.version},   {"about", preset.about},
           {"notes", preset.notes}, {"parameters", json::array()}, {"rules", json::array()}};
  for (const auto* list : {&preset.parameters, &policy::CommonParameters()})
    for (const PresetParameter& parameter : *list) out["parameters"].push_back(ParameterJson(parameter));
  for (const ShownRule& rule : shown.rules) {
    std::string text;
    for (const std::string& line : rule.lines) text += line.substr(std::min<size_t>(4, line.size())) + "\n";
    json entry{{"line", rule.line}, {"yaml", text}};
    if (!rule.without.empty()) entry["only_with"] = rule.without;
    out["rules"].push_back(std::move(entry));
  }
  PrintJson(out);
}

}  // namespace

int RunPresetList(OutputFormat format) {
  json list = json::array();
  for (const policy::PresetText& text : policy::PresetTexts()) {
    const auto preset = policy::LoadPreset(text);
    if (!preset) return Refuse(preset.error());
    if (format == OutputFormat::kText) {
      fmt::print("{:<20} {}\n", preset->Id(), preset->about);
      continue;
    }
    json entry{{"name", preset->name}, {"version", preset->version}, {"about", preset->about}, {"parameters", json::array()}};
    for (const PresetParameter& parameter : preset->parameters) entry["parameters"].push_back(ParameterJson(parameter));
    list.push_back(std::move(entry));
  }
  if (format == OutputFormat::kJson) PrintJson({{"presets", std::move(list)}});
  return 0;
}

int RunPresetShow(const PresetShowOptions& options) {
  const auto shown = Find(options);
  if (!shown) return Refuse(shown.error());
  if (options.format == OutputFormat::kJson) {
    PrintShownJson(*shown);
  } else {
    PrintShown(*shown, !options.sets.empty());
  }
  return 0;
}

}  // namespace sluice::app
