#include "proxy/io/upstream.h"

#include <fmt/format.h>

#include <cerrno>

#include "base/keyed_hash.h"
#include "proxy/io/dial.h"
#include "proxy/io/limits.h"
#include "proxy/io/secret_store.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {

std::string TargetText(const DialTarget& target) {
  return target.name.empty() ? Endpoint{target.literal, target.port}.ToString() : fmt::format("{}:{}", target.name, target.port);
}

bool IsForwarded(const DialTarget& target) {
  return target.via != nullptr && target.via_use == ViaUse::kForward && target.via->kind != policy::UpstreamProxy::Kind::kSocks5;
}

std::string WayKey(const DialTarget& target) {
  if (target.via == nullptr) return {};
  const policy::UpstreamProxy& proxy = *target.via;
  const auto& login = proxy.basic ? proxy.basic : proxy.bearer;
  return fmt::format(" {} {} {} {}:{} login={} ca={}", IsForwarded(target) ? "forwarded by" : "via", proxy.name,
                     static_cast<int>(proxy.kind), proxy.address ? proxy.address->ToString() : proxy.host, proxy.port,
                     login ? SourceText(*login) : "", proxy.ca_file);
}

std::string IdentityKey(const DialTarget& target) {
  std::string key = WayKey(target);
  if (target.certificate != nullptr)
    key += fmt::format(" as {} {}", target.certificate->name, SourceText(target.certificate->from));
  if (!target.pins.empty()) key += " pins " + PinSetKey(target.pins);
  return key;
}

bool Fits(const Upstream& upstream, const DialTarget& target) {
  return upstream.identity == (upstream.secured ? IdentityKey(target) : WayKey(target));
}

bool IsIdle(Upstream& upstream) {
  if ((upstream.stream.channel.ready & (kBroken | kPeerDone)) != 0 || !upstream.in.empty()) return false;
  // What OpenSSL has read ahead, no event of the socket tells of.
  if (!upstream.stream.HasReadAhead() && (upstream.stream.channel.ready & kReadable) == 0) return true;
  char byte = 0;
  return upstream.stream.Read({&byte, 1}).status == IoStatus::kWouldBlock && !upstream.stream.channel.enough;
}

std::string OutOfDescriptors(size_t open_connections, int limit) {
  return fmt::format("out of descriptors: {} connections open, limit {}", open_connections, limit);
}

std::string PoolKey(policy::Scheme scheme, const DialTarget& target) {
  const std::string at = target.told ? "@" + target.literal.ToString() : "";
  return fmt::format("{} {}{}{}", scheme == policy::Scheme::kHttps ? 's' : 'h', TargetText(target), at, IdentityKey(target));
}

policy::ConnectQuery QueryFor(Worker& worker, const FlowTarget& target, std::optional<IpAddress> address) {
  if (!address && target.host.empty()) address = target.destination.address;
  policy::ConnectQuery query;
  query.process = target.process.get();
  query.host = target.host;
  query.address = address;
  query.port = target.destination.port;
  query.now = SystemClock().Wall();
  query.host_addresses = worker.shared().options().host_addresses;
  return query;
}

policy::ConnectDecision JudgeRemote(Worker& worker, const FlowTarget& target) {
  if (target.host.empty()) return JudgeConnect(worker, target, std::nullopt);
  policy::ConnectQuery query = QueryFor(worker, target, std::nullopt);
  query.remote = true;
  return worker.Decide(query);
}

policy::ConnectDecision JudgeConnect(Worker& worker, const FlowTarget& target, std::optional<IpAddress> address) {
  const EngineOptions& options = worker.shared().options();
  if (options.explicit_proxy != nullptr && (address || target.host.empty())) {
    const Endpoint dialled{address.value_or(target.destination.address), target.destination.port};
    if (IsOwn(options.explicit_proxy->own, options.host_addresses, dialled))
      return {policy::ConnectVerdict::kDeny, {false, policy::Reason::kPrivateAddress, policy::RuleRef::kNone, false}};
  }
  return worker.Decide(QueryFor(worker, target, address));
}

Task<std::optional<DialFailure>> SecureUpstream(Worker& worker, Waiter& waiter, Upstream& upstream, DialTarget target) {
  TlsOffer offer;
  offer.name = target.name;
  offer.literal = target.literal;
  offer.alpn = target.offer;
  offer.pins = target.pins;
  std::string identity = IdentityKey(target);
  offer.session_key = TargetText(target) + identity;
  std::string what = TargetText(target);
  if (target.certificate != nullptr) {
    const SecretStore* store = worker.shared().options().secrets.get();
    const SecretLookup found =
        store != nullptr ? store->Find(target.certificate->from) : SecretLookup{nullptr, "its secret was not read"};
    if (found.secret == nullptr)
      co_return NoSecret(fmt::format("the client certificate {}", target.certificate->name), found.fault);
    offer.certificate = found.secret->Reveal();
    // A renewed certificate begins sessions of its own.
    offer.session_key += fmt::format(" {:x}", KeyedHash(offer.certificate));
  }
  auto failure = co_await Handshake(worker, waiter, upstream.stream, std::move(offer), std::move(what));
  upstream.secured = !failure;
  if (upstream.secured && worker.shared().options().mirror_certificates) {
    upstream.mirrored = MirroredFrom(upstream.stream.ssl(), target.name, target.literal);
    if (upstream.mirrored != nullptr)
      worker.shared().mirrors().Remember(PoolKey(policy::Scheme::kHttps, target), upstream.mirrored);
  }
  upstream.identity = std::move(identity);
  if (failure && !upstream.remote_name) failure->address = upstream.address;
  if (failure && upstream.via != nullptr) failure->detail += fmt::format(", through the upstream proxy {}", upstream.via->name);
  co_return failure;
}

Task<std::optional<DialFailure>> Handshake(Worker& worker, Waiter& waiter, Stream& stream, TlsOffer offer, std::string what) {
  TlsClient& client = worker.shared().client();
  DialFailure failure;
  failure.proxy_error = "proxy_internal_error";
  failure.detail = "cannot set up TLS";
  failure.error = EPROTO;
  const bool only_http11 = offer.alpn == AlpnOffer::kHttp11;
  if (!stream.StartTls(client.context(), Stream::Side::kClient)) co_return failure;
  if (const auto ready = client.Prepare(stream.ssl(), offer); !ready) {
    failure.detail = fmt::format("{}: {}", what, ready.error().message);
    co_return failure;
  }
  const SteadyTime deadline = worker.reactor().now() + worker.shared().options().deadlines.tls_handshake;
  for (;;) {
    const Io io = stream.Handshake();
    if (io.status == IoStatus::kOk) co_return std::nullopt;
    if (io.status != IoStatus::kWouldBlock) {
      const bool certificate = CertificateWasRefused(stream.ssl());
      failure.proxy_error = certificate ? "tls_certificate_error" : "tls_protocol_error";
      failure.wants_h2 = !certificate && only_http11 && RefusedAlpn();
      failure.detail = fmt::format("{} {}: {}", certificate ? "the certificate of" : "TLS failed with", what,
                                   DescribeHandshakeFailure(stream.ssl()));
      co_return failure;
    }
    const Wake wake = co_await waiter.Wait({&stream.channel, stream.read_needs}, deadline);
    if (wake == Wake::kReady) continue;
    failure.status = 504;
    failure.error = wake == Wake::kTimeout ? ETIMEDOUT : ECONNABORTED;
    failure.proxy_error = "connection_timeout";
    failure.detail = fmt::format("no TLS handshake with {} in time", what);
    co_return failure;
  }
}

}  // namespace sluice::proxy
