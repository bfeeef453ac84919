#pragma once

// Connecting to one of several addresses, the first that answers (RFC 8305 section 5).

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/io/tls.h"
#include "proxy/io/upstream.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {

/// `order` is tried as it stands; what `judge` refuses is left out, and judged when its turn comes. `what` names the other end in
/// failures: "a.test:443", "the upstream proxy corp". The others are closed once one has answered.
[[nodiscard]] Task<DialResult<UpstreamPtr>> ConnectFirst(Worker& worker, Waiter& waiter, std::string what,
                                                         std::vector<IpAddress> order, uint16_t port, AddressJudge judge);

/// Addresses of a name in the order to dial them; a failed lookup is a failure in people's words.
[[nodiscard]] Task<DialResult<ResolvedName>> ResolveForDial(Worker& worker, Waiter& waiter, std::string name);

/// A connection through `target.via`: resolved and connected to, TLS where it is an https proxy, and a tunnel to the target
/// unless requests are only forwarded.
[[nodiscard]] Task<DialResult<UpstreamPtr>> DialThroughProxy(Worker& worker, Waiter& waiter, DialTarget target);

/// A TLS handshake as client, verified. `what` names the peer in failures: "a.test:443".
[[nodiscard]] Task<std::optional<DialFailure>> Handshake(Worker& worker, Waiter& waiter, Stream& stream, TlsOffer offer,
                                                         std::string what);

/// A secret that is needed and cannot be read.
[[nodiscard]] DialFailure NoSecret(std::string_view what, std::string_view fault);

/// Every allow was refused at this address.
[[nodiscard]] DialFailure AddressRefused(std::string_view what, const IpAddress& address, const policy::Decision& decision);

}  // namespace sluice::proxy
