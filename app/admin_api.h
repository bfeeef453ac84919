#pragma once

// The administration of a running sidecar or run, request by request: policy, explain, sets, names, status, health, metrics,
// stop. Talks to a ServedControl alone and has no socket (admin_server.h). docs/admin-api.md is what callers read.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/admin_http.h"
#include "app/decision_stream.h"
#include "app/policy_state.h"
#include "app/served_control.h"

namespace sluice::app {

/// Who gives the policy, and so who else may not.
enum class PolicyOwner : uint8_t {
  kFileOrApi,    ///< whoever spoke last
  kBundle,       ///< --policy-url
  kOpenSandbox,  ///< --compat opensandbox
};

/// A policy as text, and what it is called.
struct PolicyText {
  std::string text;
  std::string name;
};

struct AdminApiOptions {
  PolicyOwner owner = PolicyOwner::kFileOrApi;
  /// Compiles a text under the command line's other options (--via). It cannot include other files.
  std::function<Result<policy::SnapshotPtr>(const PolicyText&)> compile;
  /// The text of the policy that the command line gives, where it is one file and nothing else; kUnsupported says why there is
  /// none.
  std::function<Result<PolicyText>()> own_text;
  std::optional<PolicyState> state{};
  std::string version{};
  std::string source = "the admin API";  ///< what policies that come by it are said to come from
  policy::SnapshotPtr own{};             ///< the operator's, whose credentials and proxies other policies may use
  std::string awaits{};  ///< where the first policy is to come from: not ready until Apply; empty: nothing is awaited
  std::optional<PolicyText> in_force{};  ///< what is in force at the start, where that is not the operator's
};

/// How a run stands, as GET /v1/status and the lines of GET /v1/hold say it.
[[nodiscard]] nlohmann::json RunJson(const RunStatus& status);

class AdminApi {
 public:
  /// References outlive it.
  AdminApi(AdminApiOptions options, ServedControl& control, DecisionStream& stream);

  /// Any thread; changes one at a time. May take seconds to prove.
  [[nodiscard]] AdminResponse Handle(const AdminRequest& request);
  /// /healthz, /readyz and /metrics alone; 404 for everything else.
  [[nodiscard]] AdminResponse HandleHealth(const AdminRequest& request) const;

  /// For bundles and compatible fronts: compiled, checked, put in force and stored, or an error and the old one stays.
  [[nodiscard]] Result<void> Apply(StoredPolicy next);
  /// The operator's own policy was loaded again and became `revision`: what was stored over the one before no longer counts, but
  /// for a policy that came into force since.
  void OwnPolicyLoaded(policy::SnapshotPtr own, uint64_t revision);

 private:
  [[nodiscard]] AdminResponse Route(const AdminRequest& request);
  [[nodiscard]] AdminResponse Health(std::string_view path) const;
  [[nodiscard]] AdminResponse RoutePolicy(const AdminRequest& request);
  [[nodiscard]] AdminResponse GetPolicy(const AdminRequest& request);
  [[nodiscard]] AdminResponse GetRules(std::string_view id) const;
  [[nodiscard]] AdminResponse Put(const AdminRequest& request);
  /// `rule_id`: PUT or DELETE of that rule; empty: PATCH of the whole.
  [[nodiscard]] AdminResponse Edit(const AdminRequest& request, const std::string& rule_id);
  [[nodiscard]] AdminResponse Explain(const AdminRequest& request) const;
  [[nodiscard]] AdminResponse Sets(const AdminRequest& request) const;
  [[nodiscard]] AdminResponse NamesOf(std::string_view address) const;
  [[nodiscard]] AdminResponse Names(const AdminRequest& request) const;
  [[nodiscard]] AdminResponse Status() const;
  [[nodiscard]] AdminResponse Stop(const AdminRequest& request) const;
  [[nodiscard]] std::vector<ReadinessCheck> Checks() const;
  [[nodiscard]] Result<PolicyText> TextInForce();
  [[nodiscard]] Result<void> CheckSecrets(const policy::Snapshot& next) const;
  [[nodiscard]] std::optional<AdminResponse> CheckMayChange(const AdminRequest& request, uint64_t revision) const;
  [[nodiscard]] AdminResponse PutInForce(const AdminRequest& request, const ServedPolicy& served, PolicyText next);
  [[nodiscard]] Result<void> Store(StoredPolicy next) const;
  /// What is stored, over the operator's policy of now.
  [[nodiscard]] Result<void> StoreAgain() const;

  const AdminApiOptions options_;
  ServedControl& control_;
  DecisionStream& stream_;
  std::atomic<bool> applied_{false};
  std::mutex changes_;
  // With changes_ held. The text of `set_`, where that is still in force.
  policy::SnapshotPtr own_;
  std::optional<PolicyText> text_;
  policy::SnapshotPtr set_;
};

}  // namespace sluice::app
