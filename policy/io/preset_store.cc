#include "policy/io/preset_store.h"

#include <fmt/format.h>

#include "policy/io/yaml.h"

namespace sluice::policy {

Result<Preset> LoadPreset(const PresetText& text) {
  const std::string file = fmt::format("preset:{}@{}", text.name, text.version);
  const auto node = ParseYaml(text.text, file);
  auto preset = node ? ReadPreset(*node) : Result<Preset>(std::unexpected(node.error()));
  if (!preset) preset.error().code = Code::kInternal;
  return preset;
}

namespace {

// Read once a process: a policy may use a preset as often as it has lines.
const Result<Preset>& Stored(const PresetText& text) {
  static const std::vector<Result<Preset>> presets = [] {
    std::vector<Result<Preset>> all;
    for (const PresetText& each : PresetTexts()) all.push_back(LoadPreset(each));
    return all;
  }();
  return presets[static_cast<size_t>(&text - PresetTexts().data())];
}

}  // namespace

Result<std::vector<Rule>> RulesOfPreset(const PresetUse& use, VersionNeed need) {
  const auto text = FindPreset(use, need);
  if (!text) return std::unexpected(text.error());
  const auto& preset = Stored(**text);
  if (!preset) return std::unexpected(preset.error());
  return ExpandPreset(*preset, use);
}

}  // namespace sluice::policy
