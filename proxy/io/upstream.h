#pragma once

// Connections to the real world: dialled after each address was judged, verified, kept for reuse.

#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/credential.h"
#include "policy/event.h"
#include "proxy/buffer.h"
#include "proxy/credential/redact.h"
#include "proxy/flow.h"
#include "proxy/io/mirror.h"
#include "proxy/io/reactor.h"
#include "proxy/io/stream.h"
#include "proxy/io/task.h"
#include "proxy/io/tls.h"
#include "proxy/spki.h"

namespace sluice::proxy {

class Worker;

/// Into a snapshot, which it keeps alive; null: none.
using ProxyPtr = std::shared_ptr<const policy::UpstreamProxy>;
using CredentialPtr = std::shared_ptr<const policy::Credential>;

/// One connection: to one address, or through an upstream proxy.
struct Upstream {
  Stream stream;
  Buffer in;
  IpAddress address;  ///< of the target; ::, where only the proxy knows it
  SteadyTime idle_since{};
  bool trimmed = false;
  bool reused = false;                ///< was idle before this exchange: it may have died unseen
  bool bound = false;                 ///< authenticated as a whole (NTLM, Negotiate): only the session that did so may use it
  bool secured = false;               ///< under TLS with the target, which a proxy's own TLS is not
  std::string identity{};             ///< of the way it was made for: WayKey, once secured IdentityKey
  ProxyPtr via{};                     ///< the proxy that it goes through; null: none
  std::string proxy_authorization{};  ///< for each request that the proxy is to forward; empty: none
  std::shared_ptr<const Redactor> proxy_login{};  ///< the same, to be kept out of what comes back; null: none
  MirroredPtr mirrored{};                         ///< of its certificate, where those are mirrored
  bool remote_name = false;  ///< the proxy looks the name up: what the policy says of addresses cannot be asked
  /// What the policy is asked with.
  [[nodiscard]] std::optional<IpAddress> known_address() const { return remote_name ? std::nullopt : std::optional(address); }
};
using UpstreamPtr = std::unique_ptr<Upstream>;

/// Whether an idle connection is still what it was: nothing may arrive on it but a session ticket.
[[nodiscard]] bool IsIdle(Upstream& upstream);

/// What the connection to a proxy becomes.
enum class ViaUse : uint8_t {
  kTunnel,   ///< a way to the target, by CONNECT or SOCKS5
  kForward,  ///< requests in absolute form are read by the proxy itself; SOCKS5 proxies tunnel all the same
};

/// Where a connection is to go, and how. The name is empty for a literal.
struct DialTarget {
  std::string name;
  IpAddress literal;
  uint16_t port = 0;
  policy::ProcessPtr process{};
  bool told = false;                     ///< `literal` is the one address of the name to dial, as in FlowTarget
  AlpnOffer offer = AlpnOffer::kHttp11;  ///< to a TLS upstream
  ProxyPtr via{};                        ///< null: directly
  ViaUse via_use = ViaUse::kTunnel;
  /// What a target or its proxy sends before anything was said to it.
  enum class EarlyBytes : uint8_t { kRefused, kKept };
  EarlyBytes early = EarlyBytes::kRefused;
  std::vector<SpkiPin> pins{};  ///< of which the chain of the target must show one; empty: none is asked for
  CredentialPtr certificate{};  ///< shown to a target that asks for one; null: none
};

/// Whether it is reached otherwise than directly, or by more than its name.
[[nodiscard]] inline bool IsRouted(const DialTarget& target) {
  return target.via != nullptr || !target.pins.empty() || target.certificate != nullptr;
}
/// Whether requests on such a connection are in absolute form.
[[nodiscard]] bool IsForwarded(const DialTarget& target);
/// What tells one way to a target from another, by value: through which proxy, as the policy describes it.
[[nodiscard]] std::string WayKey(const DialTarget& target);
/// The same with client certificate and pins.
[[nodiscard]] std::string IdentityKey(const DialTarget& target);
/// Whether a connection that was made ahead is one that would be made for `target`.
[[nodiscard]] bool Fits(const Upstream& upstream, const DialTarget& target);

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

/// Resolves, judges each address just before it is dialled, and connects: the addresses of both families in turn, each begun
/// kConnectStagger after the one before or once that has failed; the first that answers is taken (RFC 8305). Through a proxy, the
/// target's own literal is judged, and what connects is a tunnel, or the connection to the proxy (via.cc). No TLS to the target
/// yet.
[[nodiscard]] Task<DialResult<UpstreamPtr>> Dial(Worker& worker, Waiter& waiter, DialTarget target, AddressJudge judge);

/// TLS on a fresh connection, verified against the target's name or address, its pins, and with its client certificate.
[[nodiscard]] Task<std::optional<DialFailure>> SecureUpstream(Worker& worker, Waiter& waiter, Upstream& upstream,
                                                              DialTarget target);

/// "a.test:443", "[::1]:443".
[[nodiscard]] std::string TargetText(const DialTarget& target);
/// A failure for which the flow's own end is the reason.
[[nodiscard]] DialFailure Cancelled();

/// What the policy says of a flow's connection, the addresses of the supervisor's own host refused unless an `ip` names the very
/// address. `address` absent: not known yet (a literal is its own address).
[[nodiscard]] policy::ConnectQuery QueryFor(Worker& worker, const FlowTarget& target, std::optional<IpAddress> address);
/// What it says where the name is looked up by a proxy: ConnectQuery::remote. Of a literal, the same as ever.
[[nodiscard]] policy::ConnectDecision JudgeRemote(Worker& worker, const FlowTarget& target);
[[nodiscard]] policy::ConnectDecision JudgeConnect(Worker& worker, const FlowTarget& target, std::optional<IpAddress> address);

/// A sentence.
[[nodiscard]] std::string OutOfDescriptors(size_t open_connections, int limit);

/// Pool key of a target: everything that two connections must share to stand for each other.
[[nodiscard]] std::string PoolKey(policy::Scheme scheme, const DialTarget& target);

}  // namespace sluice::proxy
