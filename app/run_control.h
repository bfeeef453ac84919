#pragma once

// `sluice run --control`: the administration of a run, over its own state. What a sidecar serves of policies, decisions and
// questions is the same code (admin_api.h); a run adds how its command stands, stop and hold.
//
//   auto plan = PlanControl(options.control, options.await_hold, spec);   // before anything starts
//   auto control = RunControl::Start(*std::move(plan), parts, policy, sandbox, writer, stream);
//   (*control)->AwaitHold();  …  Release();  …  CommandEnded();  …  Finish(status, totals, code);

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "app/admin_api.h"
#include "app/admin_server.h"
#include "app/run_hold.h"
#include "app/sandbox.h"
#include "app/served_control.h"
#include "audit/audit.h"
#include "policy/event.h"
#include "supervisor/launch_spec.h"
#include "supervisor/published_port.h"

namespace sluice::app {

inline constexpr std::chrono::milliseconds kLastStreamsDeadline{1000};  ///< for who reads a stream when the run has ended

struct ControlPlan {
  std::vector<ListenAddress> sockets;
  std::vector<UniqueFd> channels;
  bool await_hold = false;
  [[nodiscard]] bool wanted() const { return !sockets.empty() || !channels.empty(); }
};

/// `control`: "/PATH", "unix:/PATH", or "fd:N" as TakeChannel says. kInvalid: something else, or a path that the command would
/// see.
[[nodiscard]] Result<ControlPlan> PlanControl(const std::vector<std::string>& control, bool await_hold,
                                              const supervisor::LaunchSpec& spec);

struct RunControlParts {
  std::function<Result<policy::SnapshotPtr>(const PolicyText&)> compile;  ///< as AdminApiOptions says
  std::function<Result<PolicyText>()> own_text;
  policy::SnapshotPtr own;
  std::string own_source;  ///< "policy.yaml"
  std::string command;
  std::vector<supervisor::PublishedPort> published{};
  supervisor::OnDisconnect on_disconnect = supervisor::OnDisconnect::kKill;  ///< what becomes of a run whose controller is lost
  std::function<void()> policy_changed{};  ///< told of each policy that is put in force; null: nobody is
};

class RunControl final : public ServedControl, public RunSteering {
 public:
  /// Binds and serves. References outlive it, but for the sandbox and the writer: CommandEnded lets go of those.
  static Result<std::unique_ptr<RunControl>> Start(ControlPlan plan, RunControlParts parts, policy::CurrentPolicy& policy,
                                                   Sandbox& sandbox, audit::Writer& writer, DecisionStream& stream);
  ~RunControl() override;

  /// With --await-hold, blocks until somebody holds the run; kTimeout, or kNotFound: nobody will.
  [[nodiscard]] Result<void> AwaitHold();
  /// Puts the operator's own policy in force, loaded anew, and gives its revision. kInvalid: the command has ended.
  [[nodiscard]] Result<uint64_t> SetOwnPolicy(policy::SnapshotPtr own);
  /// Lets the prepared command run.
  [[nodiscard]] Result<void> Release();
  /// It never ran. Once the result is written, as Finish.
  void Failed(const std::string& error, int exit_code);
  /// Before the sandbox and the writer go. From here on the policy stays as it is.
  void CommandEnded();
  /// Once every record and the result are written: tells whoever holds the run how it ended, ends the streams, and waits a little
  /// until they are read.
  void Finish(const supervisor::ExitStatus& end, audit::Totals totals, int exit_code);

  [[nodiscard]] std::vector<ReadinessCheck> Readiness() const override;
  [[nodiscard]] ServedPolicy Policy() const override;
  [[nodiscard]] PolicyOutcome SetPolicy(policy::SnapshotPtr next, std::string source,
                                        std::optional<uint64_t> if_revision) override;
  [[nodiscard]] size_t OpenConnections() const override;
  [[nodiscard]] std::vector<std::string> NamesOf(const IpAddress& address) const override;
  [[nodiscard]] size_t ToldAddresses() const override;
  [[nodiscard]] std::chrono::seconds Uptime() const override;
  [[nodiscard]] RunSteering* run() override { return this; }

  [[nodiscard]] RunStatus Status() const override;
  void Stop(std::chrono::milliseconds grace) override;

 private:
  RunControl(RunControlParts parts, policy::CurrentPolicy& policy, Sandbox& sandbox, audit::Writer& writer,
             DecisionStream& stream);
  /// Puts it in force, with mutex_ held: nobody else sets the policy of a run with a control, so that what was looked at under it
  /// still stands.
  [[nodiscard]] Result<uint64_t> Put(policy::SnapshotPtr next, std::string source);
  void HoldChanged(RunHold::Change change);
  void Tell();
  void TellEnd();
  void EndWithin(std::chrono::milliseconds grace);
  void KillLater();

  const RunControlParts parts_;
  policy::CurrentPolicy& policy_;
  DecisionStream& stream_;
  const std::chrono::steady_clock::time_point started_;
  bool await_hold_ = false;
  RunHold hold_;
  mutable std::mutex mutex_;
  Sandbox* sandbox_;       // with mutex_; null once the command has ended
  audit::Writer* writer_;  // as sandbox_
  RunStatus status_;
  std::string source_;
  std::condition_variable wake_;
  std::optional<std::chrono::steady_clock::time_point> kill_at_;
  bool ending_ = false;
  std::thread killer_;
  std::unique_ptr<AdminApi> api_;
  std::unique_ptr<AdminServer> server_;  // last: it uses the rest
};

}  // namespace sluice::app
