#include "proxy/io/engine.h"

#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <unordered_map>

#include "proxy/io/flow_context.h"
#include "proxy/io/limits.h"
#include "proxy/io/worker.h"

namespace sluice::proxy {
namespace {

// The affinity mask, and no more than the cgroup's quota where there is one ("200000 100000" is two cores).
unsigned UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const auto allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(std::max(1, CPU_COUNT(&set))) : 1u;
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  unsigned long quota = 0;
  unsigned long period = 0;
  if (!(file >> quota >> period) || period == 0) return allowed;
  return std::clamp(static_cast<unsigned>((quota + period - 1) / period), 1u, allowed);
}

class WorkerEngine final : public Engine {
 public:
  WorkerEngine(EngineOptions options, const policy::CurrentPolicy& policy, policy::EventSink& sink)
      : shared_(std::move(options), policy, sink) {}

  Result<void> Init() {
    if (auto ok = shared_.Init(); !ok) return ok;
    const unsigned count = shared_.options().workers != 0 ? shared_.options().workers : UsableCores();
    for (unsigned i = 0; i < count; ++i) {
      auto worker = Worker::Start(shared_);
      if (!worker) return std::unexpected(worker.error());
      workers_.push_back(std::move(*worker));
    }
    return shared_.options().ready_later ? Result<void>() : Ready();
  }

  Result<void> Ready() override { return shared_.client().Ready(); }

  const std::string& AuthorityPem() const override { return shared_.authority().pem(); }

  void Prepare(uint64_t id, FlowTarget target, std::function<void(int)> done) override {
    Worker& worker = LeastLoaded();
    {
      const std::lock_guard lock(mutex_);
      // Entries of flows that never came pile up; without its entry a flow merely dials again.
      if (placed_.size() >= kMaxPrepared * workers_.size() * 2) placed_.clear();
      placed_[id] = &worker;
    }
    worker.Prepare(id, std::move(target), std::move(done));
  }

  void Accept(Flow flow) override {
    if (std::string why = Enter(flow.downstream); !why.empty()) {
      RefuseForLimit(std::move(flow), std::move(why));
      return;
    }
    Worker* worker = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = placed_.find(flow.id); found != placed_.end()) {
        worker = found->second;
        placed_.erase(found);
      }
    }
    if (worker == nullptr) worker = &LeastLoaded();
    worker->Accept(std::move(flow));
  }

  void Fetch(FetchRequest request, std::function<void(Result<FetchAnswer>)> done) override {
    LeastLoaded().FetchSoon(std::move(request), std::move(done));
  }

  void AcceptClient(Client client) override {
    std::string why = Enter(client.socket);
    if (why.empty()) return LeastLoaded().AcceptClient(std::move(client));
    Flow flow;
    flow.id = client.id;
    flow.downstream = std::move(client.socket);
    flow.target.process = std::move(client.process);
    RefuseForLimit(std::move(flow), std::move(why));
  }

  void Drain() override {
    for (auto& worker : workers_) worker->Drain();
  }

  size_t Open() const override { return shared_.flows.load(std::memory_order_relaxed); }

  void PolicyChanged() override {
    for (auto& worker : workers_) worker->PolicyChanged();
  }

  Rejudging LastRejudging() const override {
    Rejudging all;
    for (const auto& worker : workers_) {
      const Rejudging one = worker->last_rejudging();
      all.passes += one.passes;
      all.flows += one.flows;
      all.decisions += one.decisions;
      all.ended += one.ended;
      all.closing = std::max(all.closing, one.closing);
    }
    return all;
  }

  boost::asio::io_context& ResolverContext() override { return workers_.front()->context(); }
  dns::UpstreamClient& ResolverClient() override { return workers_.front()->dns(); }

 private:
  // Counts one more flow; a sentence where there is no room for it.
  std::string Enter(const UniqueFd& downstream) {
    if (shared_.flows.fetch_add(1, std::memory_order_relaxed) >= shared_.options().max_flows) {
      shared_.flows.fetch_sub(1, std::memory_order_relaxed);
      return "too many connections at once";
    }
    if (downstream.get() < shared_.options().descriptors.ceiling) return {};
    const size_t open = shared_.flows.fetch_sub(1, std::memory_order_relaxed) - 1;
    return OutOfDescriptors(open, shared_.options().descriptors.limit);
  }

  Worker& LeastLoaded() {
    const auto first = std::ranges::min_element(workers_, {}, [](const auto& worker) { return worker->load(); });
    return **first;
  }

  void RefuseForLimit(Flow flow, std::string why) {
    const linger hard{1, 0};
    setsockopt(flow.downstream.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    policy::DecisionEvent event;
    event.time = SystemClock().Wall();
    event.connection = flow.id;
    event.target.host = flow.target.host;
    if (flow.target.host.empty()) event.target.address = flow.target.destination.address;
    event.target.port = flow.target.destination.port;
    event.process = flow.target.process;
    event.decision = {false, policy::Reason::kLimit, policy::RuleRef::kNone, false};
    event.snapshot = shared_.policy().Get();
    event.detail = std::move(why);
    event.denial_id = shared_.sink().NextDenialId();
    (void)shared_.sink().Record(std::move(event));
  }

  Shared shared_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, Worker*> placed_;  ///< where Prepare put a flow that has not come yet
};

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Start(EngineOptions options, const policy::CurrentPolicy& policy,
                                              policy::EventSink& sink) {
  auto engine = std::make_unique<WorkerEngine>(std::move(options), policy, sink);
  if (auto ok = engine->Init(); !ok) return std::unexpected(ok.error());
  return engine;
}

}  // namespace sluice::proxy
