#pragma once

// JSON-RPC 2.0 (MCP is one): calls, notifications, responses that a client posts, and batches of them. Members that the
// specification does not name are refused, since a reader that ignores case would take "Method" for "method".

#include <cstddef>
#include <string_view>

#include "policy/body.h"

namespace sluice::proxy {

inline constexpr size_t kMaxRpcBatch = 1000;  ///< messages of one batch

/// One item a message, in their order.
[[nodiscard]] policy::BodyReading<policy::RpcItem> ReadJsonRpc(std::string_view text);

}  // namespace sluice::proxy
