#pragma once

// Which way an allowed connection or request takes: through which upstream proxy, with which pins and client certificate.

#include "proxy/io/upstream.h"

namespace sluice::proxy {

/// Sets the way of a connection that is to be dialled before a request was read. False: nothing can be, since its requests may go
/// different ways, or through a proxy in a manner that their scheme decides.
[[nodiscard]] bool RouteConnection(Worker& worker, const FlowTarget& flow, const policy::ConnectDecision& decision,
                                   DialTarget* target);

/// Sets the way of all requests over TLS on an inspected connection. False: they may go different ways.
[[nodiscard]] bool RouteInspectedTls(Worker& worker, const FlowTarget& flow, DialTarget* target);

/// Sets the way of a request that was allowed. Cleartext is forwarded by HTTP proxies, everything else tunnelled.
void RouteRequest(Worker& worker, policy::Scheme scheme, const policy::Decision& decision, DialTarget* target);

/// Sets the way of a connection that this engine makes for itself: through the policy's own proxy, where it has one.
void RouteOwn(Worker& worker, DialTarget* target);

/// Whether some request may go otherwise than directly and by its name alone.
[[nodiscard]] bool HasWays(const policy::Snapshot& snapshot);

}  // namespace sluice::proxy
