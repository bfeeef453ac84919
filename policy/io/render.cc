// An error for a person: place, sentence, the line and a caret.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/printable.h"
#include "policy/io/load.h"

namespace sluice::policy {
namespace {

constexpr size_t kMaxShown = 160;  // bytes of the line that are shown

std::string LineOf(const SourceSpan& span) {
  std::ifstream file(span.file, std::ios::binary);
  std::string line;
  for (uint32_t i = 0; i < span.line; ++i)
    if (!std::getline(file, line)) return "";
  return line;
}

size_t Characters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

// Nothing of the file, its name or what is said of it may move the terminal's cursor.
std::string RenderError(const Error& error, bool color) {
  const char* red = color ? "\x1b[31m" : "";
  const char* bold = color ? "\x1b[1m" : "";
  const char* off = color ? "\x1b[0m" : "";
  if (!error.span || error.span->line == 0) return fmt::format("{}error:{} {}", red, off, Printable(error.message));
  const SourceSpan& span = *error.span;
  std::string text = fmt::format("{}{}:{}:{}:{} {}error:{} {}", bold, Printable(span.file), span.line, span.column, off, red, off,
                                 Printable(error.message));
  const std::string line = LineOf(span);
  const size_t column = span.column == 0 ? 0 : span.column - 1;
  if (line.empty() || column > line.size()) return text;
  // A long line is shown from a little before the place.
  const size_t from = column > kMaxShown / 2 ? column - kMaxShown / 2 : 0;
  const std::string_view shown = std::string_view(line).substr(from, kMaxShown);
  const std::string_view marked =
      std::string_view(line).substr(column, std::min<size_t>(span.length, from + shown.size() - column));
  const std::string number = fmt::format("{}", span.line);
  text += fmt::format("\n {} | {}\n {} | {}{}{}{}", number, Printable(shown), std::string(number.size(), ' '),
                      std::string(Characters(std::string_view(line).substr(from, column - from)), ' '), red,
                      std::string(std::max<size_t>(Characters(marked), 1), '^'), off);
  return text;
}

}  // namespace sluice::policy
