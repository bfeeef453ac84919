#pragma once

// A connection for one exchange: one that the pools have, one that is given back meanwhile, or one that is dialled.

#include <memory>
#include <optional>
#include <string>

#include "proxy/io/upstream.h"
#include "proxy/io/upstream_pool.h"

namespace sluice::proxy {

class H2Upstream;

/// Exactly one is set.
struct Obtained {
  UpstreamPtr own{};                     ///< HTTP/1.1
  std::shared_ptr<H2Upstream> shared{};  ///< HTTP/2, in its pool already
};

/// What an exchange wants a connection for.
struct UpstreamAsk {
  std::string key;  ///< PoolKey
  policy::Scheme scheme = policy::Scheme::kHttps;
  DialTarget target;
  UpstreamPtr ready{};  ///< made ahead, or null
  AddressJudge judge;   ///< of addresses to be dialled
  UsableJudge usable;   ///< of connections that are there
  /// kFresh: an idle one was found dead, so one that is dialled now is wanted.
  enum class Reuse : uint8_t { kAny, kFresh };
  Reuse reuse = Reuse::kAny;
};

/// In either protocol. The judges must live until it is done.
[[nodiscard]] Task<DialResult<Obtained>> Obtain(Worker& worker, Waiter& waiter, UpstreamAsk ask);

/// The same where HTTP/1.1 is wanted: HTTP/2 only from an upstream that speaks nothing else.
[[nodiscard]] Task<DialResult<Obtained>> ObtainHttp11(Worker& worker, Waiter& waiter, UpstreamAsk ask);

/// Whether it carries WebSockets (RFC 8441), which its first SETTINGS say: absent, or why it cannot.
[[nodiscard]] Task<std::optional<DialFailure>> AwaitWebSockets(Worker& worker, Waiter& waiter,
                                                               std::shared_ptr<H2Upstream> upstream);

}  // namespace sluice::proxy
