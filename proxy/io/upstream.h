#pragma once

// Connections to the real world: dialled after each address was judged, verified, kept for reuse.

#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "policy/event.h"
#include "proxy/buffer.h"
#include "proxy/flow.h"
#include "proxy/io/reactor.h"
#include "proxy/io/stream.h"
#include "proxy/io/task.h"
#include "proxy/io/tls.h"

namespace sluice::proxy {

class Worker;

/// One connection to one address.
struct Upstream {
  Stream stream;
  Buffer in;
  IpAddress address;
  SteadyTime idle_since{};
  bool trimmed = false;
  bool reused = false;  ///< was idle before this exchange: it may have died unseen
  bool bound = false;   ///< authenticated as a whole (NTLM, Negotiate): only the session that did so may use it
};
using UpstreamPtr = std::unique_ptr<Upstream>;

/// Whether an idle connection is still what it was: nothing may arrive on it but a session ticket.
[[nodiscard]] bool IsIdle(Upstream& upstream);

/// Idle keep-alive connections of one worker. Emptied when the policy changes, since an address may no longer be allowed.
class UpstreamPool {
 public:
  /// The one to take next, or null. Dead ones on the way are dropped.
  [[nodiscard]] Upstream* Peek(const std::string& key);
  /// Takes what Peek returned.
  [[nodiscard]] UpstreamPtr Take(const std::string& key);
  void Give(const std::string& key, UpstreamPtr upstream, SteadyTime now);
  /// Drops all idle ones of this key: one of them was found dead.
  void Drop(const std::string& key);
  /// Drops what is too old or was closed by its peer.
  void Sweep(SteadyTime now);
  void Clear();
  [[nodiscard]] size_t size() const { return size_; }

 private:
  void DropOldest();
  std::unordered_map<std::string, std::vector<UpstreamPtr>> idle_;
  size_t size_ = 0;
};

/// Where a connection is to go. The name is empty for a literal.
struct DialTarget {
  std::string name;
  IpAddress literal;
  uint16_t port = 0;
  policy::ProcessPtr process{};
  AlpnOffer offer = AlpnOffer::kHttp11;  ///< to a TLS upstream
};

/// Which step failed, for a person and for errno.
struct DialFailure {
  int error = 0;  ///< as connect(2) would give it
  uint16_t status = 502;
  std::string_view proxy_error;             ///< RFC 9209
  std::string detail;                       ///< a sentence
  std::optional<policy::Decision> refused;  ///< every address was refused; this is the last refusal
  std::optional<IpAddress> address;
  bool wants_h2 = false;  ///< it speaks no HTTP/1.1 (RFC 7301 section 3.2)
};
template <class T>
using DialResult = std::expected<T, DialFailure>;

/// Judges one address just before it is dialled.
using AddressJudge = std::function<policy::Decision(const IpAddress&)>;

/// Resolves, judges, connects. The connection is plain TCP.
[[nodiscard]] Task<DialResult<UpstreamPtr>> Dial(Worker& worker, Waiter& waiter, DialTarget target, AddressJudge judge);

/// TLS on a fresh connection, verified against the target's name or address.
[[nodiscard]] Task<std::optional<DialFailure>> SecureUpstream(Worker& worker, Waiter& waiter, Upstream& upstream,
                                                              DialTarget target);

/// What the policy says of a flow's connection, the addresses of the supervisor's own host refused unless an `ip` names the very
/// address. `address` absent: not known yet (a literal is its own address).
[[nodiscard]] policy::ConnectQuery QueryFor(Worker& worker, const FlowTarget& target, std::optional<IpAddress> address);
[[nodiscard]] policy::ConnectDecision JudgeConnect(Worker& worker, const FlowTarget& target, std::optional<IpAddress> address);

/// A sentence.
[[nodiscard]] std::string OutOfDescriptors(size_t open_connections, int limit);

/// Pool key of a target.
[[nodiscard]] std::string PoolKey(policy::Scheme scheme, const DialTarget& target);

}  // namespace sluice::proxy
