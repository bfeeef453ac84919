#pragma once

// What an upstream answer says about the name that was asked, and nothing else: the CNAME chain is walked by owner from the
// question, and records off the chain are as if they were not there.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ip.h"
#include "dns/message.h"

namespace sluice::dns {

inline constexpr size_t kMaxChain = 12;      ///< CNAME hops
inline constexpr size_t kMaxAddresses = 64;  ///< of one name and family that are kept
inline constexpr uint32_t kMaxNegativeTtl = 300;

/// The name a chain ends at, and the hops before it. Nothing for a loop, or more than kMaxChain hops.
struct Chain {
  Name name;
  std::vector<std::string> targets;  ///< canonical names after the question, the last one included
  uint32_t ttl = 0xffffffff;         ///< smallest of the CNAMEs
};
[[nodiscard]] std::optional<Chain> EndOfChain(const Message& upstream, const Name& question);

/// One family's part of a lookup.
struct AddressAnswer {
  std::vector<IpAddress> addresses;
  std::vector<std::string> targets;
  uint32_t ttl = 0;  ///< of what was found or of its absence; 0: not to be kept
  bool no_such_name = false;
};
/// Nothing when the answer is a failure or its chain cannot be walked.
[[nodiscard]] std::optional<AddressAnswer> ReadAddresses(const Message& upstream, const Question& question);

/// Seconds for which the absence in `upstream` may be believed: of its SOA, at most 300; 0 without one (RFC 2308).
[[nodiscard]] uint32_t NegativeTtl(const Message& upstream);

/// Whether `response` answers exactly this: a response, opcode, id, one question, type and class.
enum class Match : uint8_t { kYes, kOtherCase, kNo };
[[nodiscard]] Match MatchResponse(const Message& response, uint16_t id, const Question& sent);

}  // namespace sluice::dns
