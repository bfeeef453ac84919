#pragma once

// `sluice test FILE…`: unit tests of policies. A test file names its policy and asks questions of it:
//
//   version: 1
//   policy: policy.yaml
//   tests:
//     - allow: GET https://api.github.com/repos/octo/hello
//       by: /usr/bin/node
//     - deny: POST https://api.github.com/repos/octo/hello
//       reason: method

#include <optional>
#include <string>
#include <vector>

#include "app/lint.h"

namespace sluice::app {

struct TestOptions {
  std::vector<std::string> files;  ///< test files, or folders: *.test.yaml and *.test.yml below them
  OutputFormat format = OutputFormat::kText;
  std::optional<unsigned> min_coverage{};  ///< percent of each policy's rules that must decide some test
};

/// At most this many tests in a file.
inline constexpr size_t kMaxPolicyTests = 10'000;

/// 0: all passed. 1: a test failed, or too few rules are covered. 2: a file cannot be read.
[[nodiscard]] int RunTest(const TestOptions& options);

}  // namespace sluice::app
