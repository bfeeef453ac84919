#pragma once

// What stands around a running sidecar, put together: the API and its server, where its policy comes from, what is kept on disk,
// and who is told that it is ready.
//
//   DecisionStream stream;                     // into audit::Options::tap
//   auto plan = PlanAdministration(options);   // before privileges go: reads keys and tokens
//   auto first = FirstPolicy(*plan, digest);   // what begins, where that is not the operator's own
//   auto admin = Administration::Start(*std::move(plan), parts, **server, stream);
//   NotifyService("READY=1");

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
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

/// Whose policy counts.
[[nodiscard]] PolicyOwner OwnerOf(const AdminPlan& plan);
/// The policy to begin with: the last good bundle, the compatible front's, or what the API put over the operator's own, where
/// that is still the one of `own_digest` (empty: there is none). Nothing: the operator's counts. A bundle that was never seen is
/// deny-all.
[[nodiscard]] Result<std::optional<PolicyText>> FirstPolicy(const AdminPlan& plan, const std::string& own_digest);

/// Who gave it, for people.
[[nodiscard]] std::string FirstSource(const AdminPlan& plan);

/// How texts are read, and bundles fetched.
struct AdminParts {
  std::function<Result<policy::SnapshotPtr>(const PolicyText&)> compile;
  std::function<Result<PolicyText>()> own_text;
  FetchUrl fetch{};                      ///< for --policy-url
  policy::SnapshotPtr own{};             ///< the operator's policy; null: there is none
  std::optional<PolicyText> in_force{};  ///< of FirstPolicy, where that is what began
};

class Administration {
 public:
  static Result<std::unique_ptr<Administration>> Start(AdminPlan plan, AdminParts parts, ServedControl& control,
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
