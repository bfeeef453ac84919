#pragma once

// One sidecar put together from the rooms: fence, resolver, transparent listener, proxy. The order is the safety argument: the
// fence is shut before anything listens, and opened once everything behind it answers.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "app/canary_probe.h"
#include "app/kept_names.h"
#include "app/served_control.h"
#include "app/transparent_listener.h"
#include "audit/audit.h"
#include "base/complaint.h"
#include "base/result.h"
#include "dns/io/server.h"
#include "dns/name_history.h"
#include "dns/synthetic.h"
#include "policy/event.h"
#include "proxy/io/engine.h"
#include "supervisor/io/fence.h"
#include "supervisor/io/neighbour_rights.h"
#include "supervisor/io/redirect_sockets.h"

namespace sluice::app {

/// Whether the processes of the namespace can be told apart from here.
enum class ProcessSight : uint8_t { kSeen, kUnseen };

/// What becomes of readiness where a container beside this one holds a capability that leads past the fence.
enum class WorkloadRights : uint8_t { kRefused, kUnsafeAccepted };

struct SidecarPlan {
  proxy::EngineOptions engine;
  supervisor::FencePlan fence;  ///< seals, ports and inbound; the rules come from the policy
  supervisor::RedirectSockets sockets;
  ProcessSight processes = ProcessSight::kUnseen;
  dns::Ipv6Egress ipv6 = dns::Ipv6Egress::kPresent;
  WorkloadRights workload_rights = WorkloadRights::kRefused;
  std::unique_ptr<NameStore> names{};          ///< null: a restart knows nothing of the names that were told
  std::chrono::milliseconds look_again{5000};  ///< how often what should hold is looked at, and what the kernel refused is tried
};

/// Rules that could not be judged here are errors that name them: of processes where none can be seen, of UDP that the kernel
/// cannot tell apart.
[[nodiscard]] Result<void> CheckSidecarPolicy(const policy::Snapshot& snapshot, ProcessSight processes);
/// Logs what of one that comes into force is without effect here.
void TellSidecarPolicy(const policy::Snapshot& snapshot);

class SidecarServer final : public ServedControl {
 public:
  /// The fence is shut and in force already. Opens everything behind it, then the fence itself. References outlive the server.
  static Result<std::unique_ptr<SidecarServer>> Start(SidecarPlan plan, std::unique_ptr<supervisor::Fence> fence,
                                                      CanaryProbe canary, policy::CurrentPolicy& policy, std::string source,
                                                      audit::Writer& writer);
  /// Shuts the fence and leaves it in force.
  ~SidecarServer() override;

  /// Looks with the canary now; an error says what got through. Once, before anything is called ready; it is repeated by itself
  /// from then on.
  [[nodiscard]] Result<void> Prove();
  /// Puts the operator's own policy in force, loaded and checked anew, and gives its revision. An error: the kernel did not take
  /// the rules. Then the policy before is the current one again, and nothing is let out until its rules are in force, which is
  /// tried at once and with each look.
  [[nodiscard]] Result<uint64_t> SetOwnPolicy(policy::SnapshotPtr own, std::string source);
  /// Takes no more connections: new ones are reset, and those that are open may end.
  void BeginDrain();
  [[nodiscard]] proxy::Engine& engine() { return *engine_; }

  [[nodiscard]] std::vector<ReadinessCheck> Readiness() const override;
  [[nodiscard]] ServedPolicy Policy() const override;
  [[nodiscard]] PolicyOutcome SetPolicy(policy::SnapshotPtr next, std::string source,
                                        std::optional<uint64_t> if_revision) override;
  [[nodiscard]] supervisor::Fence* fence() override { return fence_.get(); }
  [[nodiscard]] size_t OpenConnections() const override { return engine_->Open(); }
  [[nodiscard]] std::vector<std::string> NamesOf(const IpAddress& address) const override;
  [[nodiscard]] size_t ToldAddresses() const override { return history_->size() + pool_.size(); }
  [[nodiscard]] Result<dns::CachePage> ResolverCache(const std::string& after, size_t limit) override;
  [[nodiscard]] std::chrono::seconds Uptime() const override;

 private:
  SidecarServer(SidecarPlan plan, std::unique_ptr<supervisor::Fence> fence, CanaryProbe canary, policy::CurrentPolicy& policy,
                std::string source, audit::Writer& writer);
  Result<void> StartResolvers();
  [[nodiscard]] dns::ServerOptions ResolverOptions(supervisor::RedirectFamily& family);
  [[nodiscard]] policy::ProcessPtr WhoseLookup(policy::Transport transport, const Endpoint& client);
  void OnResolverThread(const std::function<void()>& work);
  Result<std::chrono::steady_clock::duration> PublishLeases(std::span<const dns::Lease> leases,
                                                            std::chrono::milliseconds lifetime);
  /// The rules of the policy in force, in a new generation; what it no longer lets out is cut. With `acts_` held.
  Result<void> Refence();
  /// Sets the policy and its rules in one act, which begins by looking at what is in force.
  [[nodiscard]] PolicyOutcome Put(policy::SnapshotPtr next, std::string source, std::optional<uint64_t> if_revision);
  /// The rules of a policy that was just set; where the kernel does not take them, the one before comes back, shut. With `acts_`
  /// held.
  [[nodiscard]] Result<void> FenceCurrent(std::string source);
  /// Nothing of the workload's leaves any more, until the next Refence. With `acts_` held.
  void Shut();
  void Tend();
  void Look();
  void LookAgain();
  void LookForMesh();
  [[nodiscard]] ReadinessCheck WorkloadCheck() const;

  SidecarPlan plan_;
  std::unique_ptr<supervisor::Fence> fence_;
  policy::CurrentPolicy& policy_;
  audit::Writer& writer_;
  const std::chrono::steady_clock::time_point started_;
  dns::SyntheticPool pool_{0, plan_.names ? plan_.names->place() : dns::SyntheticPlace::DrawAnywhere()};
  std::shared_ptr<dns::NameHistory> history_ = std::make_shared<dns::NameHistory>();
  std::unique_ptr<proxy::Engine> engine_;
  std::unique_ptr<TransparentListener> listener_;
  std::unique_ptr<supervisor::ClientProcesses> askers_;  ///< the resolver's thread; null where no process is seen
  std::vector<std::unique_ptr<dns::Server>> resolvers_;  ///< one for each family
  // One at a time, from the swap of a policy to its rules: of whoever sets one, and of the threads below.
  mutable std::mutex acts_;
  std::string source_;
  std::optional<WallTime> until_;  ///< when the fence's rules are to be made anew
  bool draining_ = false;
  policy::SnapshotPtr fenced_;     ///< whose rules the kernel took last
  std::atomic<bool> shut_{false};  ///< the kernel did not take some: nothing is let out meanwhile, no lease either
  std::string fence_fault_;        ///< empty: the rules are in force as planned
  uint64_t fence_told_ = 0;        ///< how often that was set by what happened, not by a look
  CanaryProbe canary_;
  std::optional<CanaryReport> seen_;
  std::string canary_fault_ = "not looked yet";
  supervisor::NeighbourRights neighbours_;  ///< where processes are seen
  std::string mesh_;                        ///< what to do about a service mesh; empty: none is seen
  Notice mesh_notice_;                      ///< the workload may listen on a mesh's ports, and stop
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread tender_;  ///< ends what rules allow no longer
  std::thread looker_;  ///< its canary may wait for seconds
};

}  // namespace sluice::app
