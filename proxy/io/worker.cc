#include "proxy/io/worker.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <csignal>
#include <future>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "dns/io/upstream.h"
#include "policy/expiry.h"
#include "proxy/io/connection.h"
#include "proxy/io/explicit_client.h"
#include "proxy/io/h2_upstream.h"
#include "proxy/io/limits.h"
#include "proxy/io/own_exchange.h"
#include "proxy/io/relay.h"
#include "proxy/io/route.h"
#include "proxy/io/secret_store.h"
#include "proxy/io/token_fetch.h"

namespace sluice::proxy {

namespace asio = boost::asio;

struct Worker::Loop {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  asio::posix::stream_descriptor epoll{context};
  asio::steady_timer timer{context};
  std::unique_ptr<dns::UpstreamClient> dns;
  /// When a rule of the policy in use ends: its open flows are judged again then.
  std::optional<WallTime> expiry;
  bool ticking = false;
  SteadyTime next_tick;             ///< where it is ticking
  size_t lookups = 0;               ///< under way in Asio
  std::atomic<bool> shared{false};  ///< others use the context
  bool closing = false;
  std::thread thread;

  // The reactor's epoll descriptor is itself one descriptor of Asio's: one wake-up there serves all that is ready here.
  void Arm(Worker* worker) {
    epoll.async_wait(asio::posix::stream_descriptor::wait_read, [this, worker](const boost::system::error_code& error) {
      if (!error) Turn(worker);
    });
  }
  // While Asio has nothing under way that anybody waits for, this thread waits for its own sockets alone, one system call in
  // place of three, and Asio's set is not told of each event. Asio has a look in with each tick.
  void Turn(Worker* worker) {
    Reactor& reactor = worker->reactor_;
    bool more = reactor.Poll(std::chrono::milliseconds(0));
    if (Alone(reactor.now())) {
      (void)epoll.release();
      while (const auto left = Alone(reactor.now())) more = reactor.Poll(*left);
    }
    // Without memory for that, this thread goes round until there is.
    boost::system::error_code error;
    if (!epoll.is_open()) epoll.assign(reactor.fd(), error);
    if (!more && !error) return Arm(worker);
    asio::post(context, [this, worker] { Turn(worker); });
  }
  // For how long.
  [[nodiscard]] std::optional<std::chrono::milliseconds> Alone(SteadyTime now) const {
    if (!ticking || closing || lookups != 0 || shared.load(std::memory_order_relaxed) || now >= next_tick) return std::nullopt;
    return std::chrono::ceil<std::chrono::milliseconds>(next_tick - now);
  }
  void Tick(Worker* worker) {
    if (ticking || closing) return;
    ticking = true;
    // What a rule allowed ends with it, not with the next look.
    std::chrono::milliseconds wait = kSweepEvery;
    if (expiry)
      if (const auto left = *expiry - SystemClock().Wall(); left < wait)
        wait = std::max(std::chrono::ceil<std::chrono::milliseconds>(left), std::chrono::milliseconds(1));
    next_tick = SystemClock().Steady() + wait;
    timer.expires_at(next_tick);
    timer.async_wait([this, worker](const boost::system::error_code& error) {
      ticking = false;
      if (!error) worker->Tick();
    });
  }
};

Result<void> Shared::Init() {
  if (!InitStreams()) return Fail(Code::kInternal, "cannot set up TLS streams");
  authority_ = options_.authority;
  if (!authority_) {
    auto made = TlsAuthority::Create();
    if (!made) return std::unexpected(made.error());
    authority_ = *std::move(made);
  }
  client_ = TlsClient::Begin(options_.upstream_ca_files);
  return {};
}

Worker::Worker(Shared& shared)
    : shared_(shared),
      pipes_(std::make_unique<PipePool>(shared.options().descriptors.ceiling)),
      scratch_(kReadPiece),
      loop_(std::make_unique<Loop>()) {
  reactor_.OnRound([this] {
    ++rounds_;
    TakePolicy();
  });
  TakePolicy();
}

Result<std::unique_ptr<Worker>> Worker::Start(Shared& shared) {
  std::unique_ptr<Worker> worker(new Worker(shared));
  if (worker->reactor_.fd() < 0) return FailErrno("cannot make an epoll descriptor", errno);
  Loop& loop = *worker->loop_;
  auto dns = dns::UpstreamClient::Create(loop.context, shared.options().lookups);
  if (!dns) return std::unexpected(dns.error());
  loop.dns = std::move(*dns);
  loop.epoll.assign(worker->reactor_.fd());
  loop.Arm(worker.get());
  loop.thread = std::thread([self = worker.get()] { self->Run(); });
  return worker;
}

Worker::~Worker() {
  if (loop_->thread.joinable()) {
    Post([this] {
      CloseAll();
      loop_->context.stop();
    });
    loop_->thread.join();
  }
  // The descriptor is the reactor's.
  (void)loop_->epoll.release();
}

void Worker::Run() {
  // splice(2) to a socket that is gone raises it, and has no flag against that.
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  for (;;) {
    try {
      loop_->context.run();
      return;
    } catch (const std::exception& fault) {
      LogError("proxy worker: {}", fault.what());
    }
  }
}

boost::asio::io_context& Worker::context() {
  if (!loop_->shared.exchange(true)) reactor_.Ring();
  return loop_->context;
}

// Each begins a round of its own.
void Worker::Post(std::move_only_function<void()> act) {
  reactor_.Post([this, moved = std::move(act)]() mutable {
    reactor_.Refresh();
    try {
      moved();
    } catch (const std::exception& fault) {
      LogError("proxy worker: {}", fault.what());
    }
  });
}

dns::UpstreamClient& Worker::dns() { return *loop_->dns; }

void Worker::TakePolicy() {
  // The generation before the snapshot: at worst the same snapshot is fetched once more.
  const uint64_t now = shared_.policy().generation();
  if (now == generation_) return;
  snapshot_ = shared_.policy().Get();
  generation_ = now;
  loop_->expiry = policy::NextExpiry(*snapshot_, SystemClock().Wall());
  has_ways_ = HasWays(*snapshot_);
}

void Worker::Accept(Flow flow) {
  load_.fetch_add(1, std::memory_order_relaxed);
  Post([this, moved = std::move(flow)]() mutable {
    if (loop_->closing) return;
    RunConnection(std::make_unique<Connection>(*this, std::move(moved)));
  });
}

detail::Detached Worker::RunConnection(std::unique_ptr<Connection> connection) {
  const uint64_t key = ++next_key_;
  connections_.emplace(key, connection.get());
  loop_->Tick(this);
  try {
    co_await connection->Run();
  } catch (const std::exception& fault) {
    // Out of memory, in the main: this flow ends and the others go on.
    LogError("proxy flow: {}", fault.what());
  }
  connections_.erase(key);
  connection.reset();
  load_.fetch_sub(1, std::memory_order_relaxed);
  shared_.flows.fetch_sub(1, std::memory_order_relaxed);
}

void Worker::AcceptClient(Client client) {
  load_.fetch_add(1, std::memory_order_relaxed);
  Post([this, moved = std::move(client)]() mutable {
    if (loop_->closing) return;
    RunClient(std::make_unique<ExplicitClient>(*this, std::move(moved), ExplicitClient::Stage::kNew));
  });
}

void Worker::StartBehindTls(Client client) {
  load_.fetch_add(1, std::memory_order_relaxed);
  shared_.flows.fetch_add(1, std::memory_order_relaxed);
  RunClient(std::make_unique<ExplicitClient>(*this, std::move(client), ExplicitClient::Stage::kBehindTls));
}

detail::Detached Worker::RunClient(std::unique_ptr<ExplicitClient> client) {
  const uint64_t key = ++next_key_;
  clients_.emplace(key, client.get());
  loop_->Tick(this);
  try {
    co_await client->Run();
  } catch (const std::exception& fault) {
    LogError("proxy client: {}", fault.what());
  }
  clients_.erase(key);
  client.reset();
  load_.fetch_sub(1, std::memory_order_relaxed);
  shared_.flows.fetch_sub(1, std::memory_order_relaxed);
}

template <class Act>
void Worker::ForEachClient(Act act) {
  // By key: ending one changes the table.
  std::vector<uint64_t> keys;
  keys.reserve(clients_.size());
  for (const auto& [key, client] : clients_) keys.push_back(key);
  for (const uint64_t key : keys)
    if (const auto found = clients_.find(key); found != clients_.end()) act(*found->second);
}

void Worker::Drain() {
  Post([this] { ForEachClient([](ExplicitClient& client) { client.Drain(); }); });
}

void Worker::Prepare(uint64_t id, FlowTarget target, std::function<void(int)> done) {
  Post([this, id, moved = std::move(target), call = std::move(done)]() mutable {
    if (loop_->closing || preparing_.size() + prepared_.size() >= kMaxPrepared)
      return call(loop_->closing ? ECONNABORTED : EAGAIN);
    RunPrepare(id, std::move(moved), std::move(call));
  });
}

// An errno says nothing of a proxy.
void Worker::RecordLostProxy(uint64_t id, const FlowTarget& flow, const DialTarget& target, std::string detail) {
  policy::ExchangeEvent event;
  event.time = SystemClock().Wall();
  event.connection = id;
  event.target.host = flow.host;
  if (flow.host.empty()) event.target.address = flow.destination.address;
  event.target.port = flow.destination.port;
  event.target.via = target.via->name;
  event.process = flow.process;
  event.snapshot = snapshot();
  event.error = std::move(detail);
  (void)shared_.sink().Record(std::move(event));
}

detail::Detached Worker::RunPrepare(uint64_t id, FlowTarget target, std::function<void(int)> done) {
  Waiter waiter(reactor_);
  preparing_[id] = &waiter;
  loop_->Tick(this);
  int error = ECONNABORTED;
  try {
    auto preliminary = JudgeConnect(*this, target, std::nullopt);
    DialTarget to{target.host, target.destination.address, target.destination.port, target.process, target.told};
    const bool known = RouteConnection(*this, target, preliminary, &to);
    if (known && to.via != nullptr) preliminary = JudgeRemote(*this, target);
    const auto pooled = [&](policy::Scheme scheme) {
      const std::string key = PoolKey(scheme, to);
      const Upstream* idle = pool_.Peek(key);
      const auto shared = idle == nullptr ? h2_pool_.Find(key) : nullptr;
      if (idle == nullptr && shared == nullptr) return false;
      const std::optional<IpAddress> address = idle != nullptr ? idle->known_address() : shared->address();
      return JudgeConnect(*this, target, address).verdict == policy::ConnectVerdict::kInspect;
    };
    if (!preliminary.allowed()) {
      (void)RecordConnectDecision(*this, id, target, policy::EventLayer::kConnect, preliminary, std::nullopt, {});
      error = EACCES;
    } else if (!known) {
      // Which way a request takes is known once it was read: what connects until then is the flow itself.
      error = 0;
    } else if (preliminary.verdict == policy::ConnectVerdict::kInspect &&
               (pooled(policy::Scheme::kHttps) || pooled(policy::Scheme::kHttp))) {
      error = 0;
    } else {
      AddressJudge judge = [this, &target](const IpAddress& address) {
        const auto decision = JudgeConnect(*this, target, address);
        policy::Decision answer = decision.decision;
        answer.allowed = decision.allowed();
        return answer;
      };
      DialTarget copy = to;
      auto dialled = co_await Dial(*this, waiter, std::move(copy), std::move(judge));
      error = dialled ? 0 : dialled.error().error;
      if (dialled) prepared_[id] = {std::move(*dialled), reactor_.now() + kPreparedLife};
      if (!dialled && dialled.error().refused)
        (void)RecordConnectDecision(*this, id, target, policy::EventLayer::kConnect,
                                    {policy::ConnectVerdict::kDeny, *dialled.error().refused}, dialled.error().address,
                                    dialled.error().detail);
      if (!dialled && !dialled.error().refused && to.via != nullptr) RecordLostProxy(id, target, to, dialled.error().detail);
    }
  } catch (const std::exception& fault) {
    LogError("proxy dial: {}", fault.what());
  }
  preparing_.erase(id);
  done(error);
}

void Worker::FetchTokenSoon(policy::SecretSource source) {
  // Not within the caller's coroutine: it goes on with the token it has, or waits as any other does.
  Post([this, moved = std::move(source)]() mutable {
    if (loop_->closing) return;
    RunFetch(std::move(moved));
  });
}

detail::Detached Worker::RunFetch(policy::SecretSource source) {
  SecretStore& store = *shared_.options().secrets;
  Waiter waiter(reactor_);
  const uint64_t key = ++next_key_;
  fetching_[key] = &waiter;
  loop_->Tick(this);
  Result<TokenAnswer> answer = Fail(Code::kInternal, "no token was fetched");
  try {
    const SecretLookup client = store.Find(source.secret.front());
    if (client.secret == nullptr) {
      answer = Fail(Code::kNotFound, client.fault);
    } else {
      policy::SecretSource copy = source;
      SecretPtr secret = client.secret;
      answer = co_await FetchToken(*this, waiter, std::move(copy), std::move(secret));
    }
  } catch (const std::exception& fault) {
    LogError("proxy token: {}", fault.what());
  }
  fetching_.erase(key);
  if (answer) {
    store.TokenCame(source, *std::move(answer), reactor_.now());
  } else {
    LogWarn("{}", answer.error().message);
    store.TokenFailed(source, answer.error().message, reactor_.now());
  }
}

void Worker::FetchSoon(FetchRequest request, std::function<void(Result<FetchAnswer>)> done) {
  Post([this, moved = std::move(request), told = std::move(done)]() mutable {
    if (loop_->closing) return;
    RunOwnFetch(std::move(moved), std::move(told));
  });
}

detail::Detached Worker::RunOwnFetch(FetchRequest request, std::function<void(Result<FetchAnswer>)> done) {
  constexpr size_t kHeadRoom = 32 * 1024;
  Waiter waiter(reactor_);
  const uint64_t key = ++next_key_;
  fetching_[key] = &waiter;
  loop_->Tick(this);
  Result<FetchAnswer> answer = Fail(Code::kInternal, "nothing was fetched");
  try {
    const auto endpoint = ParseTokenEndpoint(request.url);
    if (!endpoint) {
      answer = std::unexpected(endpoint.error());
    } else {
      TokenEndpoint to = *endpoint;
      std::string text =
          fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\nConnection: close\r\n{}\r\n", to.target, to.authority,
                      request.entity_tag.empty() ? "" : fmt::format("If-None-Match: {}\r\n", request.entity_tag));
      auto whole = co_await ExchangeOwn(*this, waiter, std::move(to), std::move(text), request.most + kHeadRoom);
      if (!whole) {
        answer = Fail(whole.error().code, fmt::format("nothing from {}: {}", request.url, whole.error().message));
      } else if (whole->body.size() > request.most) {
        answer = Fail(Code::kExhausted, fmt::format("{} is longer than {} KiB", request.url, request.most / 1024));
      } else {
        answer = FetchAnswer{whole->status, std::move(whole->entity_tag), std::move(whole->body)};
      }
    }
  } catch (const std::exception& fault) {
    LogError("fetch: {}", fault.what());
  }
  fetching_.erase(key);
  done(std::move(answer));
}

void Worker::GiveBackSpare() {
  pool_.Clear();
  h2_pool_.RetireAll();
  pipes_->Clear();
}

void Worker::KeepPrepared(uint64_t id, UpstreamPtr upstream) {
  prepared_[id] = {std::move(upstream), reactor_.now() + kPreparedLife};
}

UpstreamPtr Worker::TakePrepared(uint64_t id) {
  const auto found = prepared_.find(id);
  if (found == prepared_.end()) return nullptr;
  UpstreamPtr upstream = std::move(found->second.upstream);
  prepared_.erase(found);
  if ((upstream->stream.channel.ready & (kBroken | kPeerDone)) != 0) return nullptr;
  return upstream;
}

Task<Result<ResolvedName>> Worker::Resolve(Waiter& waiter, std::string name) {
  // Shared with the lookup, which may outlive the flow that asked.
  struct Lookup {
    Waiter* waiter = nullptr;
    std::optional<Result<dns::Addresses>> result;
  };
  auto lookup = std::make_shared<Lookup>();
  lookup->waiter = &waiter;
  auto question = loop_->dns->Resolve(std::move(name));
  ++loop_->lookups;
  asio::co_spawn(loop_->context, std::move(question), [this, lookup](std::exception_ptr fault, Result<dns::Addresses> answer) {
    --loop_->lookups;
    reactor_.Refresh();
    lookup->result = fault ? Result<dns::Addresses>(Fail(Code::kInternal, "the lookup failed")) : std::move(answer);
    if (lookup->waiter != nullptr) lookup->waiter->Notify();
  });
  if (!lookup->result) {
    const Wake wake = co_await waiter.Wait({}, reactor_.now() + kConnectTotal);
    lookup->waiter = nullptr;
    if (wake == Wake::kCancelled) co_return Fail(Code::kTimeout, "cancelled");
    if (!lookup->result) co_return Fail(Code::kTimeout, "no answer in time");
  }
  lookup->waiter = nullptr;
  if (!*lookup->result) co_return std::unexpected(lookup->result->error());
  ResolvedName resolved{std::move((**lookup->result).addresses), std::move((**lookup->result).chain)};
  co_return resolved;
}

// malloc(3) keeps what is freed between the blocks that live on: a thousand connections that idle held twice what they need.
// It takes some ten milliseconds for as many, in which nobody allocates; so not while anybody works.
void Worker::ReturnMemory(SteadyTime now) {
  if (std::exchange(rounds_, 0) > kBusyRounds) {
    shared_.busy_at = now;
    shared_.memory_kept = true;
  }
  if (now - shared_.busy_at.load() >= kQuietFor && shared_.memory_kept.exchange(false)) ::malloc_trim(0);
}

void Worker::Tick() {
  reactor_.Sweep();
  const SteadyTime now = reactor_.now();
  pool_.Sweep(now);
  h2_pool_.Sweep();
  if (now - trimmed_at_ > kTrimAfter) {
    trimmed_at_ = now;
    for (auto& [key, connection] : connections_) connection->Trim(now);
    for (auto& [key, client] : clients_) client->Trim(now);
    ReturnMemory(now);
  }
  std::erase_if(prepared_, [&](const auto& entry) { return entry.second.expires < now; });
  if (const WallTime wall = SystemClock().Wall(); loop_->expiry && wall >= *loop_->expiry) {
    loop_->expiry = policy::NextExpiry(*snapshot_, wall);
    PolicyChanged();
  }
  if (!connections_.empty() || !clients_.empty() || !preparing_.empty() || !fetching_.empty() || !prepared_.empty() ||
      !pool_.empty() || !h2_pool_.empty() || shared_.memory_kept)
    loop_->Tick(this);
}

void Worker::PolicyChanged() {
  Post([this, since = SystemClock().Steady()] {
    try {
      Rejudge(since);
    } catch (const std::bad_alloc&) {
      // What cannot be judged is not allowed.
      memo_.reset();
      LogError("proxy: no memory to judge what is open again, so all of it ends");
      EndAllFlows();
    }
  });
}

// In three steps, so that what a record costs comes after the last socket was closed: judge, which waits for nothing and ends
// nothing; close; let each flow find out.
void Worker::Rejudge(SteadyTime since) {
  Rejudging now;
  now.flows = connections_.size() + clients_.size();
  std::vector<uint64_t> connections;
  std::vector<uint64_t> clients;
  memo_.emplace(snapshot_, SystemClock().Wall());
  for (const auto& [key, connection] : connections_)
    if (!connection->StillAllowed()) connections.push_back(key);
  for (const auto& [key, client] : clients_)
    if (!client->StillAllowed()) clients.push_back(key);
  now.decisions = memo_->asked();
  memo_.reset();
  now.ended = connections.size() + clients.size();
  for (const uint64_t key : connections) connections_.find(key)->second->CutOff();
  for (const uint64_t key : clients) clients_.find(key)->second->CutOff();
  now.closing = std::chrono::duration_cast<std::chrono::microseconds>(SystemClock().Steady() - since);
  pool_.Clear();
  h2_pool_.RetireAll();
  Cancel(connections_, connections);
  Cancel(clients_, clients);
  const std::lock_guard lock(rejudging_mutex_);
  now.passes = rejudging_.passes + 1;
  rejudging_ = now;
}

template <class Kind>
void Worker::Cancel(std::unordered_map<uint64_t, Kind*>& flows, const std::vector<uint64_t>& keys) {
  // The end of one may be the end of another.
  for (const uint64_t key : keys)
    if (const auto found = flows.find(key); found != flows.end()) found->second->Cancel();
}

void Worker::EndAllFlows() {
  while (!connections_.empty()) {
    const auto first = connections_.begin()->first;
    connections_.begin()->second->Cancel();
    // A flow that does not end when told to would spin here.
    if (const auto still = connections_.find(first); still != connections_.end()) connections_.erase(still);
  }
  ForEachClient([](ExplicitClient& client) { client.Cancel(); });
}

void Worker::CloseAll() {
  loop_->closing = true;
  loop_->timer.cancel();
  EndAllFlows();
  while (!preparing_.empty()) {
    const auto [id, waiter] = *preparing_.begin();
    preparing_.erase(id);
    waiter->Cancel();
  }
  while (!fetching_.empty()) {
    const auto [key, waiter] = *fetching_.begin();
    fetching_.erase(key);
    waiter->Cancel();
  }
  prepared_.clear();
  pool_.Clear();
  h2_pool_.CloseAll();
}

}  // namespace sluice::proxy
