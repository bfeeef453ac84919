#pragma once

// Standard output, as the commands that print use it: what could not be printed is an error, told once, and not an exit code 0.
// They print through stdio and need not look; main() flushes for all of them.

#include <string_view>

#include "base/result.h"

namespace sluice::app {

/// For a program started without a standard output, whose descriptor then leads nowhere: from here on writing to it fails.
void LetClosedOutputFail();

/// Writes what stdio holds back. A reader that is gone, as that of `| head`, is no error; anything that was lost before is one.
[[nodiscard]] Result<void> FlushStandardOutput();

/// To standard error, at once. Where that takes nothing, the exit code alone says it.
void PrintError(std::string_view text);

}  // namespace sluice::app
