#pragma once

// What stands around a running sidecar, put together: the API and its server, where its policy comes from, what is kept on disk, and who is
// told that it is ready.
//
//   DecisionStream stream;                       // into audit::Options::tap
//   auto plan = PlanAdministration(options);     // before privileges go: reads keys and tokens
//   auto admin = Administration::Start(*std::move(plan), parts, **server, stream);
//   … NotifyService("READY=1") …

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/admin_api.h"
#include "app/admin_server.h"
#include "app/opensandbox.h"
#include "app/policy_bundle.h"
#include "app/policy_poll.h"

namespace CLI {
class App;
}

namespace sluice::app {

struct AdminOptions {
  std::vector<std::string> admin;  ///< "unix:/PATH" or "ADDRESS:PORT"
  std::string admin_token;         ///< file
  bool admin_open = false;         ///< TCP beyond loopback
  std::string health;              ///< "ADDRESS:PORT"
  std::string state;               ///< folder
  std::string policy_url;
  std::string policy_key;   ///< PEM file
  std::string policy_poll;  ///< duration; empty: 30 s
  std::string compat;       ///< "" or "opensandbox"
};

/// The flags of `sluice sidecar` that are about its administration.
void AddAdmin(CLI::App* sidecar, AdminOptions* options);
/// `sluice health`, and what it does.
[[nodiscard]] std::pair<CLI::App*, std::function<int()>> AddHealth(CLI::App& app);

/// What is read and checked before anything is bound.
struct AdminPlan {
  AdminAddresses addresses;
  std::optional<PolicyState> state{};
  std::string policy_url;
  BundleKeys keys;
  std::chrono::milliseconds poll{};
  std::optional<OpenSandboxOptions> front{};
  EgressPolicy front_first{};
  EgressOverlay front_overlay{};
  std::optional<StoredPolicy> stored{};  ///< what `state` held
};
[[nodiscard]] Result<AdminPlan> PlanAdministration(const AdminOptions& options);

/// The policy to begin with where the command line names none: the last good bundle, or the compatible front's. Nothing: the command
/// line's counts.
[[nodiscard]] Result<std::optional<PolicyText>> FirstPolicy(const AdminPlan& plan);

/// How texts are read, and bundles fetched.
struct AdminParts {
  std::function<Result<policy::SnapshotPtr>(const PolicyText&)> compile;
  std::function<Result<PolicyText>()> own_text;
  FetchUrl fetch{};  ///< for --policy-url
};

class Administration {
 public:
  static Result<std::unique_ptr<Administration>> Start(AdminPlan plan, AdminParts parts, SidecarControl& control,
                                                       DecisionStream& stream);
  ~Administration();
  [[nodiscard]] AdminServer* server() { return server_.get(); }
  [[nodiscard]] AdminApi& api() { return *api_; }

 private:
  Administration() = default;
  void WatchOverlay();

  std::unique_ptr<AdminApi> api_;
  std::unique_ptr<OpenSandboxFront> front_;
  std::unique_ptr<PolicyPoll> poll_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread overlay_;
  std::unique_ptr<AdminServer> server_;  // last: it uses the rest
};

}  // namespace sluice::app
