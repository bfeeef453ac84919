#pragma once

// The egress policy calls of OpenSandbox (GET, POST, PUT, PATCH and DELETE /policy) over a Sluice policy: its JSON, its header,
// its status codes, its text/plain errors. docs/admin-api.md says what differs: enforcement is always on, and a caller from
// inside the sandbox needs the token.

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/admin_http.h"
#include "base/result.h"

namespace sluice::app {

inline constexpr size_t kMaxEgressRules = 4096;  ///< OPENSANDBOX_EGRESS_MAX_RULES where it is not set
inline constexpr size_t kMaxEgressPolicyBytes = 1024 * 1024;

struct EgressRule {
  std::string action;  ///< "allow" or "deny"
  std::string target;
  std::vector<uint16_t> ports{};  ///< empty: all
  bool operator==(const EgressRule&) const = default;
};
struct EgressPolicy {
  std::string default_action = "deny";
  std::vector<EgressRule> egress{};
  bool operator==(const EgressPolicy&) const = default;
};

/// Empty, `null` and `{}` are deny-all. Duplicate and unknown keys are refused: what they were to restrict would be open.
[[nodiscard]] Result<EgressPolicy> ParseEgressPolicy(std::string_view json);
/// An array of rules (PATCH), an array of targets (DELETE).
[[nodiscard]] Result<std::vector<EgressRule>> ParseEgressRules(std::string_view json);
[[nodiscard]] Result<std::vector<std::string>> ParseEgressTargets(std::string_view json);
[[nodiscard]] std::string EgressPolicyJson(const EgressPolicy& policy);

/// The additions first, then what they do not name; of one target the first wins.
[[nodiscard]] std::vector<EgressRule> MergeEgress(const std::vector<EgressRule>& base, const std::vector<EgressRule>& additions);
/// "deny_all", "allow_all", "enforcing".
[[nodiscard]] std::string_view EgressMode(const EgressPolicy& policy);
/// `deny.always`, `allow.always`: a target a line, `#` comments.
[[nodiscard]] Result<std::vector<EgressRule>> ParseAlwaysRules(std::string_view text, std::string_view action,
                                                               std::string_view file);

struct EgressOverlay {
  std::vector<EgressRule> deny{};   ///< over everything
  std::vector<EgressRule> allow{};  ///< over the user's policy
};
/// The native policy that means the same, as text.
[[nodiscard]] Result<std::string> NativeText(const EgressPolicy& policy, const EgressOverlay& overlay);

struct OpenSandboxOptions {
  std::string token;                   ///< empty: callers from this host may only look
  size_t max_rules = kMaxEgressRules;  ///< 0: as many as a policy may have
  std::string policy_file;             ///< kept up to date with the user's policy; empty: none
  std::string rules_folder = "/var/egress/rules";
};
/// From OPENSANDBOX_EGRESS_TOKEN and its like, asked by name.
[[nodiscard]] Result<OpenSandboxOptions> OpenSandboxFromEnvironment(const std::function<const char*(const char*)>& get);
/// Whether its platform started this process: one of the variables that it gives its own egress sidecar is set.
[[nodiscard]] bool IsOpenSandboxEnvironment(const std::function<const char*(const char*)>& get);
/// What the same platform says of the rest: OPENSANDBOX_EGRESS_DNS_UPSTREAM, and OPENSANDBOX_EGRESS_SANDBOX_ID, which is the
/// label `sandbox`. Neither replaces what the command line says.
void TakeOpenSandboxSettings(const std::function<const char*(const char*)>& get, std::vector<std::string>* resolvers,
                             std::vector<std::string>* labels);
/// The policy to begin with: the policy file, else OPENSANDBOX_EGRESS_RULES, else deny-all.
[[nodiscard]] Result<EgressPolicy> InitialEgressPolicy(const OpenSandboxOptions& options, const char* rules);
/// What the folder holds now; files that are not there are empty.
[[nodiscard]] Result<EgressOverlay> ReadOverlay(const std::string& folder);

class OpenSandboxFront {
 public:
  /// Puts a native text in force: an error says why not.
  using Apply = std::function<Result<void>(const std::string& text)>;
  OpenSandboxFront(OpenSandboxOptions options, EgressPolicy first, EgressOverlay overlay, Apply apply);

  /// Nothing: the caller may change the policy. By the fields alone.
  [[nodiscard]] std::optional<AdminResponse> RefuseChange(const AdminRequest& request) const;
  /// Any thread; one at a time.
  [[nodiscard]] AdminResponse Handle(const AdminRequest& request);
  /// Looks at the always files again; true where they had changed and are in force.
  [[nodiscard]] Result<bool> ReloadOverlay();
  /// The native text of policy and overlay.
  [[nodiscard]] Result<std::string> Text() const;

 private:
  [[nodiscard]] static AdminResponse RefuseVault(const AdminRequest& request);
  [[nodiscard]] AdminResponse Replace(const AdminRequest& request);
  [[nodiscard]] AdminResponse Patch(const AdminRequest& request);
  [[nodiscard]] AdminResponse Remove(const AdminRequest& request);
  /// Nothing where it is in force now.
  [[nodiscard]] std::optional<AdminResponse> Commit(EgressPolicy next);
  [[nodiscard]] AdminResponse Done(std::string_view reason) const;

  const OpenSandboxOptions options_;
  const Apply apply_;
  mutable std::mutex mutex_;
  EgressPolicy policy_;
  EgressOverlay overlay_;
};

}  // namespace sluice::app
