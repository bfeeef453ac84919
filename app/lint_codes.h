#pragma once

// The codes that `sluice lint` uses. A code never changes its meaning; docs/lint.md has a line for each.

#include <span>

#include "app/report.h"

namespace sluice::app {

[[nodiscard]] std::span<const CodeInfo> LintCodes();

}  // namespace sluice::app
