#include "proxy/io/obtain.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "proxy/io/h2_upstream.h"
#include "proxy/io/limits.h"
#include "proxy/io/tls.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

constexpr std::chrono::milliseconds kSettingsPoll{10};

// Ends the flight however the dialling ends.
class Landing {
 public:
  Landing(H2Pool& pool, std::string key) : pool_(pool), key_(std::move(key)) {}
  ~Landing() { pool_.Land(key_, std::move(failure)); }
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;
  std::optional<DialFailure> failure;

 private:
  H2Pool& pool_;
  const std::string key_;
};

// Dials, unless one is ready, and secures it. What `target` offers tells which protocols may come of it.
Task<DialResult<Obtained>> Connect(Worker& worker, Waiter& waiter, UpstreamAsk ask) {
  UpstreamPtr upstream = std::move(ask.ready);
  if (upstream == nullptr) {
    DialTarget copy = ask.target;
    auto dialled = co_await Dial(worker, waiter, std::move(copy), std::move(ask.judge));
    if (!dialled) co_return std::unexpected(std::move(dialled.error()));
    upstream = std::move(*dialled);
  }
  const bool either = ask.target.offer == AlpnOffer::kH2First;
  bool h2 = either;  // in the clear, whoever knows that HTTP/2 is spoken here knows it of the upstream
  if (ask.scheme == policy::Scheme::kHttps) {
    if (!upstream->secured) {
      auto failure = co_await SecureUpstream(worker, waiter, *upstream, std::move(ask.target));
      if (failure) co_return std::unexpected(std::move(*failure));
    }
    h2 = ChoseH2(upstream->stream.ssl());
  }
  H2Pool& pool = worker.h2_pool();
  if (either && (!h2 || pool.Known(ask.key) != H2Pool::Speaks::kH2Only))
    pool.Remember(ask.key, h2 ? H2Pool::Speaks::kH2 : H2Pool::Speaks::kHttp11);
  Obtained obtained;
  if (h2) {
    obtained.shared = H2Upstream::Start(worker, std::move(upstream), ask.scheme);
    pool.Add(ask.key, obtained.shared);
  } else {
    obtained.own = std::move(upstream);
  }
  co_return obtained;
}

/// One dial of a request that may be served otherwise before it ends. The request's own policy judges the addresses: without
/// the request, no further one is tried.
struct OwnDial {
  OwnDial(Reactor& reactor, Waiter& asks) : waiter(reactor), asker(&asks) {}
  Waiter waiter;
  Waiter* asker;  ///< null: it has what it wanted, or is gone
  std::optional<DialResult<Obtained>> outcome;
};

// Nothing is touched once the asker was told: it may go on at once.
detail::Detached RunDial(Worker& worker, std::shared_ptr<OwnDial> dial, UpstreamAsk ask) {
  std::string key = ask.key;
  ask.judge = [&asker = dial->asker, judge = std::move(ask.judge)](const IpAddress& address) {
    return asker != nullptr ? judge(address) : policy::Decision{.allowed = false, .reason = policy::Reason::kUpstream};
  };
  DialResult<Obtained> result = std::unexpected(Cancelled());
  try {
    result = co_await Connect(worker, dial->waiter, std::move(ask));
  } catch (const std::exception& fault) {
    LogError("proxy dial: {}", fault.what());
  }
  if (dial->asker != nullptr) {
    dial->outcome = std::move(result);
    dial->asker->Notify();
    co_return;
  }
  worker.pool().LateEnded(&dial->waiter);
  if (result && result->own != nullptr) worker.pool().Give(key, std::move(result->own), worker.reactor().now());
}

// Lets go of the dial however the request goes on.
class LettingGo {
 public:
  LettingGo(UpstreamPool& pool, const std::string& key, std::shared_ptr<OwnDial> dial)
      : pool_(pool), key_(key), dial_(std::move(dial)) {}
  ~LettingGo() {
    dial_->asker = nullptr;
    if (!dial_->outcome && (!served || !pool_.KeepLate(key_, &dial_->waiter))) dial_->waiter.Cancel();
  }
  LettingGo(const LettingGo&) = delete;
  LettingGo& operator=(const LettingGo&) = delete;
  bool served = false;  ///< by another connection than its own

 private:
  UpstreamPool& pool_;
  const std::string& key_;
  const std::shared_ptr<OwnDial> dial_;
};

// The request's own dial, or a connection that another gives back, whichever comes first.
Task<DialResult<Obtained>> DialOrWait(Worker& worker, Waiter& waiter, UpstreamAsk ask) {
  const std::string key = ask.key;
  const UsableJudge usable = ask.usable;
  UpstreamPool::Want want(worker.pool(), key, waiter, usable);
  const auto dial = std::make_shared<OwnDial>(worker.reactor(), waiter);
  LettingGo letting_go(worker.pool(), key, dial);
  RunDial(worker, dial, std::move(ask));
  for (;;) {
    if (waiter.cancelled()) co_return std::unexpected(Cancelled());
    if (dial->outcome && *dial->outcome) co_return *std::move(dial->outcome);
    if (UpstreamPtr came = want.Take(); came != nullptr) {
      letting_go.served = true;
      co_return Obtained{std::move(came), nullptr};
    }
    if (dial->outcome) co_return *std::move(dial->outcome);
    // A dial has deadlines of its own, and tells of its end.
    (void)co_await waiter.Wait({}, SteadyTime::max());
  }
}

// Nothing is waited for where it is not another's to give back: where it is there already, or must be new.
Task<DialResult<Obtained>> DialFor(Worker& worker, Waiter& waiter, UpstreamAsk ask) {
  const bool waits = ask.ready == nullptr && ask.reuse == UpstreamAsk::Reuse::kAny;
  if (waits) co_return co_await DialOrWait(worker, waiter, std::move(ask));
  co_return co_await Connect(worker, waiter, std::move(ask));
}

}  // namespace

Task<DialResult<Obtained>> Obtain(Worker& worker, Waiter& waiter, UpstreamAsk ask) {
  H2Pool& pool = worker.h2_pool();
  ask.target.offer = AlpnOffer::kH2First;
  for (;;) {
    Obtained obtained;
    if (auto shared = pool.Find(ask.key); shared != nullptr && ask.usable(shared->address())) {
      obtained.shared = std::move(shared);
      co_return obtained;
    }
    if (ask.scheme == policy::Scheme::kHttps && pool.Known(ask.key) == H2Pool::Speaks::kHttp11) {
      if (ask.ready == nullptr) obtained.own = worker.pool().Take(ask.key, ask.usable);
      if (obtained.own != nullptr) co_return obtained;
      co_return co_await DialFor(worker, waiter, std::move(ask));
    }
    H2Pool::FlightPtr flight = pool.Join(ask.key);
    if (flight == nullptr) {
      Landing landing(pool, ask.key);
      auto result = co_await Connect(worker, waiter, std::move(ask));
      // What the policy says of an address it says to one request.
      if (!result && !result.error().refused && !waiter.cancelled()) landing.failure = result.error();
      co_return result;
    }
    flight->waiting.push_back(&waiter);
    if (!flight->landed) (void)co_await waiter.Wait({}, worker.reactor().now() + kConnectTotal + kTlsHandshakeDeadline);
    std::erase(flight->waiting, &waiter);
    waiter.ClearPoke();
    if (waiter.cancelled() || flight->failure) {
      DialFailure failure;
      failure.proxy_error = "connection_terminated";
      co_return std::unexpected(flight->failure ? *flight->failure : std::move(failure));
    }
    if (!flight->landed) co_return co_await Connect(worker, waiter, std::move(ask));
  }
}

Task<DialResult<Obtained>> ObtainHttp11(Worker& worker, Waiter& waiter, UpstreamAsk ask) {
  const bool h2_only = ask.scheme == policy::Scheme::kHttps && worker.h2_pool().Known(ask.key) == H2Pool::Speaks::kH2Only;
  if (!h2_only) {
    Obtained obtained;
    if (ask.ready == nullptr) obtained.own = worker.pool().Take(ask.key, ask.usable);
    if (obtained.own != nullptr) co_return obtained;
    UpstreamAsk copy{.key = ask.key,
                     .scheme = ask.scheme,
                     .target = ask.target,
                     .ready = std::move(ask.ready),
                     .judge = ask.judge,
                     .usable = ask.usable,
                     .reuse = ask.reuse};
    copy.target.offer = AlpnOffer::kHttp11;
    auto result = co_await DialFor(worker, waiter, std::move(copy));
    if (result || !result.error().wants_h2) co_return result;
    worker.h2_pool().Remember(ask.key, H2Pool::Speaks::kH2Only);
  }
  co_return co_await Obtain(worker, waiter, std::move(ask));
}

Task<std::optional<DialFailure>> AwaitWebSockets(Worker& worker, Waiter& waiter, std::shared_ptr<H2Upstream> upstream) {
  const H2Session& session = upstream->session();
  const SteadyTime deadline = worker.reactor().now() + kConnectDeadline;
  while (!session.peer_settings_seen() && upstream->Takes() && worker.reactor().now() < deadline) {
    const Wake wake = co_await waiter.Wait({}, worker.reactor().now() + kSettingsPoll);
    if (wake == Wake::kCancelled) break;
  }
  if (session.PeerTakesConnect()) co_return std::nullopt;
  DialFailure failure;
  failure.proxy_error = "http_upgrade_failed";
  failure.detail = "the upstream speaks HTTP/2 alone and does not announce WebSockets over it (RFC 8441)";
  co_return failure;
}

}  // namespace sluice::proxy
