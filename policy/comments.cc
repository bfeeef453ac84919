#include "policy/comments.h"

#include <algorithm>

namespace sluice::policy {
namespace {

const Surroundings kNothing;
const std::vector<std::string> kNoLines;

std::vector<std::string_view> LinesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool IsFlow(std::string_view line, const Node& node) {
  const size_t at = node.span.column == 0 ? 0 : node.span.column - 1;
  return at < line.size() && (line[at] == '[' || line[at] == '{');
}

}  // namespace

Comments::Comments(std::string_view text, const Node& root) : lines_(LinesOf(text)), ends_(lines_.size() + 2, 0) {
  Collect(root, nullptr, false);
  Place();
  lines_.clear();
}

const Surroundings& Comments::Of(const Node& node) const {
  const auto it = around_.find(&node);
  return it == around_.end() ? kNothing : it->second;
}

const std::vector<std::string>& Comments::TailOf(const Node& key) const {
  const auto it = tails_.find(&key);
  return it == tails_.end() ? kNoLines : it->second;
}

bool Comments::Within(const Node& value) const {
  const auto spoken = [&](const Node& node) {
    const Surroundings& around = Of(node);
    return !around.leading.empty() || !around.trailing.empty();
  };
  for (const Node& item : value.items)
    if (spoken(item) || Within(item)) return true;
  return std::any_of(value.members.begin(), value.members.end(),
                     [&](const Member& member) { return spoken(member.key) || Within(member.value); });
}

// Anchors in the order of the file, and where the last scalar of each line ends.
void Comments::Collect(const Node& value, const Node* top, bool in_line) {
  const auto note_end = [&](const Node& node) {
    if (node.kind == Node::Kind::kScalar && node.style != Node::Style::kBlock && node.span.line < ends_.size())
      ends_[node.span.line] = std::max<size_t>(ends_[node.span.line], node.span.column - 1 + node.span.length);
  };
  note_end(value);
  // A flow collection on one line belongs to that line's own key; over several lines its entries speak for themselves.
  const bool known = value.kind != Node::Kind::kScalar && value.span.line != 0 && value.span.line <= lines_.size();
  const bool one_line =
      std::all_of(value.items.begin(), value.items.end(), [&](const Node& n) { return n.span.line == value.span.line; }) &&
      std::all_of(value.members.begin(), value.members.end(),
                  [&](const Member& m) { return m.key.span.line == value.span.line; });
  const bool inside = in_line || (known && one_line && IsFlow(lines_[value.span.line - 1], value));
  for (const Node& item : value.items) {
    anchors_.push_back({&item, item.span.line, item.span.column, inside, top});
    Collect(item, top, inside);
  }
  for (const auto& [key, member] : value.members) {
    const Node* above = top == nullptr ? &key : top;
    note_end(key);
    anchors_.push_back({&key, key.span.line, key.span.column, inside, above});
    if (member.kind == Node::Kind::kScalar && member.style == Node::Style::kBlock)
      blocks_.emplace_back(key.span.line, key.span.column);
    Collect(member, above, inside);
  }
}

// A block scalar's lines hold no comments: they are those below its key that are indented deeper, and blank ones between.
std::vector<bool> Comments::BlockScalarLines() const {
  std::vector<bool> inside(lines_.size() + 2, false);
  for (const auto& [line, column] : blocks_) {
    size_t last = line;
    for (size_t i = line; i < lines_.size(); ++i) {
      const size_t indent = lines_[i].find_first_not_of(' ');
      if (indent == std::string_view::npos) continue;
      if (indent < column) break;
      for (; last <= i; ++last) inside[last + 1] = true;
    }
  }
  return inside;
}

// `first` is the first anchor that is not above the line: the comment speaks of the last one on it, else of the one before.
void Comments::Trail(size_t first, uint32_t line) {
  const std::string_view text = lines_[line - 1];
  const size_t hash = text.find('#', std::min(ends_[line], text.size()));
  if (hash == std::string_view::npos || anchors_.empty()) return;
  size_t last = first == 0 ? 0 : first - 1;
  for (size_t i = first; i < anchors_.size() && anchors_[i].line == line; ++i)
    if (i == first || !anchors_[i].in_line) last = i;
  std::string& trailing = around_[anchors_[last].node].trailing;
  trailing += (trailing.empty() ? "" : " ") + std::string(text.substr(hash));
}

void Comments::Place() {
  const auto inside = BlockScalarLines();
  size_t next = 0;
  std::vector<std::pair<std::string, size_t>> pending;  // comment and its column
  bool blank = false;
  bool blank_before = false;
  const Node* top = nullptr;
  for (uint32_t line = 1; line <= lines_.size(); ++line) {
    const std::string_view text = lines_[line - 1];
    const size_t first = text.find_first_not_of(' ');
    const bool scalar = inside[line];
    if (!scalar && first == std::string_view::npos) {
      blank = true;
      continue;
    }
    if (!scalar && text[first] == '#') {
      if (pending.empty()) {
        blank_before = blank;
      } else if (blank) {
        pending.emplace_back("", pending.back().second);
      }
      pending.emplace_back(text.substr(first), first + 1);
      blank = false;
      continue;
    }
    while (next < anchors_.size() && anchors_[next].line < line) ++next;
    if (next < anchors_.size() && anchors_[next].line == line) {
      const Anchor& anchor = anchors_[next];
      // Deeper than a top-level key that follows: it is the end of what stands before.
      size_t own = 0;
      if (anchor.top == anchor.node && top != nullptr)
        while (own < pending.size() && pending[own].second > anchor.column) tails_[top].push_back(pending[own++].first);
      Surroundings& around = around_[anchor.node];
      for (; own < pending.size(); ++own)
        if (!around.leading.empty() || !pending[own].first.empty()) around.leading.push_back(pending[own].first);
      const bool commented = !around.leading.empty();
      around.blank_before = commented && pending.size() == around.leading.size() ? blank_before : commented || blank;
      if (commented && blank) around.leading.emplace_back();
      pending.clear();
      top = anchor.top;
      blank = false;
    }
    if (!scalar) Trail(next, line);
    blank = false;
  }
  for (auto& [text, column] : pending) {
    if (column > 1 && top != nullptr && end_.empty()) {
      tails_[top].push_back(std::move(text));
    } else {
      end_.push_back(std::move(text));
    }
  }
}

}  // namespace sluice::policy
