#pragma once

// A GraphQL document down to what its operations select at their roots. Everything else is checked against the grammar and
// dropped.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/body.h"

namespace sluice::proxy {

/// What stands in a root selection set; inline fragments are part of the set they stand in.
struct GraphqlSelection {
  enum class Kind : uint8_t { kField, kSpread };
  Kind kind = Kind::kField;
  std::string_view name;  ///< the field's own, never its alias; the fragment's
};

struct GraphqlOperation {
  policy::GraphqlKind kind = policy::GraphqlKind::kQuery;
  std::string_view name;  ///< empty where it has none
  std::vector<GraphqlSelection> selections;
};

struct GraphqlFragment {
  std::string_view name;
  std::vector<GraphqlSelection> selections;
};

/// Views point into the text.
struct GraphqlDocument {
  std::vector<GraphqlOperation> operations;
  std::vector<GraphqlFragment> fragments;
};

/// Why the text is no executable document, or nothing: then it was read. Names stand once among operations and once among
/// fragments; an operation without a name stands alone.
[[nodiscard]] std::optional<std::string> ParseGraphql(std::string_view text, GraphqlDocument* out);

}  // namespace sluice::proxy
