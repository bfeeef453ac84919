#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/printable.h"
#include "base/stderr_lines.h"

namespace sluice {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};

std::string_view Tag(LogLevel level, bool color) {
  switch (level) {
    case LogLevel::kError:
      return color ? "\x1b[31merror:\x1b[0m " : "error: ";
    case LogLevel::kWarn:
      return color ? "\x1b[33mwarning:\x1b[0m " : "warning: ";
    case LogLevel::kDebug:
      return "debug: ";
    case LogLevel::kInfo:
      break;
  }
  return "";
}

bool WantsColor(int descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  if (terminal != nullptr && std::string_view(terminal) == "dumb") return false;
  return (no_color == nullptr || *no_color == '\0') && isatty(descriptor) == 1;
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }
LogLevel GetLogLevel() { return g_level.load(std::memory_order_relaxed); }

bool StderrHasColor() {
  static const bool color = WantsColor(LinesDescriptor());
  return color;
}

bool StdoutHasColor() {
  static const bool color = WantsColor(STDOUT_FILENO);
  return color;
}

void LogLine(LogLevel level, std::string_view text) {
  if (level > GetLogLevel()) return;
  std::string line = "sluice: ";
  line += Tag(level, StderrHasColor());
  line += Printable(text, "\n\t");
  line += '\n';
  QueueStderr(LineKind::kLog, std::move(line));
}

}  // namespace sluice
