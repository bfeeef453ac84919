#pragma once

// A ruleset as the netlink batch that installs it. Pure: bytes in memory, no socket. Written against
// include/uapi/linux/netfilter/nf_tables.h; the registers and attributes are libnftnl's business.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "nft/ruleset.h"

namespace sluice::nft {

/// Bytes an encoded batch may take. The send buffer of a netlink socket holds it without being raised.
inline constexpr size_t kMaxBatchBytes = 128 * 1024;

/// One transaction: all of it happens or none.
struct Batch {
  std::vector<uint8_t> bytes;
  uint32_t first_sequence = 0;       ///< of the batch-begin message
  std::vector<std::string> objects;  ///< what message first_sequence + 1 + i creates, for error texts
  uint32_t acknowledged = 0;         ///< the one sequence number that asks for an answer
};

/// The batch that adds `table`. kInvalid: an expression out of place; kExhausted: larger than kMaxBatchBytes.
[[nodiscard]] Result<Batch> EncodeAdd(const Table& table, uint32_t first_sequence);

}  // namespace sluice::nft
