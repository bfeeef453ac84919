#pragma once

// An element of dyn4 and dyn6 as their key: address, protocol and port, each in whole words (nft(8), concatenations).

#include <optional>

#include "nft/set.h"
#include "supervisor/fence_ruleset.h"

namespace sluice::supervisor {

[[nodiscard]] nft::Key KeyOf(const FenceElement& element);
/// Nothing where the key is not of that length.
[[nodiscard]] std::optional<FenceElement> ElementOf(const nft::Key& key);

}  // namespace sluice::supervisor
