#include "proxy/io/upstream.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "proxy/io/limits.h"
#include "proxy/io/tls.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

std::string TargetText(const DialTarget& target) {
  return target.name.empty() ? Endpoint{target.literal, target.port}.ToString() : fmt::format("{}:{}", target.name, target.port);
}

DialFailure ConnectFailure(const DialTarget& target, const IpAddress& address, int error) {
  DialFailure failure;
  failure.error = error;
  failure.address = address;
  const bool late = error == ETIMEDOUT;
  failure.status = late ? 504 : 502;
  failure.proxy_error = late ? "connection_timeout" : error == ECONNREFUSED ? "connection_refused" : "destination_ip_unroutable";
  failure.detail = fmt::format("cannot connect to {} at {}: {}", TargetText(target), address.ToString(),
                               std::generic_category().message(error));
  return failure;
}

DialFailure NoDescriptor(Worker& worker, const IpAddress& address) {
  DialFailure failure;
  failure.error = ENOBUFS;
  failure.status = 503;
  failure.proxy_error = "connection_limit_reached";
  failure.refused = policy::Decision{false, policy::Reason::kLimit, policy::RuleRef::kNone, false};
  failure.address = address;
  failure.detail =
      OutOfDescriptors(worker.shared().flows.load(std::memory_order_relaxed), worker.shared().options().descriptors.limit);
  return failure;
}

DialFailure Cancelled() {
  DialFailure failure;
  failure.error = ECONNABORTED;
  failure.proxy_error = "connection_terminated";
  failure.detail = "the connection was closed meanwhile";
  return failure;
}

DialFailure ResolveFailure(const DialTarget& target, const Error& error) {
  DialFailure failure;
  const bool late = error.code == Code::kTimeout;
  failure.error = late ? ETIMEDOUT : EHOSTUNREACH;
  failure.status = late ? 504 : 502;
  failure.proxy_error = late ? "dns_timeout" : "dns_error";
  failure.detail = fmt::format("cannot resolve {}: {}", target.name, error.message);
  return failure;
}

// A deny of a name holds for the names that lead to it.
std::optional<DialFailure> RefusedAlias(Worker& worker, const DialTarget& target, const ResolvedName& resolved) {
  for (const std::string& alias : resolved.aliases) {
    const auto verdict =
        worker.snapshot()->DecideName({.process = target.process.get(), .name = alias, .type = 1, .now = SystemClock().Wall()});
    if (verdict.decision.reason != policy::Reason::kDenyRule || verdict.decision.audit_only) continue;
    DialFailure failure;
    failure.error = EACCES;
    failure.status = 403;
    failure.proxy_error = "destination_ip_prohibited";
    failure.refused = verdict.decision;
    failure.detail = fmt::format("{} is an alias of {}, which a rule denies", target.name, alias);
    return failure;
  }
  return std::nullopt;
}

// What is kept for reuse only is given back first. Not valid, errno set: none is left for connections.
UniqueFd OpenSocket(Worker& worker, int family) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
    if (!fd && errno != EMFILE && errno != ENFILE) return fd;
    if (fd && fd.get() < worker.shared().options().descriptors.ceiling) return fd;
    fd.Reset();
    worker.GiveBackSpare();
  }
  errno = EMFILE;
  return {};
}

// 0 or an errno, EMFILE for no descriptor left. The socket is left connected in `upstream`.
Task<int> ConnectOne(Worker& worker, Waiter& waiter, Upstream& upstream, Endpoint to, SteadyTime deadline) {
  sockaddr_storage address{};
  const auto size = static_cast<socklen_t>(to.ToSockaddr(&address));
  UniqueFd fd = OpenSocket(worker, address.ss_family);
  if (!fd) co_return errno;
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  const int raw = fd.get();
  const bool pending = connect(raw, reinterpret_cast<const sockaddr*>(&address), size) != 0;
  if (pending && errno != EINPROGRESS) co_return errno;
  if (!upstream.stream.channel.Open(worker.reactor(), std::move(fd), 0)) co_return ENFILE;
  if (!pending) upstream.stream.channel.ready = kWritable;
  const Wake wake = co_await waiter.Wait({&upstream.stream.channel, kWritable}, deadline);
  if (wake != Wake::kReady) {
    upstream.stream.Close();
    co_return wake == Wake::kTimeout ? ETIMEDOUT : ECONNABORTED;
  }
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(raw, SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) upstream.stream.Close();
  co_return error;
}

}  // namespace

bool IsIdle(Upstream& upstream) {
  if ((upstream.stream.channel.ready & (kBroken | kPeerDone)) != 0 || !upstream.in.empty()) return false;
  // What OpenSSL has read ahead, no event of the socket tells of.
  const bool ahead = upstream.stream.ssl() != nullptr && SSL_has_pending(upstream.stream.ssl()) == 1;
  if (!ahead && (upstream.stream.channel.ready & kReadable) == 0) return true;
  char byte = 0;
  return upstream.stream.Read({&byte, 1}).status == IoStatus::kWouldBlock;
}

std::string OutOfDescriptors(size_t open_connections, int limit) {
  return fmt::format("out of descriptors: {} connections open, limit {}", open_connections, limit);
}

std::string PoolKey(policy::Scheme scheme, const DialTarget& target) {
  return fmt::format("{} {}", scheme == policy::Scheme::kHttps ? 's' : 'h', TargetText(target));
}

Upstream* UpstreamPool::Peek(const std::string& key) {
  const auto found = idle_.find(key);
  if (found == idle_.end()) return nullptr;
  auto& stack = found->second;
  while (!stack.empty()) {
    if (IsIdle(*stack.back())) return stack.back().get();
    stack.pop_back();
    --size_;
  }
  return nullptr;
}

UpstreamPtr UpstreamPool::Take(const std::string& key) {
  auto& stack = idle_.find(key)->second;
  UpstreamPtr upstream = std::move(stack.back());
  stack.pop_back();
  --size_;
  upstream->reused = true;
  upstream->trimmed = false;
  return upstream;
}

void UpstreamPool::Give(const std::string& key, UpstreamPtr upstream, SteadyTime now) {
  auto& stack = idle_[key];
  if (stack.size() >= kMaxIdlePerKey) return;
  if (size_ >= kMaxIdleUpstreams) DropOldest();
  upstream->idle_since = now;
  idle_[key].push_back(std::move(upstream));
  ++size_;
}

void UpstreamPool::DropOldest() {
  auto oldest = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    if (it->second.empty()) continue;
    if (oldest == idle_.end() || it->second.front()->idle_since < oldest->second.front()->idle_since) oldest = it;
  }
  if (oldest == idle_.end()) return;
  oldest->second.erase(oldest->second.begin());
  --size_;
}

void UpstreamPool::Sweep(SteadyTime now) {
  for (auto it = idle_.begin(); it != idle_.end();) {
    size_ -= std::erase_if(
        it->second, [&](const UpstreamPtr& upstream) { return now - upstream->idle_since > kPoolIdle || !IsIdle(*upstream); });
    for (auto& upstream : it->second) {
      if (upstream->trimmed || now - upstream->idle_since < kTrimAfter) continue;
      upstream->in.Release();
      upstream->stream.Trim();
      upstream->trimmed = true;
    }
    it = it->second.empty() ? idle_.erase(it) : std::next(it);
  }
}

void UpstreamPool::Drop(const std::string& key) {
  const auto found = idle_.find(key);
  if (found == idle_.end()) return;
  size_ -= found->second.size();
  idle_.erase(found);
}

void UpstreamPool::Clear() {
  idle_.clear();
  size_ = 0;
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

policy::ConnectDecision JudgeConnect(Worker& worker, const FlowTarget& target, std::optional<IpAddress> address) {
  const EngineOptions& options = worker.shared().options();
  if (options.explicit_proxy != nullptr && (address || target.host.empty())) {
    const Endpoint dialled{address.value_or(target.destination.address), target.destination.port};
    if (IsOwn(options.explicit_proxy->own, options.host_addresses, dialled))
      return {policy::ConnectVerdict::kDeny, {false, policy::Reason::kPrivateAddress, policy::RuleRef::kNone, false}};
  }
  return worker.snapshot()->DecideConnect(QueryFor(worker, target, address));
}

Task<DialResult<UpstreamPtr>> Dial(Worker& worker, Waiter& waiter, DialTarget target, AddressJudge judge) {
  const SteadyTime total = worker.reactor().now() + kConnectTotal;
  std::vector<IpAddress> addresses;
  if (target.name.empty()) {
    addresses.push_back(target.literal);
  } else {
    std::string name = target.name;
    Result<ResolvedName> resolved = co_await worker.Resolve(waiter, std::move(name));
    if (waiter.cancelled()) co_return std::unexpected(Cancelled());
    if (!resolved) co_return std::unexpected(ResolveFailure(target, resolved.error()));
    if (auto refused = RefusedAlias(worker, target, *resolved)) co_return std::unexpected(std::move(*refused));
    addresses = std::move(resolved->addresses);
  }
  DialFailure last;
  last.error = EHOSTUNREACH;
  last.proxy_error = "dns_error";
  last.detail = fmt::format("{} has no address", TargetText(target));
  size_t tried = 0;
  auto upstream = std::make_unique<Upstream>();
  for (const IpAddress& address : addresses) {
    const policy::Decision decision = judge(address);
    if (!decision.allowed) {
      if (tried != 0) continue;
      last = {};
      last.error = EACCES;
      last.status = 403;
      last.proxy_error = "destination_ip_prohibited";
      last.refused = decision;
      last.address = address;
      last.detail = fmt::format("{} is at {}, which the policy does not allow ({})", TargetText(target), address.ToString(),
                                policy::ReasonText(decision.reason));
      continue;
    }
    if (tried++ == kMaxAddressesTried || worker.reactor().now() >= total) break;
    const Endpoint to{address, target.port};
    const SteadyTime deadline = std::min(total, worker.reactor().now() + kConnectDeadline);
    const int error = co_await ConnectOne(worker, waiter, *upstream, to, deadline);
    if (error == 0) {
      upstream->address = address;
      co_return upstream;
    }
    if (waiter.cancelled()) co_return std::unexpected(Cancelled());
    if (error == EMFILE) co_return std::unexpected(NoDescriptor(worker, address));
    last = ConnectFailure(target, address, error);
  }
  co_return std::unexpected(std::move(last));
}

Task<std::optional<DialFailure>> SecureUpstream(Worker& worker, Waiter& waiter, Upstream& upstream, DialTarget target) {
  TlsClient& client = worker.shared().client();
  const std::string key = TargetText(target);
  DialFailure failure;
  failure.proxy_error = "proxy_internal_error";
  failure.detail = "cannot set up TLS";
  failure.address = upstream.address;
  failure.error = EPROTO;
  if (!upstream.stream.StartTls(client.context(), Stream::Side::kClient) ||
      !client.Prepare(upstream.stream.ssl(), target.name, target.literal, key) || !OfferAlpn(upstream.stream.ssl(), target.offer))
    co_return failure;
  const SteadyTime deadline = worker.reactor().now() + kTlsHandshakeDeadline;
  for (;;) {
    const Io io = upstream.stream.Handshake();
    if (io.status == IoStatus::kOk) co_return std::nullopt;
    if (io.status != IoStatus::kWouldBlock) {
      const bool certificate = CertificateWasRefused(upstream.stream.ssl());
      failure.proxy_error = certificate ? "tls_certificate_error" : "tls_protocol_error";
      failure.wants_h2 = !certificate && target.offer == AlpnOffer::kHttp11 && RefusedAlpn();
      failure.detail = fmt::format("{} {}: {}", certificate ? "the certificate of" : "TLS failed with", key,
                                   DescribeHandshakeFailure(upstream.stream.ssl()));
      co_return failure;
    }
    const Wake wake = co_await waiter.Wait({&upstream.stream.channel, upstream.stream.read_needs}, deadline);
    if (wake == Wake::kReady) continue;
    failure.status = 504;
    failure.error = wake == Wake::kTimeout ? ETIMEDOUT : ECONNABORTED;
    failure.proxy_error = "connection_timeout";
    failure.detail = fmt::format("no TLS handshake with {} in time", key);
    co_return failure;
  }
}

}  // namespace sluice::proxy
