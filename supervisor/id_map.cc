#include "supervisor/id_map.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace sluice::supervisor {
namespace {

// Takes the next blank-separated number off the front of `line`.
std::optional<uint32_t> TakeNumber(std::string_view& line) {
  const size_t start = line.find_first_not_of(" \t");
  if (start == std::string_view::npos) return std::nullopt;
  line.remove_prefix(start);
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc{}) return std::nullopt;
  line.remove_prefix(static_cast<size_t>(end - line.data()));
  if (!line.empty() && line.front() != ' ' && line.front() != '\t') return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::vector<IdRange>> ParseIdMap(std::string_view text) {
  std::vector<IdRange> ranges;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() == text.size() ? line.size() : line.size() + 1);
    std::array<uint32_t, 3> numbers{};
    for (uint32_t& number : numbers) {
      const auto taken = TakeNumber(line);
      if (!taken) return std::nullopt;
      number = *taken;
    }
    if (line.find_first_not_of(" \t") != std::string_view::npos || numbers[2] == 0 || ranges.size() == kMaxIdRanges)
      return std::nullopt;
    ranges.push_back({numbers[0], numbers[2]});
  }
  if (ranges.empty()) return std::nullopt;
  return ranges;
}

std::string FormatIdentityMap(const std::vector<IdRange>& ranges) {
  std::string text;
  for (const IdRange& range : ranges) text += fmt::format("{} {} {}\n", range.first, range.first, range.count);
  return text;
}

}  // namespace sluice::supervisor
