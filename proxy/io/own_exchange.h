#pragma once

// One HTTP/1.1 exchange of Sluice's own, from a worker: a connection of its own, sealed as every other and verified as any
// upstream is. The policy has no say in it, since the operator names where it goes; nothing of the workload's is in the request.

#include <chrono>
#include <cstddef>
#include <string>

#include "proxy/credential/oauth.h"
#include "proxy/io/reactor.h"
#include "proxy/io/task.h"

namespace sluice::proxy {

class Worker;

inline constexpr std::chrono::seconds kOwnDeadline{20};  ///< one exchange, the connection included

struct OwnAnswer {
  int status = 0;
  std::string entity_tag{};
  std::string body{};
};

/// `request` is whole; `most` bounds the answer, head and body. An error is a sentence without its subject.
[[nodiscard]] Task<Result<OwnAnswer>> ExchangeOwn(Worker& worker, Waiter& waiter, TokenEndpoint endpoint, std::string request,
                                                  size_t most);

}  // namespace sluice::proxy
