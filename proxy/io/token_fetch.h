#pragma once

// Asks a token endpoint for a token (RFC 6749 section 4.4), from a worker: a connection of its own, verified as any upstream is.
// The policy has no say in it, since its author names the endpoint; nothing of the workload's is in the request.

#include "policy/credential.h"
#include "proxy/credential/oauth.h"
#include "proxy/credential/secret.h"
#include "proxy/io/reactor.h"
#include "proxy/io/task.h"

namespace sluice::proxy {

class Worker;

/// `source` is kOauth; `client_secret` its client's. An error is a sentence that names the endpoint.
[[nodiscard]] Task<Result<TokenAnswer>> FetchToken(Worker& worker, Waiter& waiter, policy::SecretSource source,
                                                   SecretPtr client_secret);

}  // namespace sluice::proxy
