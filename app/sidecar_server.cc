#include "app/sidecar_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <future>
#include <utility>

#include "app/fence_allows.h"
#include "base/clock.h"
#include "base/log.h"
#include "policy/compiled.h"
#include "policy/io/load.h"
#include "supervisor/io/mesh_sight.h"

namespace sluice::app {
namespace {

constexpr std::chrono::seconds kCacheWait{1};
constexpr int kLooks = 3;  // before a start fails

std::unexpected<Error> RefuseRule(const policy::Snapshot& snapshot, policy::RuleRef ref, std::string_view why) {
  const policy::RuleInfo* rule = snapshot.rule(ref);
  return std::unexpected(Error{Code::kInvalid, fmt::format("`{}`: {}", rule->text, why), 0, rule->span});
}

supervisor::FenceElement ElementOf(const dns::Lease& lease) {
  return {lease.address, lease.transport == policy::Transport::kUdp ? nft::Protocol::kUdp : nft::Protocol::kTcp, lease.port};
}

// What the names that were told for an address open there now. Asked of elements in order, it looks each address up once.
class StillLeased {
 public:
  StillLeased(const policy::Snapshot& snapshot, const dns::NameHistory& history, WallTime now,
              std::span<const IpAddress> host_addresses)
      : snapshot_(snapshot), history_(history), now_(now), host_addresses_(host_addresses) {}

  bool operator()(const supervisor::FenceElement& element) {
    if (address_ != element.address) LookAt(element.address);
    return std::ranges::binary_search(leased_, element);
  }

 private:
  void LookAt(const IpAddress& address) {
    address_ = address;
    leased_.clear();
    const std::array<IpAddress, 1> addresses = {address};
    for (const std::string& name : history_.NamesOf(address, SystemClock().Steady()))
      for (const dns::Lease& lease : dns::LeasesFor(snapshot_, name, addresses, now_, host_addresses_).leases)
        leased_.push_back(ElementOf(lease));
    std::ranges::sort(leased_);
  }

  const policy::Snapshot& snapshot_;
  const dns::NameHistory& history_;
  const WallTime now_;
  const std::span<const IpAddress> host_addresses_;
  std::optional<IpAddress> address_;
  std::vector<supervisor::FenceElement> leased_;
};

}  // namespace

Result<void> CheckSidecarPolicy(const policy::Snapshot& snapshot, ProcessSight processes) {
  const auto& rules = snapshot.compiled().rules;
  for (uint32_t i = 0; i < rules.size(); ++i) {
    if (processes == ProcessSight::kUnseen && (!rules[i].by.empty() || !rules[i].under.empty()))
      return RefuseRule(snapshot, policy::RuleRef{i},
                        "no process but this one can be seen here, so `by` and `under` could never be judged; share the pod's "
                        "process namespace (shareProcessNamespace: true, and SYS_PTRACE for this container), or take them away");
  }
  const FenceAllows allows = FenceAllowsFor(snapshot, SystemClock().Wall());
  if (!allows.impossible.empty())
    return RefuseRule(snapshot, allows.impossible.front(),
                      "UDP is passed by the kernel, which sees addresses and ports alone: a rule with `by` or `ip`, a deny that "
                      "meets it, or a prefix that is special in part cannot be kept");
  supervisor::FencePlan plan;
  plan.allow = allows.allow;
  if (auto fits = supervisor::CheckedFenceRuleset(plan); !fits) return std::unexpected(fits.error());
  for (const policy::RuleRef ref : snapshot.UdpRules())
    if (const std::string why = dns::WhyUnleasable(snapshot, ref); !why.empty()) return RefuseRule(snapshot, ref, why);
  return {};
}

void TellSidecarPolicy(const policy::Snapshot& snapshot) {
  for (const std::string& path : snapshot.UnixPaths())
    LogWarn("`unix {}`: UNIX sockets are not judged by a sidecar; mount none into the workload", path);
}

SidecarServer::SidecarServer(SidecarPlan plan, std::unique_ptr<supervisor::Fence> fence, CanaryProbe canary,
                             policy::CurrentPolicy& policy, std::string source, audit::Writer& writer)
    : plan_(std::move(plan)),
      fence_(std::move(fence)),
      policy_(policy),
      writer_(writer),
      started_(std::chrono::steady_clock::now()),
      source_(std::move(source)),
      canary_(std::move(canary)) {}

Result<std::unique_ptr<SidecarServer>> SidecarServer::Start(SidecarPlan plan, std::unique_ptr<supervisor::Fence> fence,
                                                            CanaryProbe canary, policy::CurrentPolicy& policy, std::string source,
                                                            audit::Writer& writer) {
  std::unique_ptr<SidecarServer> server(
      new SidecarServer(std::move(plan), std::move(fence), std::move(canary), policy, std::move(source), writer));
  SidecarServer& self = *server;
  if (self.plan_.names) self.plan_.names->Restore(self.pool_, *self.history_);
  auto engine = proxy::Engine::Start(self.plan_.engine, policy, writer);
  if (!engine) return std::unexpected(engine.error());
  self.engine_ = *std::move(engine);
  if (auto listening = self.plan_.sockets.Listen(); !listening) return std::unexpected(listening.error());
  if (auto started = self.StartResolvers(); !started) return std::unexpected(started.error());
  std::unique_ptr<supervisor::ClientProcesses> processes;
  if (self.plan_.processes == ProcessSight::kSeen) {
    auto opened = supervisor::ClientProcesses::Open();
    if (!opened) return std::unexpected(opened.error());
    processes = *std::move(opened);
  }
  std::vector<UniqueFd> listeners;
  for (supervisor::RedirectFamily& family : self.plan_.sockets.families) listeners.push_back(std::move(family.listener));
  auto listener = TransparentListener::Start({self.pool_, *self.history_, *self.engine_, policy, writer, self.canary_.name()},
                                             std::move(listeners), std::move(processes), self.plan_.engine.host_addresses);
  if (!listener) return std::unexpected(listener.error());
  self.listener_ = *std::move(listener);
  {
    const std::lock_guard lock(self.acts_);
    if (auto opened = self.Refence(); !opened) return std::unexpected(opened.error());
  }
  const auto told = [&self, restored = Pace(), failed = Pace()](const supervisor::FenceChange& change) mutable {
    Pace& pace = change.restored ? restored : failed;
    if (pace.Due(SystemClock().Steady())) {
      const uint64_t passed = pace.Passed();
      const std::string more = passed == 0 ? "" : fmt::format(" ({} more since that was told last)", passed);
      if (change.restored) {
        LogWarn("fence: {}; put right{}", change.what, more);
      } else {
        LogError("fence: {}; not ready until it is put right{}", change.what, more);
      }
    }
    const std::lock_guard lock(self.acts_);
    ++self.fence_told_;
    if (!self.shut_) self.fence_fault_ = change.restored ? "" : change.what;
    // What the resolver published may be gone from the sets.
    for (const auto& resolver : self.resolvers_) resolver->ForgetLeases();
  };
  if (auto watching = self.fence_->Watch(told); !watching) return std::unexpected(watching.error());
  return server;
}

SidecarServer::~SidecarServer() {
  {
    const std::lock_guard lock(acts_);
    ending_ = true;
  }
  wake_.notify_all();
  for (std::thread* thread : {&tender_, &looker_})
    if (thread->joinable()) thread->join();
  BeginDrain();
  {
    const std::lock_guard lock(acts_);
    Shut();
  }
  if (engine_)
    OnResolverThread([this] {
      const std::lock_guard lock(acts_);
      resolvers_.clear();
    });
  engine_.reset();
  fence_->Release();
}

void SidecarServer::OnResolverThread(const std::function<void()>& work) {
  std::promise<void> done;
  boost::asio::post(engine_->ResolverContext(), [&] {
    work();
    done.set_value();
  });
  done.get_future().wait();
}

dns::ServerOptions SidecarServer::ResolverOptions(supervisor::RedirectFamily& family) {
  dns::ServerOptions options;
  options.udp = std::move(family.dns_udp);
  options.tcp = std::move(family.dns_tcp);
  options.attribute = [this](policy::Transport transport, const Endpoint& client, const Endpoint&) {
    return WhoseLookup(transport, client);
  };
  options.canary = canary_.name();
  options.host_addresses = plan_.engine.host_addresses;
  options.ipv6 = plan_.ipv6;
  options.history = history_;
  options.publish = [this](std::span<const dns::Lease> leases, std::chrono::milliseconds lifetime) {
    return PublishLeases(leases, lifetime);
  };
  return options;
}

policy::ProcessPtr SidecarServer::WhoseLookup(policy::Transport transport, const Endpoint& client) {
  if (askers_ == nullptr) return nullptr;
  const auto digests = policy_.Get()->NeedsDigests() ? supervisor::Digests::kNeeded : supervisor::Digests::kNone;
  return askers_->OfSender(transport, client, digests);
}

Result<void> SidecarServer::StartResolvers() {
  if (plan_.processes == ProcessSight::kSeen) {
    auto opened = supervisor::ClientProcesses::Open();
    if (!opened) return std::unexpected(opened.error());
    askers_ = *std::move(opened);
  }
  Result<void> started;
  OnResolverThread([&] {
    for (supervisor::RedirectFamily& family : plan_.sockets.families) {
      auto server = dns::Server::Start(engine_->ResolverContext(), ResolverOptions(family), engine_->ResolverClient(), pool_,
                                       policy_, writer_);
      if (!server) {
        started = std::unexpected(server.error());
        return;
      }
      resolvers_.push_back(*std::move(server));
    }
  });
  return started;
}

Result<std::chrono::steady_clock::duration> SidecarServer::PublishLeases(std::span<const dns::Lease> leases,
                                                                         std::chrono::milliseconds lifetime) {
  std::vector<supervisor::FenceElement> elements;
  elements.reserve(leases.size());
  for (const dns::Lease& lease : leases) elements.push_back(ElementOf(lease));
  if (shut_) return Fail(Code::kInternal, "the fence is shut until the kernel takes its rules");
  return fence_->Publish(elements, lifetime);
}

Result<void> SidecarServer::Refence() {
  const policy::SnapshotPtr snapshot = policy_.Get();
  const WallTime now = SystemClock().Wall();
  FenceAllows allows = FenceAllowsFor(*snapshot, now);
  plan_.fence.proxy_port = plan_.sockets.proxy_port;
  plan_.fence.dns_port = plan_.sockets.dns_port;
  plan_.fence.allow = std::move(allows.allow);
  plan_.fence.deny = std::move(allows.deny);
  ++plan_.fence.generation;
  until_ = allows.until;
  StillLeased leased(*snapshot, *history_, now, plan_.engine.host_addresses);
  const auto still = [&](const supervisor::FenceElement& element) { return leased(element); };
  const supervisor::StaticAllows allowed(plan_.fence);
  // First what names opened, which takes the shorter: what ends by it does not wait for the rules.
  auto fenced =
      fence_->Withdraw([&](const supervisor::FenceElement& element) { return !leased(element) && !allowed.Contain(element); });
  if (fenced) fenced = fence_->Replace(plan_.fence, still);
  // What was taken out may be allowed again by the next policy.
  for (const auto& resolver : resolvers_) resolver->ForgetLeases();
  ++fence_told_;
  fence_fault_ = fenced ? "" : fenced.error().message;
  if (!fenced) return fenced;
  fenced_ = snapshot;
  shut_ = false;
  return {};
}

Result<uint64_t> SidecarServer::SetOwnPolicy(policy::SnapshotPtr own, std::string source) {
  const PolicyOutcome outcome = Put(std::move(own), std::move(source), std::nullopt);
  if (outcome.kind != PolicyOutcome::Kind::kSet) return std::unexpected(outcome.error);
  return outcome.revision;
}

// Under acts_. A kernel that does not take the rules of a policy leaves the one before it in force, and shut until it takes
// those.
Result<void> SidecarServer::FenceCurrent(std::string source) {
  if (auto refenced = Refence(); !refenced) {
    policy_.Set(fenced_);
    Shut();
    until_ = SystemClock().Wall();
    return Fail(
        refenced.error().code,
        fmt::format("the kernel did not take the policy's rules, so that the policy before it stays, and nothing is let out "
                    "until its rules are in force again: {}",
                    refenced.error().message));
  }
  source_ = std::move(source);
  return {};
}

// Under acts_. What the kernel passes by itself ends here.
void SidecarServer::Shut() {
  {
    // A lease that is being published is in the kernel before the sets are emptied, or is refused.
    const auto no_act = policy_.Hold();
    shut_ = true;
  }
  ++plan_.fence.generation;
  const auto shut = fence_->Replace(supervisor::ClosedPlan(plan_.fence));
  // Also where the rules stay as they were.
  const auto emptied = fence_->Withdraw([](const supervisor::FenceElement&) { return true; });
  for (const auto& resolver : resolvers_) resolver->ForgetLeases();
  for (const auto* done : {&shut, &emptied})
    if (!*done) LogError("fence: {}", done->error().message);
}

PolicyOutcome SidecarServer::SetPolicy(policy::SnapshotPtr next, std::string source, std::optional<uint64_t> if_revision) {
  if (auto checked = CheckSidecarPolicy(*next, plan_.processes); !checked)
    return {PolicyOutcome::Kind::kRefused, policy_.generation(), checked.error()};
  TellSidecarPolicy(*next);
  PolicyOutcome outcome = Put(std::move(next), std::move(source), if_revision);
  if (outcome.kind == PolicyOutcome::Kind::kFailed) LogError("fence: {}", outcome.error.message);
  return outcome;
}

PolicyOutcome SidecarServer::Put(policy::SnapshotPtr next, std::string source, std::optional<uint64_t> if_revision) {
  PolicyOutcome outcome;
  {
    const std::lock_guard lock(acts_);
    if (if_revision && *if_revision != policy_.generation()) return {PolicyOutcome::Kind::kConflict, policy_.generation(), {}};
    policy_.Set(std::move(next));
    outcome = {PolicyOutcome::Kind::kSet, policy_.generation(), {}};
    // The proxy's workers cut what they carry meanwhile.
    engine_->PolicyChanged();
    if (auto fenced = FenceCurrent(std::move(source)); !fenced)
      outcome = {PolicyOutcome::Kind::kFailed, policy_.generation(), fenced.error()};
  }
  wake_.notify_all();
  if (outcome.kind == PolicyOutcome::Kind::kFailed) engine_->PolicyChanged();
  return outcome;
}

ServedPolicy SidecarServer::Policy() const {
  const std::lock_guard lock(acts_);
  return {policy_.Get(), policy_.generation(), source_};
}

// One that came later is seen too: its proxy may begin after this one.
void SidecarServer::LookForMesh() {
  const auto mesh = supervisor::FindMesh();
  std::string text;
  if (mesh)
    text = fmt::format("{} is in this network ({}): {}; where that is done, nothing else is needed", mesh->name, mesh->sign,
                       mesh->advice);
  const std::lock_guard lock(acts_);
  if (mesh_notice_.Due(text, SystemClock().Steady())) LogWarn("{}", text);
  mesh_ = std::move(text);
}

void SidecarServer::LookAgain() {
  const uint64_t before = listener_->canaries();
  auto report = canary_.Look();
  const bool captured = listener_->canaries() > before;
  LookForMesh();
  const auto rest = [this](std::chrono::milliseconds longest) {
    std::unique_lock lock(acts_);
    return wake_.wait_for(lock, longest, [this] { return ending_; });
  };
  auto neighbours =
      plan_.processes == ProcessSight::kSeen ? supervisor::FindNeighbourRights(rest) : supervisor::NeighbourRights();
  const std::lock_guard lock(acts_);
  neighbours_ = std::move(neighbours);
  seen_ = report ? std::optional(*report) : std::nullopt;
  canary_fault_.clear();
  if (!report) {
    canary_fault_ = report.error().message;
    return;
  }
  const bool tcp = report->tcp4 == Sight::kCaptured || report->tcp6 == Sight::kCaptured;
  if (!report->Refused()) {
    canary_fault_ = "a connection that must be refused was not: " + report->Text();
  } else if (tcp && !captured) {
    canary_fault_ = "the connection that must be refused was reset by somebody else: " + report->Text();
  } else if (!report->Answered()) {
    canary_fault_ =
        (report->lookup == Sight::kAnswered ? "a connection did not reach the proxy, or its answer did not come back: "
                                            : "a lookup did not reach the resolver: ") +
        report->Text();
  }
}

Result<void> SidecarServer::Prove() {
  for (int attempt = 1;; ++attempt) {
    LookAgain();
    const std::lock_guard lock(acts_);
    if (canary_fault_.empty()) break;
    // What got out is a fault at once; a lookup may be lost.
    if ((seen_ && !seen_->Refused()) || attempt == kLooks) return Fail(Code::kInternal, canary_fault_);
  }
  if (auto held = fence_->Check(); !held) return held;
  tender_ = std::thread([this] { Tend(); });
  looker_ = std::thread([this] { Look(); });
  return {};
}

// Makes the rules anew when one of the policy ends.
void SidecarServer::Tend() {
  std::unique_lock lock(acts_);
  while (!ending_) {
    if (!until_) {
      wake_.wait(lock);
      continue;
    }
    if (const auto wait = *until_ - SystemClock().Wall(); wait.count() > 0) {
      // The wall clock may be set.
      wake_.wait_for(lock, std::min<WallTime::duration>(wait, plan_.look_again));
      continue;
    }
    // A rule that has ended must not go on, whatever the kernel makes of the others.
    if (auto refenced = Refence(); !refenced) {
      LogError("fence: {}; shut until its rules are in force", refenced.error().message);
      Shut();
      until_ = SystemClock().Wall() + plan_.look_again;
    }
  }
}

// Looks at the fence every few seconds.
void SidecarServer::Look() {
  std::unique_lock lock(acts_);
  while (!wake_.wait_for(lock, plan_.look_again, [this] { return ending_; })) {
    const bool draining = draining_;
    const uint64_t told = fence_told_;
    lock.unlock();
    if (!draining) LookAgain();
    auto held = fence_->Check();
    lock.lock();
    // What was told meanwhile is newer than what was looked at.
    if (!shut_ && told == fence_told_) fence_fault_ = held ? "" : held.error().message;
  }
}

void SidecarServer::BeginDrain() {
  {
    const std::lock_guard lock(acts_);
    draining_ = true;
  }
  if (listener_) listener_->Stop();
}

std::vector<ReadinessCheck> SidecarServer::Readiness() const {
  const std::lock_guard lock(acts_);
  std::vector<ReadinessCheck> checks;
  const auto add = [&](const char* name, const std::string& fault) { checks.push_back({name, fault.empty(), fault}); };
  constexpr std::string_view kTry = " (`sluice doctor --mode sidecar` tries what the fence is made of)";
  add("fence", fence_fault_.empty() ? "" : fmt::format("{}{}", fence_fault_, kTry));
  add("canary", canary_fault_.empty() ? "" : fmt::format("{}{}", canary_fault_, kTry));
  add("audit", writer_.healthy() ? "" : "records can no longer be written, so everything is refused");
  add("serving", draining_ ? "ending" : "");
  checks.push_back(WorkloadCheck());
  if (!mesh_.empty()) checks.push_back({"mesh", true, mesh_});
  for (std::string& weakness : fence_->Weaknesses()) checks.push_back({"weakness", true, std::move(weakness)});
  return checks;
}

// Under acts_.
ReadinessCheck SidecarServer::WorkloadCheck() const {
  constexpr const char* kName = "workload";
  if (plan_.processes == ProcessSight::kUnseen)
    return {kName, true,
            "which capabilities it holds cannot be seen from here; it must have neither CAP_NET_ADMIN nor, where a "
            "weakness says so, CAP_NET_RAW"};
  if (!neighbours_.unseen.empty()) return {kName, false, neighbours_.unseen};
  std::string fault;
  if (!neighbours_.net_admin.empty()) {
    fault = fmt::format(
        "{} holds CAP_NET_ADMIN over this network and could go around the fence: take it away, or give the workload a network of "
        "its own",
        neighbours_.net_admin);
  } else if (!neighbours_.net_raw.empty() && fence_->OpenToNetRaw()) {
    fault = fmt::format(
        "{} holds CAP_NET_RAW and could send past the fence by AF_XDP: take it away, or give Sluice CAP_NET_RAW to guard against "
        "that",
        neighbours_.net_raw);
  }
  if (fault.empty() || plan_.workload_rights == WorkloadRights::kRefused) return {kName, fault.empty(), std::move(fault)};
  return {kName, true, fault + " (accepted: --unsafe-workload-rights)"};
}

std::vector<std::string> SidecarServer::NamesOf(const IpAddress& address) const {
  if (auto name = pool_.NameOf(address)) return {*std::move(name)};
  return history_->NamesOf(address, SystemClock().Steady());
}

Result<dns::CachePage> SidecarServer::ResolverCache(const std::string& after, size_t limit) {
  // Shared with the resolver's thread, which may come to it after nobody waits any more.
  const auto page = std::make_shared<std::promise<dns::CachePage>>();
  auto got = page->get_future();
  boost::asio::post(engine_->ResolverContext(), [this, page, after, limit] {
    dns::CachePage cached = engine_->ResolverClient().Cached(after, limit);
    for (const auto& resolver : resolvers_) resolver->NoteLeases(&cached.entries);
    page->set_value(std::move(cached));
  });
  if (got.wait_for(kCacheWait) != std::future_status::ready) return Fail(Code::kTimeout, "the resolver is busy; ask again");
  return got.get();
}

std::chrono::seconds SidecarServer::Uptime() const {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - started_);
}

}  // namespace sluice::app
