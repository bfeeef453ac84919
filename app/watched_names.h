#pragma once

// Which names decide where a path leads, for who must notice that it leads elsewhere.

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::app {

enum class NameKind : uint8_t {
  kFolder,
  kLink,
  kEnd,  ///< the file, or what is missing
};

/// A name in a folder: what inotify(7) reports when somebody writes it or puts another in its place.
struct WatchedName {
  std::string folder;  ///< absolute, without links
  std::string name;
  NameKind kind = NameKind::kEnd;
  auto operator<=>(const WatchedName&) const = default;
};

/// Every folder and link on the way of `path` (absolute), in the order it is followed, and the file at its end
/// (path_resolution(7)). A path that leads nowhere ends with the name that is missing; after 40 links, with the link that was not
/// followed.
[[nodiscard]] std::vector<WatchedName> NamesOnTheWay(const std::string& path);

}  // namespace sluice::app
