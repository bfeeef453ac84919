#pragma once

// Asks the real resolvers. Answers are parsed by our codec, cached by TTL, coalesced while outstanding.
// Every question leaves from a port of its own with a random id and random case, and only an answer that repeats all
// of it counts (RFC 5452); what does not is ignored, and a truncated or case-folded answer is asked for again by TCP. Servers are
// asked in order, those that stay silent last; `tls://` servers over one verified connection each.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ip.h"
#include "base/result.h"
#include "dns/cached_entry.h"
#include "dns/message.h"
#include "dns/upstream_server.h"

namespace sluice::dns {

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

/// One per io_context; every call on that context's thread. Destroying it abandons what is outstanding: that ends with kFailed.
class UpstreamClient {
 public:
  using OnLookup = std::move_only_function<void(LookupPtr)>;
  using MessagePtr = std::shared_ptr<const Message>;
  using OnMessage = std::move_only_function<void(Result<MessagePtr>)>;

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

  /// As Look. `done` is called once, maybe from within.
  virtual void LookBoth(const std::string& canonical_name, OnLookup done) = 0;

  /// One family alone: `type` is kA or kAaaa. Asks, whatever PeekFamily would say. `done` is called once, maybe from within.
  virtual void LookFamily(const std::string& canonical_name, Type type, OnLookup done) = 0;
  [[nodiscard]] virtual LookupPtr PeekFamily(const std::string& canonical_name, Type type) = 0;
  /// Any other type: the answer, checked to be for this question. `done` is called once, maybe from within.
  virtual void Query(const std::string& canonical_name, Type type, OnMessage done) = 0;
  /// Forgets what was found absent or failed; what was found stays.
  virtual void ForgetAbsence() = 0;
  /// At most `limit` live entries of all caches whose key is beyond `after`. Looks at every entry, some 13,000 at most: a
  /// millisecond or two.
  [[nodiscard]] virtual CachePage Cached(std::string_view after, size_t limit) const = 0;
};

}  // namespace sluice::dns
