#pragma once

// `sluice prove`: what a change of policy lets out. The comparing is prover/prove.h's; here are the files, the assertions, what
// was accepted before, and the report.

#include <cstdint>
#include <string>
#include <vector>

#include "app/report.h"

namespace sluice::app {

struct ProveOptions {
  /// BASE and HEAD, files or folders; with `base_git` or asked for assertions alone, any number of heads.
  std::vector<std::string> paths;
  std::string base_git;             ///< the revision that holds the bases
  std::vector<std::string> never;   ///< rules: nothing of them may be reached
  std::vector<std::string> always;  ///< rules: all of them must be reached
  std::string accept;               ///< file of accepted regions
  std::string manifest;             ///< file of the executables that exist
  std::string at;                   ///< when the interval of time begins; empty: now
  uint64_t limit = 0;               ///< steps; 0: the prover's own bound
  ReportFormat format = ReportFormat::kText;
};

/// 0: equal or narrowed, and every assertion holds. 1: widened, incomparable or an assertion broken. 2: bad input. 3: unknown.
[[nodiscard]] int RunProve(const ProveOptions& options);

}  // namespace sluice::app
