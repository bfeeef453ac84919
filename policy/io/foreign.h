#pragma once

// Policies of other tools from their text: JSON where the text is JSON, YAML else, or a plain list.

#include <optional>
#include <string>
#include <string_view>

#include "policy/import/import.h"
#include "policy/node.h"

namespace sluice::policy {

/// The tree of a policy in whatever language. JSON is read as JSON where it is some other tool's policy: tabs may indent it.
[[nodiscard]] Result<Node> ParsePolicyTree(std::string_view text, const std::string& file);

struct ForeignOptions {
  std::optional<ImportKind> kind{};  ///< told by the shape where it is not given
  std::string only{};                ///< the service or job, where the file holds several
};

/// A native policy, or a text of unknown shape, is an error.
[[nodiscard]] Result<Imported> ReadForeign(std::string_view text, const std::string& file, const ForeignOptions& options);

}  // namespace sluice::policy
