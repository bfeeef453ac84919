#include "proxy/io/h2_pool.h"

#include <algorithm>

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

Task<DialResult<Obtained>> Connect(Worker& worker, Waiter& waiter, std::string key, policy::Scheme scheme, DialTarget target,
                                   UpstreamPtr ready, AddressJudge judge) {
  UpstreamPtr upstream = std::move(ready);
  if (upstream == nullptr) {
    DialTarget copy = target;
    auto dialled = co_await Dial(worker, waiter, std::move(copy), std::move(judge));
    if (!dialled) co_return std::unexpected(std::move(dialled.error()));
    upstream = std::move(*dialled);
  }
  bool h2 = true;  // in the clear, whoever knows that HTTP/2 is spoken here knows it of the upstream
  if (scheme == policy::Scheme::kHttps) {
    if (!upstream->secured) {
      target.offer = AlpnOffer::kH2First;
      auto failure = co_await SecureUpstream(worker, waiter, *upstream, std::move(target));
      if (failure) co_return std::unexpected(std::move(*failure));
    }
    h2 = ChoseH2(upstream->stream.ssl());
  }
  if (!h2 || worker.h2_pool().Known(key) != H2Pool::Speaks::kH2Only)
    worker.h2_pool().Remember(key, h2 ? H2Pool::Speaks::kH2 : H2Pool::Speaks::kHttp11);
  Obtained obtained;
  if (h2) {
    obtained.shared = H2Upstream::Start(worker, std::move(upstream), scheme);
    worker.h2_pool().Add(key, obtained.shared);
  } else {
    obtained.own = std::move(upstream);
  }
  co_return obtained;
}

}  // namespace

H2Pool::H2Pool() = default;
H2Pool::~H2Pool() = default;

std::shared_ptr<H2Upstream> H2Pool::Find(const std::string& key) {
  const auto found = shared_.find(key);
  if (found == shared_.end()) return nullptr;
  for (const auto& upstream : found->second)
    if (upstream->Takes()) return upstream;
  return nullptr;
}

void H2Pool::Add(const std::string& key, std::shared_ptr<H2Upstream> upstream) { shared_[key].push_back(std::move(upstream)); }

void H2Pool::RetireAll() {
  // Retiring may free a connection, and with it what it refers to.
  const auto retiring = std::move(shared_);
  shared_.clear();
  for (const auto& [key, list] : retiring)
    for (const auto& upstream : list) upstream->Retire();
}

void H2Pool::CloseAll() {
  shared_.clear();
  while (!live_.empty()) {
    H2Upstream* const upstream = *live_.begin();
    live_.erase(live_.begin());
    upstream->Close();
  }
}

void H2Pool::Sweep() {
  for (auto it = shared_.begin(); it != shared_.end();) {
    std::erase_if(it->second, [](const auto& upstream) { return upstream->idle() && !upstream->Takes(); });
    it = it->second.empty() ? shared_.erase(it) : std::next(it);
  }
}

H2Pool::Speaks H2Pool::Known(const std::string& key) const {
  const auto found = known_.find(key);
  return found != known_.end() ? found->second : Speaks::kUnknown;
}

void H2Pool::Remember(const std::string& key, Speaks speaks) {
  // It costs one negotiation to learn it again.
  if (known_.size() >= kMaxKnownProtocols) known_.clear();
  known_[key] = speaks;
}

H2Pool::FlightPtr H2Pool::Join(const std::string& key) {
  FlightPtr& flight = flights_[key];
  if (flight != nullptr) return flight;
  flight = std::make_shared<Flight>();
  return nullptr;
}

void H2Pool::Land(const std::string& key, std::optional<DialFailure> failure) {
  const auto found = flights_.find(key);
  if (found == flights_.end()) return;
  const FlightPtr flight = found->second;
  flights_.erase(found);
  flight->landed = true;
  flight->failure = std::move(failure);
  for (Waiter* waiter : flight->waiting) waiter->Poke();
  flight->waiting.clear();
}

Task<DialResult<Obtained>> Obtain(Worker& worker, Waiter& waiter, std::string key, policy::Scheme scheme, DialTarget target,
                                  UpstreamPtr ready, AddressJudge judge, std::function<bool(std::optional<IpAddress>)> usable) {
  H2Pool& pool = worker.h2_pool();
  for (;;) {
    Obtained obtained;
    if (auto shared = pool.Find(key); shared != nullptr && usable(shared->address())) {
      obtained.shared = std::move(shared);
      co_return obtained;
    }
    if (scheme == policy::Scheme::kHttps && pool.Known(key) == H2Pool::Speaks::kHttp11) {
      const Upstream* idle = ready == nullptr ? worker.pool().Peek(key) : nullptr;
      if (idle != nullptr && usable(idle->known_address())) {
        obtained.own = worker.pool().Take(key);
        co_return obtained;
      }
      co_return co_await Connect(worker, waiter, std::move(key), scheme, std::move(target), std::move(ready), std::move(judge));
    }
    H2Pool::FlightPtr flight = pool.Join(key);
    if (flight == nullptr) {
      Landing landing(pool, key);
      auto result =
          co_await Connect(worker, waiter, std::move(key), scheme, std::move(target), std::move(ready), std::move(judge));
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
    if (!flight->landed)
      co_return co_await Connect(worker, waiter, std::move(key), scheme, std::move(target), std::move(ready), std::move(judge));
  }
}

Task<DialResult<Obtained>> ObtainHttp11(Worker& worker, Waiter& waiter, std::string key, policy::Scheme scheme, DialTarget target,
                                        UpstreamPtr ready, AddressJudge judge, std::function<bool(std::optional<IpAddress>)> usable) {
  Obtained obtained;
  const bool h2_only = scheme == policy::Scheme::kHttps && worker.h2_pool().Known(key) == H2Pool::Speaks::kH2Only;
  if (!h2_only) {
    const Upstream* idle = ready == nullptr ? worker.pool().Peek(key) : nullptr;
    if (idle != nullptr && usable(idle->known_address())) {
      obtained.own = worker.pool().Take(key);
      co_return obtained;
    }
    UpstreamPtr upstream = std::move(ready);
    if (upstream == nullptr) {
      DialTarget to = target;
      AddressJudge asked = judge;
      auto dialled = co_await Dial(worker, waiter, std::move(to), std::move(asked));
      if (!dialled) co_return std::unexpected(std::move(dialled.error()));
      upstream = std::move(*dialled);
    }
    std::optional<DialFailure> failure;
    if (scheme == policy::Scheme::kHttps && !upstream->secured) {
      DialTarget to = target;
      failure = co_await SecureUpstream(worker, waiter, *upstream, std::move(to));
    }
    if (!failure) {
      obtained.own = std::move(upstream);
      co_return obtained;
    }
    if (!failure->wants_h2) co_return std::unexpected(std::move(*failure));
    worker.h2_pool().Remember(key, H2Pool::Speaks::kH2Only);
  }
  co_return co_await Obtain(worker, waiter, std::move(key), scheme, std::move(target), nullptr, std::move(judge),
                            std::move(usable));
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
