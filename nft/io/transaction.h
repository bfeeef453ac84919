#pragma once

// Sends a ruleset to the kernel in the calling thread's network namespace: one batch, one answer, all or nothing.

#include "base/result.h"
#include "nft/ruleset.h"

namespace sluice::nft {

/// Adds `table`, which must not exist yet. An error names the table, chain or rule that the kernel refused:
/// kPermission without CAP_NET_ADMIN over the namespace, kUnsupported where the kernel lacks an expression. Blocks.
[[nodiscard]] Result<void> Add(const Table& table);

}  // namespace sluice::nft
