#pragma once

// The operator's log on standard error: one line per call, prefixed "sluice: ". Not for decisions (those are audit
// records). Any thread; never waits for who reads it (stderr_lines.h), so that the program must flush before it ends.

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

namespace sluice {

enum class LogLevel : uint8_t { kError, kWarn, kInfo, kDebug };

/// Set once at start; kInfo until then.
void SetLogLevel(LogLevel level);
[[nodiscard]] LogLevel GetLogLevel();

/// Whether standard error is a terminal that is not TERM=dumb, and NO_COLOR is unset or empty.
[[nodiscard]] bool StderrHasColor();
/// The same of standard output.
[[nodiscard]] bool StdoutHasColor();

/// What is invisible or would move the cursor is replaced by '?', line feeds and tabs excepted.
void LogLine(LogLevel level, std::string_view text);

template <class... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void LogWarn(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kWarn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  if (GetLogLevel() < LogLevel::kDebug) return;
  LogLine(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sluice
