#pragma once

// One thread with its reactor, its DNS client and its upstream pool, and the flows that live on it for good.
// Asio is behind it (worker.cc): the rest of the proxy sees sockets through the reactor.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "policy/credential.h"
#include "policy/event.h"
#include "proxy/client.h"
#include "proxy/decision_memo.h"
#include "proxy/dial_order.h"
#include "proxy/flow.h"
#include "proxy/io/engine.h"
#include "proxy/io/h2_pool.h"
#include "proxy/io/mirror.h"
#include "proxy/io/reactor.h"
#include "proxy/io/task.h"
#include "proxy/io/tls.h"
#include "proxy/io/upstream.h"
#include "proxy/io/upstream_pool.h"

namespace sluice::proxy {

class Connection;
class ExplicitClient;
class PipePool;

/// A name's addresses, and the names that its aliases led through.
struct ResolvedName {
  std::vector<IpAddress> addresses;
  std::vector<std::string> aliases;
};

/// What all workers of an engine share. Any thread.
class Shared {
 public:
  Shared(EngineOptions options, const policy::CurrentPolicy& policy, policy::EventSink& sink)
      : options_(std::move(options)), policy_(policy), sink_(sink) {}
  /// Makes the authority, and begins to read the roots beside the system's.
  [[nodiscard]] Result<void> Init();
  [[nodiscard]] const EngineOptions& options() const { return options_; }
  [[nodiscard]] const policy::CurrentPolicy& policy() const { return policy_; }
  [[nodiscard]] policy::EventSink& sink() const { return sink_; }
  [[nodiscard]] TlsAuthority& authority() const { return *authority_; }
  [[nodiscard]] TlsClient& client() const { return *client_; }
  [[nodiscard]] MirrorCache& mirrors() { return mirrors_; }

  std::atomic<size_t> flows{0};
  std::atomic<SteadyTime> busy_at{SteadyTime{}};  ///< when a worker was busy last
  std::atomic<bool> memory_kept{false};           ///< since then malloc(3) may keep much that is free
  ClientCounts client_counts;

 private:
  EngineOptions options_;
  const policy::CurrentPolicy& policy_;
  policy::EventSink& sink_;
  std::shared_ptr<TlsAuthority> authority_;
  std::unique_ptr<TlsClient> client_;
  MirrorCache mirrors_;
};

class Worker {
 public:
  static Result<std::unique_ptr<Worker>> Start(Shared& shared);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Any thread.
  void Accept(Flow flow);
  void Prepare(uint64_t id, FlowTarget target, std::function<void(int)> done);
  void AcceptClient(Client client);
  void PolicyChanged();
  void Drain();
  void FetchSoon(FetchRequest request, std::function<void(Result<FetchAnswer>)> done);
  [[nodiscard]] size_t load() const { return load_.load(std::memory_order_relaxed); }
  [[nodiscard]] Rejudging last_rejudging() const {
    const std::lock_guard lock(rejudging_mutex_);
    return rejudging_;
  }
  /// For the use of others too, from now on.
  [[nodiscard]] boost::asio::io_context& context();
  [[nodiscard]] dns::UpstreamClient& dns();

  // This worker's thread only.
  [[nodiscard]] Reactor& reactor() { return reactor_; }
  [[nodiscard]] Shared& shared() { return shared_; }
  [[nodiscard]] UpstreamPool& pool() { return pool_; }
  [[nodiscard]] H2Pool& h2_pool() { return h2_pool_; }
  [[nodiscard]] PipePool& pipes() { return *pipes_; }
  /// Tried last for a while.
  [[nodiscard]] FailedAddresses& failed_addresses() { return failed_addresses_; }
  /// Closes what is kept for reuse only.
  void GiveBackSpare();
  /// The policy in force. It changes between rounds only: what is decided of it and what the decision counts into belong together
  /// for as long as nothing is waited for.
  [[nodiscard]] const policy::SnapshotPtr& snapshot() const { return snapshot_; }
  [[nodiscard]] uint64_t generation() const { return generation_; }
  /// What that policy says. While everything open is judged again, equal questions are asked of it once.
  [[nodiscard]] policy::ConnectDecision Decide(const policy::ConnectQuery& query) {
    return memo_ ? memo_->Decide(query) : snapshot()->DecideConnect(query);
  }
  [[nodiscard]] policy::Decision Decide(const policy::RequestQuery& query) {
    return memo_ ? memo_->Decide(query) : snapshot()->DecideRequest(query);
  }
  /// Whether that policy knows of upstream proxies, pins or client certificates.
  [[nodiscard]] bool has_ways() const { return has_ways_; }
  /// Scratch for reads whose size is not known; valid until the next suspension.
  [[nodiscard]] std::span<char> scratch() { return scratch_; }
  /// Bytes of bodies that wait to be judged, signed or sent on, and of what was read in them; at most kMaxHeldBodies.
  size_t held_bodies = 0;
  [[nodiscard]] Task<Result<ResolvedName>> Resolve(Waiter& waiter, std::string name);
  /// Fetches a token that SecretStore::TokenFor asked for, and tells the store how it went.
  void FetchTokenSoon(policy::SecretSource source);
  /// The connection that Prepare made for this flow, if it still waits.
  [[nodiscard]] UpstreamPtr TakePrepared(uint64_t id);
  /// For TakePrepared, on the same worker.
  void KeepPrepared(uint64_t id, UpstreamPtr upstream);
  /// Runs a client whose TLS to the proxy is taken off by another on this worker.
  void StartBehindTls(Client client);

 private:
  explicit Worker(Shared& shared);
  struct Loop;
  struct PreparedUpstream {
    UpstreamPtr upstream;
    SteadyTime expires;
  };
  detail::Detached RunConnection(std::unique_ptr<Connection> connection);
  detail::Detached RunFetch(policy::SecretSource source);
  detail::Detached RunOwnFetch(FetchRequest request, std::function<void(Result<FetchAnswer>)> done);
  detail::Detached RunClient(std::unique_ptr<ExplicitClient> client);
  /// Has `act` run on this worker's thread. Any thread.
  void Post(std::move_only_function<void()> act);
  /// `act` on each client, which may end it.
  template <class Act>
  void ForEachClient(Act act);
  void TakePolicy();
  void ReturnMemory(SteadyTime now);
  void Rejudge(SteadyTime since);
  template <class Kind>
  void Cancel(std::unordered_map<uint64_t, Kind*>& flows, const std::vector<uint64_t>& keys);
  void EndAllFlows();
  void RecordLostProxy(uint64_t id, const FlowTarget& flow, const DialTarget& target, std::string detail);
  detail::Detached RunPrepare(uint64_t id, FlowTarget target, std::function<void(int)> done);
  void Tick();
  void Run();
  void CloseAll();

  Shared& shared_;
  Reactor reactor_;
  UpstreamPool pool_;
  H2Pool h2_pool_;
  FailedAddresses failed_addresses_;
  std::unique_ptr<PipePool> pipes_;
  policy::SnapshotPtr snapshot_;
  uint64_t generation_ = 0;
  bool has_ways_ = false;
  std::optional<DecisionMemo> memo_;
  std::unordered_map<uint64_t, Connection*> connections_;
  std::unordered_map<uint64_t, ExplicitClient*> clients_;
  uint64_t next_key_ = 0;
  std::unordered_map<uint64_t, PreparedUpstream> prepared_;
  std::unordered_map<uint64_t, Waiter*> preparing_;
  std::unordered_map<uint64_t, Waiter*> fetching_;
  std::vector<char> scratch_;
  SteadyTime trimmed_at_{};
  uint64_t rounds_ = 0;  ///< since trimmed_at_
  std::atomic<size_t> load_{0};
  mutable std::mutex rejudging_mutex_;
  Rejudging rejudging_;
  std::unique_ptr<Loop> loop_;
};

}  // namespace sluice::proxy
