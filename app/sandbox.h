#pragma once

// One sandbox put together from the rooms: capture, proxy, resolver, launcher, notifier. The order is the safety
// argument: what refuses is in place before anything of the workload runs.

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "app/capture_resolver.h"
#include "audit/audit.h"
#include "base/result.h"
#include "dns/synthetic.h"
#include "policy/event.h"
#include "proxy/io/engine.h"
#include "supervisor/io/capture.h"
#include "supervisor/io/launch.h"
#include "supervisor/io/notifier.h"

namespace sluice::app {

/// Carries approved connections from the notifier to the proxy, and names from the resolver to the notifier.
class FlowBridge final : public supervisor::FlowHandler {
 public:
  /// Both outlive the bridge.
  FlowBridge(dns::SyntheticPool& pool, proxy::Engine& engine) : pool_(pool), engine_(engine) {}

  [[nodiscard]] std::optional<std::string> NameOf(const IpAddress& address) override { return pool_.NameOf(address); }
  [[nodiscard]] bool IsSynthetic(const IpAddress& address) override { return pool_.InRange(address); }
  void Prepare(supervisor::ApprovedConnect connect, std::function<void(int)> done) override;
  void Start(supervisor::ApprovedConnect connect, Endpoint source, UniqueFd accepted) override;
  [[nodiscard]] size_t Open() const override { return engine_.Open(); }

 private:
  dns::SyntheticPool& pool_;
  proxy::Engine& engine_;
};

/// What of the engine's options the notifier shares: the host's addresses, and how far its descriptors go.
[[nodiscard]] supervisor::NotifierOptions NotifierOptionsFor(const proxy::EngineOptions& engine);

struct SandboxOptions {
  proxy::EngineOptions engine;
  std::map<std::string, std::string> host_sockets;  ///< as FindHostSockets gives them
  CommonNames names{};
};

class Sandbox {
 public:
  /// Starts the proxy for a workload that was begun in this capture. References outlive the sandbox.
  static Result<std::unique_ptr<Sandbox>> Create(SandboxOptions options, supervisor::Capture capture,
                                                 std::unique_ptr<supervisor::Workload> workload,
                                                 const policy::CurrentPolicy& policy, policy::EventSink& sink);
  ~Sandbox();
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

  /// Once the command stands at its gate: supervises it.
  [[nodiscard]] Result<void> Prepare();
  /// After that, lets it run.
  [[nodiscard]] Result<void> Release();
  /// Blocks until the command has ended and everything it started is gone.
  [[nodiscard]] supervisor::ExitStatus Wait() { return workload_->Wait(); }
  /// To be frozen or killed, from any thread while the sandbox lives; and its limits.
  [[nodiscard]] supervisor::Workload& workload() { return *workload_; }
  /// After CurrentPolicy::Set.
  void PolicyChanged() { engine_->PolicyChanged(); }

  // For a controller, from any thread.

  /// The command's, once it was released; 0 before.
  [[nodiscard]] int pid() const;
  /// To the command, through its pidfd; nothing before it was released, or once it has ended.
  void Signal(int signal);
  [[nodiscard]] size_t OpenConnections() const { return engine_->Open(); }
  [[nodiscard]] std::optional<std::string> NameOf(const IpAddress& address) const { return pool_.NameOf(address); }
  [[nodiscard]] size_t names() const { return pool_.size(); }

 private:
  Sandbox(SandboxOptions options, const policy::CurrentPolicy& policy, policy::EventSink& sink)
      : options_(std::move(options)), policy_(policy), sink_(sink) {}

  SandboxOptions options_;
  const policy::CurrentPolicy& policy_;
  policy::EventSink& sink_;
  dns::SyntheticPool pool_;
  supervisor::Capture capture_;
  std::unique_ptr<proxy::Engine> engine_;
  std::unique_ptr<FlowBridge> bridge_;
  std::unique_ptr<supervisor::Workload> workload_;
  std::unique_ptr<supervisor::Notifier> notifier_;
  std::unique_ptr<CaptureResolver> resolver_;
  mutable std::mutex command_mutex_;
  UniqueFd command_;  // pidfd, once it was released
};

}  // namespace sluice::app
