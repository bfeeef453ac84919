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
#include "dns/cached_entry.h"
#include "dns/flood_gate.h"
#include "dns/io/upstream.h"
#include "dns/lease.h"
#include "dns/limiter.h"
#include "dns/name_history.h"
#include "dns/synthetic.h"
#include "policy/event.h"

namespace sluice::dns {

/// Who sent this datagram or opened this connection; null when nobody can be found. May take some tens of microseconds.
using AttributeClient = std::function<policy::ProcessPtr(policy::Transport, const Endpoint& client, const Endpoint& server)>;

/// What the workload is told of a denied name.
enum class DenialForm : uint8_t {
  kNxDomain,  ///< so that search lists go on
  kRefused,   ///< glibc then asks its next server; musl stops its search list
};

/// Whether an IPv6 address leads anywhere from here. Where not, AAAA is answered with NODATA, once the policy allowed the name.
enum class Ipv6Egress : uint8_t { kPresent, kAbsent };

struct ServerOptions {
  UniqueFd udp;  ///< bound to [::]:53, dual-stack, IP_PKTINFO and IPV6_RECVPKTINFO on: answers leave from the address asked
  UniqueFd tcp;  ///< listening on [::]:53, dual-stack
  AttributeClient attribute;
  Limits limits{};
  std::shared_ptr<SharedRations> rations{};  ///< null: nobody else has any part in them
  /// Whose words count in the limits on names under wildcards: what a rule of this policy spells is meant, and what it leaves to
  /// a wildcard is counted under it. Null: the policy in force; another where that is not the operator's.
  policy::SnapshotPtr spelled_by{};
  /// A TCP connection that for so long sends no whole query, or takes no answer, is closed (RFC 7766 section 6.2.3).
  std::chrono::milliseconds tcp_idle{10'000};
  std::vector<IpAddress> host_addresses{};  ///< of the supervisor's own host: no name leads there unless a rule's `ip:` does
  /// How many queries of whom are answered, over both transports; absent only for measuring without.
  std::optional<FloodLimits> flood = FloodLimits{};
  GuessSender guess_sender{};  ///< for it: whose socket sends from there, where that is known without a search
  DenialForm denial = DenialForm::kNxDomain;
  Ipv6Egress ipv6 = Ipv6Egress::kPresent;
  /// A canonical name that stands for the loopback, without a record: only who knows it can ask whether this resolver answers.
  /// Empty: none.
  std::string canary{};

  // For a policy with `dns: real`. Which kind of answer is given is asked of the policy in force each time.
  /// Told of every address before it is answered. Null: such a policy gets SERVFAIL for every address.
  std::shared_ptr<NameHistory> history{};
  /// Called with the leases of all answers that became ready in one turn of the loop, under CurrentPolicy::Hold, before any of
  /// them is sent. What it refuses, or takes longer than kPublishLimit over, is answered with SERVFAIL and no address. Absent: no
  /// leases, every connection goes through the proxy.
  Publish publish{};
};

inline constexpr std::chrono::milliseconds kPublishLimit{50};

/// Lives on one io_context and is destroyed there.
class Server {
 public:
  /// All references outlive the server. Starts serving at once. Either socket may be absent, not both.
  static Result<std::unique_ptr<Server>> Start(boost::asio::io_context& context, ServerOptions options, UpstreamClient& upstream,
                                               SyntheticPool& pool, const policy::CurrentPolicy& policy, policy::EventSink& sink);
  virtual ~Server() = default;
  /// The kernel may have lost leases (somebody else changed its sets): each is published again before the next answer that counts
  /// on it. Any thread.
  virtual void ForgetLeases() = 0;
  /// Adds to entries of the upstream client's caches the leases that were published through this server and still count, where
  /// they hold for longer than what is noted already. On the context's thread.
  virtual void NoteLeases(std::vector<CachedEntry>* entries) const = 0;
};

}  // namespace sluice::dns
