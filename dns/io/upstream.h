#pragma once

// Asks the real resolver. Answers are parsed by our codec, cached by TTL, coalesced while outstanding.
// Every question leaves from a fresh connected socket with a random id and random case, and only an answer that repeats all
// of it counts (RFC 5452); what does not is ignored, and a truncated or case-folded answer is asked for again by TCP.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/ip.h"
#include "base/result.h"

namespace sluice::dns {

struct UpstreamOptions {
  std::vector<Endpoint> servers;            ///< asked in order; empty: the host's resolv.conf (kNotFound when it names none)
  std::chrono::milliseconds timeout{5000};  ///< for one lookup, retries included
};

/// The addresses of one name, all families asked for. `ttl` is the smallest of the chain, clamped to 5..300 s.
struct Addresses {
  std::vector<IpAddress> addresses;
  std::chrono::seconds ttl{5};
  std::vector<std::string> chain{};  ///< canonical names of the CNAME targets, for deny rules
};

/// What a lookup of a name's addresses came to.
struct Lookup {
  enum class Status : uint8_t { kFound, kNoAddress, kNoSuchName, kFailed };
  Status status = Status::kFailed;
  Addresses found;
  Error error;  ///< for kFailed
};
using LookupPtr = std::shared_ptr<const Lookup>;

/// One per io_context; every call on that context's thread. Destroying it abandons what is outstanding: those awaits end with
/// kFailed.
class UpstreamClient {
 public:
  static Result<std::unique_ptr<UpstreamClient>> Create(boost::asio::io_context& context, UpstreamOptions options);
  virtual ~UpstreamClient() = default;

  /// A and AAAA of a canonical name, IPv4 first; the CNAME chain walked by owner, at most 12 hops. kNotFound: no such name or no
  /// address. Where one family has addresses the other is waited for 50 ms (RFC 8305 section 3); asked again, what came later is
  /// there too. /etc/hosts is not read.
  virtual boost::asio::awaitable<Result<Addresses>> Resolve(std::string canonical_name) = 0;
  /// The same, telling a name that does not exist from one without addresses. Never null.
  virtual boost::asio::awaitable<LookupPtr> Look(std::string canonical_name) = 0;
  /// What Look would say without asking anyone; null when it would ask.
  [[nodiscard]] virtual LookupPtr Peek(const std::string& canonical_name) = 0;
  /// Any query: the wire answer, checked to be for this question. Used by the resolver for types other than addresses.
  virtual boost::asio::awaitable<Result<std::vector<uint8_t>>> Query(std::string canonical_name, uint16_t type) = 0;
};

}  // namespace sluice::dns
