#pragma once

// The administration of a running sidecar, request by request: policy, explain, sets, names, status, health and metrics. Talks to a
// SidecarControl alone and has no socket (admin_server.h). docs/admin-api.md is what callers read.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "app/admin_http.h"
#include "app/decision_stream.h"
#include "app/policy_state.h"
#include "app/sidecar_control.h"

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
  /// The text of the policy that the command line gives, where it is one file and nothing else; kUnsupported says why there is none.
  std::function<Result<PolicyText>()> own_text;
  std::optional<PolicyState> state{};
  std::string version{};
};

class AdminApi {
 public:
  /// References outlive it.
  AdminApi(AdminApiOptions options, SidecarControl& control, DecisionStream& stream);

  /// Any thread; changes one at a time. May take seconds to prove.
  [[nodiscard]] AdminResponse Handle(const AdminRequest& request);
  /// /healthz, /readyz and /metrics alone; 404 for everything else.
  [[nodiscard]] AdminResponse HandleHealth(const AdminRequest& request) const;

  /// For bundles and compatible fronts: compiled, checked, put in force and stored, or an error and the old one stays.
  [[nodiscard]] Result<void> Apply(StoredPolicy next);
  /// What was stored, put in force where it still counts: not where the operator's own policy has changed since. True: it is.
  [[nodiscard]] Result<bool> Restore();

 private:
  struct Change;
  [[nodiscard]] AdminResponse Route(const AdminRequest& request);
  [[nodiscard]] AdminResponse RoutePolicy(const AdminRequest& request);
  [[nodiscard]] AdminResponse GetPolicy(const AdminRequest& request);
  [[nodiscard]] AdminResponse GetRules(std::string_view id);
  [[nodiscard]] AdminResponse Put(const AdminRequest& request, PolicyText next);
  [[nodiscard]] AdminResponse Edit(const AdminRequest& request, const std::string& rule_id);
  [[nodiscard]] AdminResponse Explain(const AdminRequest& request) const;
  [[nodiscard]] AdminResponse Sets() const;
  [[nodiscard]] AdminResponse Names(std::string_view address) const;
  [[nodiscard]] AdminResponse Status() const;
  [[nodiscard]] Result<PolicyText> TextInForce();
  [[nodiscard]] Result<void> CheckSecrets(const policy::Snapshot& next) const;
  [[nodiscard]] std::optional<AdminResponse> CheckMatch(const AdminRequest& request, uint64_t revision) const;

  const AdminApiOptions options_;
  SidecarControl& control_;
  DecisionStream& stream_;
  const policy::SnapshotPtr own_;  ///< at the start: whose credentials and proxies others may use
  std::mutex changes_;
  // With changes_ held: the text of `set_`, where that is still in force.
  std::optional<PolicyText> text_;
  policy::SnapshotPtr set_;
};

}  // namespace sluice::app
