#pragma once

// The proxy: takes approved flows, relays opaque ones, terminates the others and judges each request. Read this header
// first; proxy/http1.h is the parser, proxy/io/exchange.cc the life of one request.
//
// One Engine per sandbox. It owns its workers (threads with an io_context each). Nothing here blocks the caller.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "dns/upstream_server.h"
#include "policy/event.h"
#include "proxy/client.h"
#include "proxy/flow.h"
#include "proxy/io/explicit_options.h"
#include "proxy/io/limits.h"

namespace boost::asio {
class io_context;
}
namespace sluice::dns {
class UpstreamClient;
}

namespace sluice::proxy {

class SecretStore;
class TlsAuthority;

/// What connections may take of the process's descriptors: the kernel gives the lowest free number, so that a number from
/// `ceiling` on means that less is left than others need.
struct DescriptorLimits {
  int limit = std::numeric_limits<int>::max();
  int ceiling = std::numeric_limits<int>::max();
};

/// What it took to judge everything open again after a change of policy: sums over the workers.
struct Rejudging {
  uint64_t passes = 0;                  ///< since the start; each worker makes one for each change
  size_t flows = 0;                     ///< connections judged
  size_t decisions = 0;                 ///< questions put to the policy: of equal ones, one on each worker
  size_t ended = 0;                     ///< connections
  std::chrono::microseconds closing{};  ///< from PolicyChanged to the last socket closed, on the slowest worker
};

struct EngineOptions {
  std::shared_ptr<TlsAuthority> authority;  ///< the sandbox's; null: the engine makes one
  unsigned workers = 0;                     ///< 0: one per core this process may use
  std::shared_ptr<SecretStore> secrets;     ///< what credentials are made of; null: none is known, and rules with one answer 502
  dns::UpstreamOptions lookups;             ///< which resolvers are asked, and how; its seal is on what is dialled, too
  std::vector<std::string> upstream_ca_files;  ///< PEM roots beside the system's
  bool ready_later = false;                    ///< Start does not wait until they are read: Ready does, before anything is let in
  std::vector<IpAddress> host_addresses;       ///< addresses of the supervisor's own host, special to the address guard
  size_t max_flows = 16384;                    ///< over it, a flow is reset and the event says kLimit
  DescriptorLimits descriptors{};              ///< the same
  Deadlines deadlines{};
  bool mirror_certificates = false;         ///< certificates for clients have the subject and names of the upstream's, met first
  uint64_t max_body_bytes = kMaxBodyBytes;  ///< of one message: over it 413, or 502 for a response
  std::shared_ptr<const ExplicitOptions> explicit_proxy{};  ///< for AcceptClient; null: there are no such clients
};

struct FetchRequest {
  std::string url;
  std::string entity_tag{};  ///< for If-None-Match; empty: none
  size_t most = 0;           ///< bytes of the answer's body
};
struct FetchAnswer {
  int status = 0;
  std::string entity_tag{};
  std::string body{};
};

class Engine {
 public:
  /// References outlive the engine.
  static Result<std::unique_ptr<Engine>> Start(EngineOptions options, const policy::CurrentPolicy& policy,
                                               policy::EventSink& sink);
  /// Closes every flow and joins the workers.
  virtual ~Engine() = default;

  /// Where Start was told not to, waits for what a thread does meanwhile. kInvalid: roots that cannot be read.
  [[nodiscard]] virtual Result<void> Ready() = 0;

  /// The sandbox's certificate authority in PEM (certificate only), to be trusted by the workload.
  [[nodiscard]] virtual const std::string& AuthorityPem() const = 0;

  /// For a blocking connect: resolve, judge each address and dial now, and keep the connection for the flow of this id
  /// (10 s). `done` runs once, on a worker: 0, or the errno a native connect would have given (EACCES when policy refuses
  /// every address, ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH). Any thread.
  virtual void Prepare(uint64_t id, FlowTarget target, std::function<void(int)> done) = 0;

  /// Takes the flow over. The snapshot in force is asked again. Any thread.
  virtual void Accept(Flow flow) = 0;

  /// Takes over a client that speaks to the proxy itself (CONNECT, absolute form, SOCKS5). Only with `explicit_proxy`. Any
  /// thread.
  virtual void AcceptClient(Client client) = 0;

  /// Ends clients that have nothing under way; the others go on. Any thread.
  virtual void Drain() = 0;

  /// Flows that have not ended. Any thread.
  [[nodiscard]] virtual size_t Open() const = 0;

  /// One GET of an https URL of the operator's own, past the policy: sealed, resolved and verified as an upstream is. `done` runs
  /// once, on a worker, unless the engine ends before. Any thread.
  virtual void Fetch(FetchRequest request, std::function<void(Result<FetchAnswer>)> done) = 0;

  /// Closes, within 100 ms, what the policy now in force no longer allows. Any thread, after CurrentPolicy::Set.
  virtual void PolicyChanged() = 0;
  /// Of the last change that each worker is through with. Any thread.
  [[nodiscard]] virtual Rejudging LastRejudging() const = 0;

  /// Context and DNS client of worker 0, for the resolver that serves the sandbox.
  [[nodiscard]] virtual boost::asio::io_context& ResolverContext() = 0;
  [[nodiscard]] virtual dns::UpstreamClient& ResolverClient() = 0;
};

}  // namespace sluice::proxy
