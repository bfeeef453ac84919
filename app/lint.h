#pragma once

// `sluice lint FILE…`: loads each policy, without looking for its executables on this machine, and prints errors and remarks.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/report.h"

namespace sluice::app {

/// Of commands that answer one question.
enum class OutputFormat : uint8_t { kText, kJson };

struct LintOptions {
  std::vector<std::string> files;  ///< policies, or folders of them
  ReportFormat format = ReportFormat::kText;
  std::optional<Severity> fail_on = Severity::kError;  ///< nothing: remarks never fail
};

/// 0: clean, or nothing as severe as `fail_on`. 1: some remark is. 2: a file does not load. Text goes to stdout, load errors to
/// stderr; the other formats are one document on stdout, whatever was found.
[[nodiscard]] int RunLint(const LintOptions& options);

}  // namespace sluice::app
