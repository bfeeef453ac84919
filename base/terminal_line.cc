#include "base/terminal_line.h"

#include <unistd.h>

namespace sluice {

std::string ForStderr(std::string lines) {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  if (!terminal) return lines;
  for (size_t at = lines.find('\n'); at != std::string::npos; at = lines.find('\n', at + 2)) lines.insert(at, 1, '\r');
  return lines;
}

}  // namespace sluice
