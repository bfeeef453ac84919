#pragma once

// Parameters of a query string, decoded once: `+` is a space, `%XX` an octet.

#include <functional>
#include <string>
#include <string_view>

namespace sluice::proxy {

struct QueryParameter {
  std::string key;
  std::string value;
};

/// Calls `visit` for each parameter between `&` (and `;`, which some readers part them by too) until it answers false. False: an
/// escape is broken or what it makes is no UTF-8, or holds a NUL.
[[nodiscard]] bool ForEachParameter(std::string_view query, const std::function<bool(QueryParameter)>& visit);

/// What a lax reader makes of a key: case folded, blanks around it gone, cut at a bracket.
[[nodiscard]] std::string BareKey(std::string_view key);

}  // namespace sluice::proxy
