#pragma once

// `sluice import [--from KIND] FILE`: another tool's policy as a native one, with a remark at each entry that does not mean what
// a reader may think.

#include <cstdint>
#include <string>

#include "app/lint.h"

namespace sluice::app {

enum class Verbosity : uint8_t { kQuiet, kVerbose };

struct ImportOptions {
  std::string file;  ///< "-" is standard input
  std::string from;  ///< empty: told by the shape
  std::string only;  ///< the service or job of a file that holds several
  OutputFormat format = OutputFormat::kText;
  Verbosity verbosity = Verbosity::kQuiet;  ///< kVerbose: the remarks go to standard error too
};

/// 0: printed. 2: the file, the kind or something in the file cannot be taken; the message has its place.
[[nodiscard]] int RunImport(const ImportOptions& options);

}  // namespace sluice::app
