#pragma once

// `sluice lint FILE…`: loads each policy, without looking for its executables on this machine, and prints errors and remarks.

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::app {

enum class OutputFormat : uint8_t { kText, kJson };

struct LintOptions {
  std::vector<std::string> files;
  OutputFormat format = OutputFormat::kText;
};

/// 0: clean, or warnings only. 1: some finding is an error. 2: a file does not load. Text goes to stdout, load errors to stderr;
/// JSON is one object on stdout, whatever was found.
[[nodiscard]] int RunLint(const LintOptions& options);

}  // namespace sluice::app
