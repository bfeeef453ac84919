#include "proxy/io/dial.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/fault.h"
#include "base/log.h"
#include "proxy/dial_order.h"
#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

// What is kept for reuse only is given back first. Not valid, errno set: none is left for connections.
UniqueFd OpenSocket(Worker& worker, int family) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    UniqueFd fd(Faulty("dial.socket", [&] { return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP); }));
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
  if (!ApplySeal(fd.get(), worker.shared().options().lookups.seal)) co_return errno;
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  const int raw = fd.get();
  const bool pending =
      Faulty("dial.connect", [&] { return connect(raw, reinterpret_cast<const sockaddr*>(&address), size); }) != 0;
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
  const auto ask = [&] { return getsockopt(raw, SOL_SOCKET, SO_ERROR, &error, &length); };
  // An error is an event of its own: without it, there is none to ask for.
  const bool told = (upstream.stream.channel.ready & (kBroken | kPeerDone)) != 0;
  if (Faulty("dial.outcome", [&] { return told ? ask() : 0; }) != 0) error = errno;
  if (error != 0) upstream.stream.Close();
  co_return error;
}

struct Attempt {
  explicit Attempt(Reactor& reactor) : waiter(reactor) {}
  Waiter waiter;
  UpstreamPtr upstream = std::make_unique<Upstream>();
  IpAddress address;
  int error = 0;
  bool running = true;
  bool counted = false;  ///< its failure was seen
};

// Nothing is touched once the parent was told: it may go on at once, and end the race.
detail::Detached RunAttempt(Worker& worker, Waiter& parent, Attempt& attempt, Endpoint to, SteadyTime deadline) {
  try {
    attempt.error = co_await ConnectOne(worker, attempt.waiter, *attempt.upstream, to, deadline);
  } catch (const std::exception& fault) {
    LogError("proxy dial: {}", fault.what());
    attempt.error = ENOMEM;
  }
  attempt.running = false;
  parent.Notify();
}

// Attempts under way side by side. Each waits for itself and wakes the one that races them.
class Race {
 public:
  Race(Worker& worker, Waiter& parent) : worker_(worker), parent_(parent) {}
  ~Race() {
    for (auto& attempt : attempts_) attempt->waiter.Cancel();
  }
  Race(const Race&) = delete;
  Race& operator=(const Race&) = delete;

  void Start(const Endpoint& to, SteadyTime deadline) {
    Attempt& attempt = *attempts_.emplace_back(std::make_unique<Attempt>(worker_.reactor()));
    attempt.address = to.address;
    RunAttempt(worker_, parent_, attempt, to, deadline);
  }

  /// The connection that was made, if one was. What was begun before it and has not answered counts as failed.
  UpstreamPtr TakeWinner() {
    for (size_t i = 0; i < attempts_.size(); ++i) {
      Attempt& attempt = *attempts_[i];
      if (attempt.running || attempt.error != 0) continue;
      for (size_t slow = 0; slow < i; ++slow)
        if (attempts_[slow]->running) worker_.failed_addresses().Add(attempts_[slow]->address, worker_.reactor().now());
      worker_.failed_addresses().Forget(attempt.address);
      attempt.upstream->address = attempt.address;
      return std::move(attempt.upstream);
    }
    return nullptr;
  }

  /// Whether an attempt has failed since the last call.
  bool NewFailure() {
    bool any = false;
    for (auto& attempt : attempts_) {
      if (attempt->running || attempt->error == 0 || attempt->counted) continue;
      attempt->counted = any = true;
      worker_.failed_addresses().Add(attempt->address, worker_.reactor().now());
    }
    return any;
  }

  [[nodiscard]] const Attempt* OutOfDescriptors() const {
    const auto found =
        std::ranges::find_if(attempts_, [](const auto& attempt) { return !attempt->running && attempt->error == EMFILE; });
    return found == attempts_.end() ? nullptr : found->get();
  }
  [[nodiscard]] size_t started() const { return attempts_.size(); }
  [[nodiscard]] bool running() const {
    return std::ranges::any_of(attempts_, [](const auto& attempt) { return attempt->running; });
  }

  /// All have failed: every one told, and the errno that says most.
  [[nodiscard]] DialFailure Failure(std::string_view what) const {
    std::vector<int> errors;
    std::string told;
    for (const auto& attempt : attempts_) {
      errors.push_back(attempt->error);
      told += fmt::format("{}{}: {}", told.empty() ? "" : "; ", attempt->address.ToString(),
                          std::generic_category().message(attempt->error));
    }
    DialFailure failure;
    failure.error = TellingErrno(errors);
    const auto first = std::ranges::find(errors, failure.error);
    failure.address = attempts_[static_cast<size_t>(first - errors.begin())]->address;
    const bool late = failure.error == ETIMEDOUT;
    failure.status = late ? 504 : 502;
    failure.proxy_error = late                            ? "connection_timeout"
                          : failure.error == ECONNREFUSED ? "connection_refused"
                                                          : "destination_ip_unroutable";
    failure.detail = fmt::format("cannot connect to {} at {}", what, told);
    return failure;
  }

 private:
  Worker& worker_;
  Waiter& parent_;
  std::vector<std::unique_ptr<Attempt>> attempts_;
};

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

DialFailure NoAddress(std::string_view what) {
  DialFailure failure;
  failure.error = EHOSTUNREACH;
  failure.proxy_error = "dns_error";
  failure.detail = fmt::format("{} has no address", what);
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

}  // namespace

DialFailure Cancelled() {
  DialFailure failure;
  failure.error = ECONNABORTED;
  failure.proxy_error = "connection_terminated";
  failure.detail = "the connection was closed meanwhile";
  return failure;
}

DialFailure NoSecret(std::string_view what, std::string_view fault) {
  DialFailure failure;
  failure.error = ECONNREFUSED;
  failure.proxy_error = "proxy_configuration_error";
  failure.detail = fmt::format("no secret for {}: {}", what, fault);
  return failure;
}

DialFailure AddressRefused(std::string_view what, const IpAddress& address, const policy::Decision& decision) {
  DialFailure failure;
  failure.error = EACCES;
  failure.status = 403;
  failure.proxy_error = "destination_ip_prohibited";
  failure.refused = decision;
  failure.address = address;
  failure.detail = fmt::format("{} is at {}, which the policy does not allow ({})", what, address.ToString(),
                               policy::ReasonText(decision.reason));
  return failure;
}

Task<DialResult<ResolvedName>> ResolveForDial(Worker& worker, Waiter& waiter, std::string name) {
  std::string asked = name;
  Result<ResolvedName> resolved = co_await worker.Resolve(waiter, std::move(asked));
  if (waiter.cancelled()) co_return std::unexpected(Cancelled());
  if (resolved) co_return *std::move(resolved);
  DialFailure failure;
  const bool late = resolved.error().code == Code::kTimeout;
  failure.error = late ? ETIMEDOUT : EHOSTUNREACH;
  failure.status = late ? 504 : 502;
  failure.proxy_error = late ? "dns_timeout" : "dns_error";
  failure.detail = fmt::format("cannot resolve {}: {}", name, resolved.error().message);
  co_return std::unexpected(std::move(failure));
}

Task<DialResult<UpstreamPtr>> ConnectFirst(Worker& worker, Waiter& waiter, std::string what, std::vector<IpAddress> order,
                                           uint16_t port, AddressJudge judge) {
  Reactor& reactor = worker.reactor();
  const SteadyTime total = reactor.now() + kConnectTotal;
  SteadyTime due = reactor.now();
  std::optional<DialFailure> refused;
  Race race(worker, waiter);
  for (size_t next = 0;;) {
    if (UpstreamPtr won = race.TakeWinner(); won != nullptr) co_return won;
    if (race.NewFailure()) due = reactor.now();
    if (const Attempt* starved = race.OutOfDescriptors()) co_return std::unexpected(NoDescriptor(worker, starved->address));
    const bool more = next < order.size() && race.started() < kMaxAddressesTried && reactor.now() < total;
    if (more && (reactor.now() >= due || !race.running())) {
      const IpAddress address = order[next++];
      const policy::Decision decision = judge(address);
      if (!decision.allowed) {
        refused = AddressRefused(what, address, decision);
        continue;
      }
      due = reactor.now() + kConnectStagger;
      race.Start({address, port}, std::min<SteadyTime>(total, reactor.now() + kConnectDeadline));
      continue;
    }
    if (!race.running()) break;
    // Each attempt has a deadline of its own, and wakes this one.
    (void)co_await waiter.Wait({}, more ? due : total + kConnectDeadline);
    if (waiter.cancelled()) co_return std::unexpected(Cancelled());
  }
  if (race.started() != 0) co_return std::unexpected(race.Failure(what));
  co_return std::unexpected(refused ? *std::move(refused) : NoAddress(what));
}

Task<DialResult<UpstreamPtr>> Dial(Worker& worker, Waiter& waiter, DialTarget target, AddressJudge judge) {
  if (target.via != nullptr) {
    // A name is looked up by the proxy, which alone knows where it leads.
    if (target.name.empty()) {
      if (const policy::Decision decision = judge(target.literal); !decision.allowed)
        co_return std::unexpected(AddressRefused(TargetText(target), target.literal, decision));
    }
    co_return co_await DialThroughProxy(worker, waiter, std::move(target));
  }
  std::string what = TargetText(target);
  std::vector<IpAddress> order{target.literal};
  if (!target.name.empty()) {
    std::string name = target.name;
    auto resolved = co_await ResolveForDial(worker, waiter, std::move(name));
    if (!resolved) co_return std::unexpected(std::move(resolved.error()));
    if (auto refused = RefusedAlias(worker, target, *resolved)) co_return std::unexpected(std::move(*refused));
    if (!target.told) order = DialOrder(resolved->addresses, worker.failed_addresses(), worker.reactor().now());
  }
  std::vector<IpAddress> tried = order;
  std::string text = what;
  AddressJudge same = judge;
  auto connected = co_await ConnectFirst(worker, waiter, std::move(text), std::move(order), target.port, std::move(same));
  if (connected || target.name.empty() || waiter.cancelled()) co_return connected;
  // Addresses of the other family may have come meanwhile (RFC 8305 section 3).
  std::string name = target.name;
  auto again = co_await ResolveForDial(worker, waiter, std::move(name));
  if (!again || RefusedAlias(worker, target, *again)) co_return connected;
  std::erase_if(again->addresses, [&](const IpAddress& address) { return std::ranges::find(tried, address) != tried.end(); });
  if (again->addresses.empty()) co_return connected;
  std::vector<IpAddress> more = DialOrder(again->addresses, worker.failed_addresses(), worker.reactor().now());
  co_return co_await ConnectFirst(worker, waiter, std::move(what), std::move(more), target.port, std::move(judge));
}

}  // namespace sluice::proxy
