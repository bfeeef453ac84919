#pragma once

// The presets that ship with the program, read from their texts.

#include "policy/preset.h"

namespace sluice::policy {

/// kInternal where a shipped text is not what ReadPreset takes: a test reads them all.
[[nodiscard]] Result<Preset> LoadPreset(const PresetText& text);

/// The rules of a use of a shipped preset.
[[nodiscard]] Result<std::vector<Rule>> RulesOfPreset(const PresetUse& use, VersionNeed need);

}  // namespace sluice::policy
