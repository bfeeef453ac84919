#pragma once

// The comments of a YAML file, each given to the value that it speaks of. YAML parsers drop them; `fmt` must not.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "policy/node.h"

namespace sluice::policy {

/// What stands around one key or list entry.
struct Surroundings {
  std::vector<std::string> leading{};  ///< whole lines before it, "# why"; an empty one is a blank line between comments
  std::string trailing{};              ///< on its line: "# why"
  bool blank_before = false;           ///< before the leading comments, or before the line where there is none
};

class Comments {
 public:
  /// Keys are the addresses of `root`'s key nodes and list items: `root` must outlive it, unmoved.
  Comments(std::string_view text, const Node& root);

  /// Of a member's key, or of a list's item.
  [[nodiscard]] const Surroundings& Of(const Node& node) const;
  /// Indented lines after the last entry of a top-level key's value.
  [[nodiscard]] const std::vector<std::string>& TailOf(const Node& key) const;
  /// Lines after everything.
  [[nodiscard]] const std::vector<std::string>& end() const { return end_; }
  /// Whether anything inside the value has a comment.
  [[nodiscard]] bool Within(const Node& value) const;

 private:
  struct Anchor {
    const Node* node = nullptr;
    uint32_t line = 0;
    uint32_t column = 0;
    bool in_line = false;       ///< inside a flow collection that another value on the same line began
    const Node* top = nullptr;  ///< the top-level key that it lies under
  };
  void Collect(const Node& value, const Node* top, bool in_line);
  void Place();
  [[nodiscard]] std::vector<bool> BlockScalarLines() const;
  void Trail(size_t first, uint32_t line);

  std::vector<std::string_view> lines_;
  std::vector<Anchor> anchors_;
  std::vector<size_t> ends_;                           ///< per line, the column after its last scalar
  std::vector<std::pair<uint32_t, uint32_t>> blocks_;  ///< block scalars: line and column of their key
  std::unordered_map<const Node*, Surroundings> around_;
  std::unordered_map<const Node*, std::vector<std::string>> tails_;
  std::vector<std::string> end_;
};

}  // namespace sluice::policy
