#pragma once

// `sluice preset list` and `sluice preset show NAME[@V]`: what ships, and the plain rules it stands for.

#include <string>
#include <vector>

#include "app/lint.h"

namespace sluice::app {

struct PresetShowOptions {
  std::string name;               ///< "npm" for the newest, or "npm@1"
  std::vector<std::string> sets;  ///< "host=registry.corp.example"; places without a value are shown as ${host}
  OutputFormat format = OutputFormat::kText;
};

/// Both: 0, or 2 for a name or value that is not understood, said on stderr.
[[nodiscard]] int RunPresetList(OutputFormat format);
[[nodiscard]] int RunPresetShow(const PresetShowOptions& options);

}  // namespace sluice::app
