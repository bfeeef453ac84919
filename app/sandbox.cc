#include "app/sandbox.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "supervisor/io/privileges.h"

namespace sluice::app {

void FlowBridge::Prepare(supervisor::ApprovedConnect connect, std::function<void(int)> done) {
  engine_.Prepare(connect.id, proxy::FlowTarget{std::move(connect.host), connect.destination, std::move(connect.process)},
                  std::move(done));
}

void FlowBridge::Start(supervisor::ApprovedConnect connect, Endpoint source, UniqueFd accepted) {
  proxy::Flow flow;
  flow.id = connect.id;
  flow.downstream = std::move(accepted);
  flow.source = source;
  flow.target = proxy::FlowTarget{std::move(connect.host), connect.destination, std::move(connect.process)};
  engine_.Accept(std::move(flow));
}

supervisor::NotifierOptions NotifierOptionsFor(const proxy::EngineOptions& engine) {
  supervisor::NotifierOptions options;
  options.host_addresses = engine.host_addresses;
  options.descriptor_limit = engine.descriptors.limit;
  // Below the proxy's, so that what is let through here finds there what it still needs.
  const int ceiling = engine.descriptors.ceiling;
  options.descriptor_ceiling = ceiling - std::max(ceiling / 16, 16);
  return options;
}

Result<std::unique_ptr<Sandbox>> Sandbox::Create(SandboxOptions options, supervisor::Capture capture,
                                                 std::unique_ptr<supervisor::Workload> workload,
                                                 const policy::CurrentPolicy& policy, policy::EventSink& sink) {
  std::unique_ptr<Sandbox> sandbox(new Sandbox(std::move(options), policy, sink));
  sandbox->capture_ = std::move(capture);
  sandbox->workload_ = std::move(workload);
  sandbox->options_.engine.ready_later = true;  // by Prepare
  auto engine = proxy::Engine::Start(sandbox->options_.engine, policy, sink);
  if (!engine) return std::unexpected(engine.error());
  sandbox->engine_ = *std::move(engine);
  sandbox->bridge_ = std::make_unique<FlowBridge>(sandbox->pool_, *sandbox->engine_);
  return sandbox;
}

// The workload dies first, so that nothing is asked any more; what it was using goes after it.
Sandbox::~Sandbox() {
  workload_.reset();
  resolver_.reset();
  notifier_.reset();
  engine_.reset();
}

Result<void> Sandbox::Prepare() {
  if (auto waiting = workload_->AwaitGate(); !waiting) return waiting;
  supervisor::NotifierOptions notifier_options = NotifierOptionsFor(options_.engine);
  notifier_options.workload_pid = workload_->pid();
  notifier_options.view = workload_->view();
  notifier_options.owner_of_networks = capture_.user_namespace.get();
  notifier_options.writable_trees = workload_->writable_trees();
  notifier_options.shared_trees = workload_->read_only_trees();
  notifier_options.host_sockets = options_.host_sockets;
  auto notifier =
      supervisor::Notifier::Start(workload_->TakeNotifyFd(), capture_, std::move(notifier_options), *bridge_, policy_, sink_);
  if (!notifier) return std::unexpected(notifier.error());
  notifier_ = *std::move(notifier);
  auto resolver = CaptureResolver::Start(*engine_, capture_, *notifier_, pool_, options_.engine.host_addresses, policy_, sink_,
                                         std::move(options_.names));
  if (!resolver) return std::unexpected(resolver.error());
  resolver_ = *std::move(resolver);
  if (auto ready = engine_->Ready(); !ready) return ready;
  // It holds the authority's key and, when an ordinary user runs it, is that user's as the workload is.
  return supervisor::ForbidDumps();
}

Result<void> Sandbox::Release() {
  // While it waits, so that the number is its own.
  UniqueFd command(static_cast<int>(::syscall(SYS_pidfd_open, workload_->pid(), 0)));
  if (auto released = workload_->Release(); !released) return released;
  const std::lock_guard lock(command_mutex_);
  command_ = std::move(command);
  return {};
}

int Sandbox::pid() const {
  const std::lock_guard lock(command_mutex_);
  return command_ ? workload_->pid() : 0;
}

void Sandbox::Signal(int signal) {
  const std::lock_guard lock(command_mutex_);
  if (command_) ::syscall(SYS_pidfd_send_signal, command_.get(), signal, nullptr, 0);
}

}  // namespace sluice::app
