#pragma once

// Quoted YAML scalars, decoded by ourselves: of the escapes only those that mean the same in every YAML reader and are of use
// in a policy.

#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice::policy {

/// `raw` is what stands between two quotes on one line. Errors have a column inside it, counted from 1.
[[nodiscard]] Result<std::string> DecodeSingleQuoted(std::string_view raw);
/// Takes \" \\ \xHH \uHHHH \UHHHHHHHH.
[[nodiscard]] Result<std::string> DecodeDoubleQuoted(std::string_view raw);

}  // namespace sluice::policy
