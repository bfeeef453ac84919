#pragma once

// The policy resolver: answers the workload's lookups on sockets that the supervisor opened inside the capture namespace.

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "dns/flood_gate.h"
#include "dns/io/upstream.h"
#include "dns/limiter.h"
#include "dns/synthetic.h"
#include "policy/event.h"

namespace sluice::dns {

/// Who sent this datagram or opened this connection; null when nobody can be found. May take some tens of microseconds.
using AttributeClient = std::function<policy::ProcessPtr(policy::Transport, const Endpoint& client, const Endpoint& server)>;

struct ServerOptions {
  UniqueFd udp;  ///< bound to [::]:53, dual-stack, IP_PKTINFO and IPV6_RECVPKTINFO on: answers leave from the address asked
  UniqueFd tcp;  ///< listening on [::]:53, dual-stack
  AttributeClient attribute;
  Limits limits{};
  /// A TCP connection that for so long sends no whole query, or takes no answer, is closed (RFC 7766 section 6.2.3).
  std::chrono::milliseconds tcp_idle{10'000};
  std::vector<IpAddress> host_addresses{};  ///< of the supervisor's own host: no name leads there unless a rule's `ip:` does
  /// How many datagrams of whom are answered; absent only for measuring without.
  std::optional<FloodLimits> flood = FloodLimits{};
  GuessSender guess_sender{};  ///< for it: whose socket sends from there, where that is known without a search
};

/// Lives on one io_context and is destroyed there.
class Server {
 public:
  /// All references outlive the server. Starts serving at once. Either socket may be absent, not both.
  static Result<std::unique_ptr<Server>> Start(boost::asio::io_context& context, ServerOptions options, UpstreamClient& upstream,
                                               SyntheticPool& pool, const policy::CurrentPolicy& policy, policy::EventSink& sink);
  virtual ~Server() = default;
};

}  // namespace sluice::dns
