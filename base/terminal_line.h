#pragma once

// Line ends for standard error. While the workload has the terminal it is raw, where a line feed alone goes down and not back.

#include <string>

namespace sluice {

/// `lines` with each line feed as carriage return and line feed, where standard error is a terminal; else as it is.
[[nodiscard]] std::string ForStderr(std::string lines);

}  // namespace sluice
