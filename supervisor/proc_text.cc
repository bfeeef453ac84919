#include "supervisor/proc_text.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace sluice::supervisor {
namespace {

std::optional<std::string_view> Line(std::string_view text, std::string_view key) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ':') {
      std::string_view value = line.substr(key.size() + 1);
      while (!value.empty() && (value.front() == '\t' || value.front() == ' ')) value.remove_prefix(1);
      return value;
    }
    at = end + 1;
  }
  return std::nullopt;
}

template <class T>
bool Number(std::string_view text, T* out, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out, base);
  return error == std::errc{} && (end == text.data() + text.size() || *end == '\t' || *end == ' ');
}

template <class T>
bool NumberOf(std::string_view text, std::string_view key, T* out, int base = 10) {
  const auto value = Line(text, key);
  return value && Number(*value, out, base);
}

// Word `index` of a line of tab-separated words; the last one for an index past the end.
std::string_view Word(std::string_view line, size_t index) {
  for (size_t i = 0; i < index; ++i) {
    const size_t tab = line.find('\t');
    if (tab == std::string_view::npos) break;
    line.remove_prefix(tab + 1);
  }
  return line.substr(0, line.find('\t'));
}

// The kernel writes blanks and backslashes of a path as three octal digits.
std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    uint8_t byte = 0;
    const bool escaped = text[i] == '\\' && i + 3 < text.size() && Number(text.substr(i + 1, 3), &byte, 8);
    out += escaped ? static_cast<char>(byte) : text[i];
    if (escaped) i += 3;
  }
  return out;
}

}  // namespace

std::optional<ProcStatus> ParseProcStatus(std::string_view text) {
  ProcStatus out;
  const auto name = Line(text, "Name");
  const auto uids = Line(text, "Uid");
  if (!name || !uids) return std::nullopt;
  out.name = *name;
  uint64_t shared = 0;
  if (!NumberOf(text, "Tgid", &out.thread_group) || !NumberOf(text, "PPid", &out.parent) || !Number(Word(*uids, 1), &out.uid) ||
      !NumberOf(text, "SigPnd", &out.pending, 16) || !NumberOf(text, "ShdPnd", &shared, 16) ||
      !NumberOf(text, "SigBlk", &out.blocked, 16)) {
    return std::nullopt;
  }
  out.pending |= shared;
  if (const auto pids = Line(text, "NSpid")) {
    const size_t tab = pids->rfind('\t');
    if (!Number(tab == std::string_view::npos ? *pids : pids->substr(tab + 1), &out.innermost_pid)) return std::nullopt;
  }
  return out;
}

std::optional<uint64_t> ParseStartTime(std::string_view stat) {
  // The name stands in parentheses and may hold any byte: count from the last one. What follows is field 3.
  const size_t close = stat.rfind(')');
  if (close == std::string_view::npos) return std::nullopt;
  std::string_view rest = stat.substr(close + 1);
  for (int field = 3; field <= 22; ++field) {
    if (!rest.starts_with(' ')) return std::nullopt;
    rest.remove_prefix(1);
    if (field == 22) break;
    const size_t space = rest.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(space);
  }
  uint64_t out = 0;
  if (!Number(rest, &out)) return std::nullopt;
  return out;
}

std::vector<std::string> ParseMountPoints(std::string_view mountinfo) {
  constexpr int kMountPoint = 4;  // proc_pid_mountinfo(5), counted from 0
  std::vector<std::string> points;
  while (!mountinfo.empty()) {
    std::string_view line = mountinfo.substr(0, mountinfo.find('\n'));
    mountinfo.remove_prefix(std::min(line.size() + 1, mountinfo.size()));
    for (int i = 0; i < kMountPoint; ++i)
      line.remove_prefix(line.find(' ') == std::string_view::npos ? line.size() : line.find(' ') + 1);
    if (line.starts_with('/')) points.push_back(Unescaped(line.substr(0, line.find(' '))));
  }
  return points;
}

std::vector<MountLine> ParseMounts(std::string_view mountinfo) {
  constexpr size_t kDevice = 2, kRoot = 3, kPoint = 4, kOptions = 5;
  const auto is_read_only = [](std::string_view options) { return options == "ro" || options.starts_with("ro,"); };
  std::vector<MountLine> mounts;
  while (!mountinfo.empty()) {
    std::string_view line = mountinfo.substr(0, mountinfo.find('\n'));
    mountinfo.remove_prefix(std::min(line.size() + 1, mountinfo.size()));
    std::vector<std::string_view> words;
    for (; !line.empty(); line.remove_prefix(std::min(words.back().size() + 1, line.size())))
      words.push_back(line.substr(0, line.find(' ')));
    const auto dash = std::ranges::find(words, "-");
    if (dash - words.begin() <= static_cast<ptrdiff_t>(kOptions) || words.end() - dash < 4) continue;
    mounts.push_back({.device = std::string(words[kDevice]),
                      .root = Unescaped(words[kRoot]),
                      .point = Unescaped(words[kPoint]),
                      .type = std::string(dash[1]),
                      .read_only = is_read_only(words[kOptions]) || is_read_only(dash[3])});
  }
  return mounts;
}

std::optional<int> ParseOpenFlags(std::string_view fdinfo) {
  int flags = 0;
  return NumberOf(fdinfo, "flags", &flags, 8) ? std::optional(flags) : std::nullopt;
}

bool IsNamedExecutable(std::string_view link) {
  return link.starts_with('/') && !link.ends_with(" (deleted)") && !link.starts_with("/memfd:");
}

}  // namespace sluice::supervisor
