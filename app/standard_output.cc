#include "app/standard_output.h"

#include <fcntl.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/unique_fd.h"

namespace sluice::app {

void LetClosedOutputFail() {
  const UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (nothing) (void)::dup2(nothing.get(), STDOUT_FILENO);
}

Result<void> FlushStandardOutput() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  // stdio keeps no errno of a write that failed earlier: the end of a line that was lost finds it again.
  const int error = ::write(STDOUT_FILENO, "\n", 1) < 0 ? errno : EIO;
  if (error == EPIPE) return {};
  ::__fpurge(stdout);
  std::clearerr(stdout);
  return Fail(Code::kInvalid, SystemError("cannot write to standard output", error).message);
}

void PrintError(std::string_view text) { (void)std::fwrite(text.data(), 1, text.size(), stderr); }

}  // namespace sluice::app
