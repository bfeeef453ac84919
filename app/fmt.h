#pragma once

// `sluice fmt`: policy files in their canonical form.

#include <string>
#include <vector>

namespace sluice::app {

enum class FormatAction : unsigned char {
  kWrite,  ///< change the files
  kCheck,  ///< name those that would change
  kPrint,  ///< the result to standard output
};

struct FmtOptions {
  std::vector<std::string> files;  ///< files, folders, or "-" for standard input, which is printed
  FormatAction action = FormatAction::kWrite;
};

/// 0: done, or nothing to change. 1: --check, and some file would change. 2: a file is no policy; it stays as it is.
[[nodiscard]] int RunFmt(const FmtOptions& options);

}  // namespace sluice::app
