#include "supervisor/cgroup_place.h"

#include <algorithm>
#include <charconv>
#include <ranges>

namespace sluice::supervisor {
namespace {

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (const auto part : std::views::split(text, separator)) parts.emplace_back(part.begin(), part.end());
  return parts;
}

// mountinfo writes blanks, tabs, line feeds and backslashes as three octal digits.
std::string Unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    int value = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 4, value, 8).ptr == text.data() + i + 4) {
      plain += static_cast<char>(value);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool Has(std::string_view list, char separator, std::string_view word) {
  const auto words = Split(list, separator);
  return std::ranges::find(words, word) != words.end();
}

// The path in "ID:CONTROLLERS:PATH". An empty `controller` is the unified hierarchy, whose id is 0.
std::optional<std::string_view> OwnPath(std::string_view cgroup, std::string_view controller) {
  for (const std::string_view line : Split(cgroup, '\n')) {
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool matches =
        controller.empty() ? line.substr(0, first) == "0" && controllers.empty() : Has(controllers, ',', controller);
    if (matches) return line.substr(second + 1);
  }
  return std::nullopt;
}

// `path` of the hierarchy as seen below a mount of its folder `root`.
std::optional<std::string> Below(std::string_view path, const std::string& root) {
  if (!path.starts_with('/') || path.contains("/..")) return std::nullopt;  // outside of this process's cgroup namespace
  if (root == "/") return path == "/" ? std::string() : std::string(path);
  if (path == root) return std::string();
  if (path.starts_with(root + "/")) return std::string(path.substr(root.size()));
  return std::nullopt;
}

std::optional<CgroupPlace> Find(std::string_view type, std::string_view controller, std::string_view cgroup,
                                std::string_view mountinfo) {
  const auto own = OwnPath(cgroup, controller);
  if (!own) return std::nullopt;
  for (const std::string_view line : Split(mountinfo, '\n')) {
    // ID PARENT MAJOR:MINOR ROOT MOUNT OPTIONS [OPTIONAL…] - TYPE SOURCE SUPER-OPTIONS
    const size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto about = Split(line.substr(0, dash), ' ');
    const auto file_system = Split(line.substr(dash + 3), ' ');
    if (about.size() < 6 || file_system.size() < 3 || file_system[0] != type) continue;
    if (!controller.empty() && !Has(file_system[2], ',', controller)) continue;
    const auto below = Below(*own, Unescape(about[3]));
    if (!below) continue;
    const std::string mount = Unescape(about[4]);
    return CgroupPlace{mount, mount + *below};
  }
  return std::nullopt;
}

}  // namespace

std::optional<CgroupPlace> FindCgroup2(std::string_view cgroup, std::string_view mountinfo) {
  return Find("cgroup2", "", cgroup, mountinfo);
}

std::optional<CgroupPlace> FindCgroup1(std::string_view controller, std::string_view cgroup, std::string_view mountinfo) {
  return Find("cgroup", controller, cgroup, mountinfo);
}

std::vector<OwnCgroup> FindCgroups(std::string_view cgroup, std::string_view mountinfo) {
  std::vector<OwnCgroup> found;
  for (const std::string_view line : Split(cgroup, '\n')) {
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) {
      found.push_back({"version 2", FindCgroup2(cgroup, mountinfo)});
    } else {
      found.push_back({std::string(controllers), FindCgroup1(Split(controllers, ',').front(), cgroup, mountinfo)});
    }
  }
  return found;
}

bool NamesController(std::string_view list, std::string_view controller) {
  if (list.ends_with('\n')) list.remove_suffix(1);
  return Has(list, ' ', controller);
}

std::optional<uint64_t> KeyedNumber(std::string_view text, std::string_view key) {
  for (const std::string_view line : Split(text, '\n')) {
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ' ') continue;
    const std::string_view digits = line.substr(key.size() + 1);
    uint64_t number = 0;
    if (const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number);
        read.ec == std::errc{} && read.ptr == digits.data() + digits.size())
      return number;
  }
  return std::nullopt;
}

}  // namespace sluice::supervisor
