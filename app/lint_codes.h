#pragma once

// The codes that `sluice lint` and `sluice prove` use. A code never changes its meaning; docs/lint.md has a line for each.

#include <span>

#include "app/report.h"

namespace sluice::app {

[[nodiscard]] std::span<const CodeInfo> LintCodes();
[[nodiscard]] std::span<const CodeInfo> ProveCodes();

}  // namespace sluice::app
