#pragma once

// A YAML file as a tree with places. Tags, anchors, aliases and the like are already refused (io/yaml.h): what is here reads
// the same under YAML 1.1 and 1.2.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::policy {

struct Member;

struct Node {
  enum class Kind : uint8_t { kScalar, kSequence, kMapping };
  enum class Style : uint8_t { kPlain, kQuoted, kBlock };

  Kind kind = Kind::kScalar;
  Style style = Style::kPlain;
  std::string text;          ///< kScalar
  uint32_t text_offset = 0;  ///< bytes from the span's column to the text: 1 after a quote
  bool verbatim = true;      ///< the text stands in the file as it is, so that columns inside it are columns of the file
  std::vector<Node> items;
  std::vector<Member> members;  ///< keys are scalars and differ
  SourceSpan span;
};

struct Member {
  Node key;
  Node value;
};

/// Whether some YAML reader takes the plain scalar for a boolean, null, number, date or merge key.
[[nodiscard]] bool IsAmbiguousPlain(std::string_view text);

}  // namespace sluice::policy
