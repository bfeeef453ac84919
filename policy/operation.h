#pragma once

// Whether one rule speaks for what a body asks for, item by item. What decides which body that is, and in which reading, is
// match.h. Nothing here allocates.

#include <optional>

#include "policy/body.h"
#include "policy/rule.h"

namespace sluice::policy {

/// Whether an allow whose reading is that of the item (RequestView::AllowReading) covers it.
[[nodiscard]] bool AllowCoversItem(const Rule& rule, const GraphqlItem& item);
[[nodiscard]] bool AllowCoversItem(const Rule& rule, const RpcItem& item);
[[nodiscard]] bool AllowCoversItem(const Rule& rule, const RefUpdate& item);
[[nodiscard]] bool AllowCoversItem(const Rule& rule, const LfsOperation& item);
/// `json` of an HTTP rule: each pointer leads to a scalar that matches. A key that differs in case alone is another one to some
/// readers and the same to others: where both are there, no allow matches.
[[nodiscard]] bool AllowCoversJson(const Rule& rule, const JsonLeaves& leaves);

/// Whether a deny of this one reading holds for the body: some item matches, or it could not be read, or was not.
[[nodiscard]] bool DenyCoversBody(const Rule& rule, BodyKinds reading, const RequestBody& body);

/// Whether `json` of a deny holds: each pointer leads to a value that matches, or that has one that matches below it.
[[nodiscard]] bool DenyCoversJson(const Rule& rule, const JsonLeaves& leaves);

/// Whether the deny holds for every body that the allow covers, both having this reading. No where that is not plain to see.
[[nodiscard]] bool DenyCoversAllow(const Rule& deny, const Rule& allow, BodyKinds reading);

}  // namespace sluice::policy
