#pragma once

// What a body asked for, in words for records and denials: operations, fields, methods, tools and refs; never values.

#include <string>
#include <vector>

#include "policy/body.h"

namespace sluice::proxy {

inline constexpr size_t kMaxAsked = 32;       ///< words of one body; the rest is counted in a last one
inline constexpr size_t kMaxAskedText = 256;  ///< bytes of each

/// "graphql mutation M createIssue", "jsonrpc tools/list", "mcp tools/call read", "create refs/heads/x", "lfs upload",
/// "not readable: …"; each once, in their order. `json` readings say nothing.
[[nodiscard]] std::vector<std::string> AskedOf(const policy::RequestBody& body);

}  // namespace sluice::proxy
