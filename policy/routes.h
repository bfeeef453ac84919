#pragma once

// How what is allowed travels: which credential, which upstream proxy, which pins. Names become indexes here, and what could give
// one request two answers is refused with a request that shows it (exact points 4 and 19). Nothing is accepted wrongly: where two
// rules cannot be told apart cheaply they are taken to meet.

#include "policy/compiled.h"

namespace sluice::policy {

/// Fills Rule::credential, Rule::proxy, Rule::routes and Settings::proxy. Errors stand at the rule, or at its `with` or `via`.
[[nodiscard]] Result<void> ResolveRoutes(PolicySource* source);

/// Whether one request, and one item of its body, can be covered by both allows of HTTP or what travels in it.
[[nodiscard]] bool RequestsMeet(const Rule& a, const Rule& b);

}  // namespace sluice::policy
