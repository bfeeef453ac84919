#include "supervisor/io/notifier.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "base/bounded_queue.h"
#include "base/log.h"
#include "supervisor/io/attribution.h"
#include "supervisor/io/call_handler.h"
#include "supervisor/io/process_identity.h"
#include "supervisor/io/seccomp_channel.h"
#include "supervisor/io/wake_timer.h"

namespace sluice::supervisor {
namespace {

constexpr unsigned kDefaultThreads = 4;
constexpr unsigned kMaxThreads = 64;
constexpr unsigned kConnectorThreads = 2;
/// Outcomes of dials on their way to a connector. Every one belongs to an entry of WaitingConnects, or to one given up.
constexpr size_t kMaxOutcomes = 2 * kMaxWaitingConnects;

struct Outcome {
  uint64_t cookie = 0;
  uint64_t id = 0;
  int error = 0;
};
using Outcomes = BoundedQueue<Outcome>;

class NotifierThreads : public Notifier {
 public:
  NotifierThreads(SeccompChannel channel, SocketOwner owner, NotifierOptions options)
      : channel_(std::move(channel)),
        processes_({.workload_pid = options.workload_pid}),
        attribution_(std::move(owner), processes_),
        options_(std::move(options)) {}
  ~NotifierThreads() override;

  Result<void> Run(const Capture& capture, FlowHandler& flows, const policy::CurrentPolicy& policy, policy::EventSink& sink);

  policy::ProcessPtr Attribute(policy::Transport transport, const Endpoint& client, const Endpoint& server) override {
    return attribution_.Of(transport, client, server);
  }

 private:
  void Receive();
  void Connect();
  void Sweep(int listener);
  void Wake() const;

  const SeccompChannel channel_;
  ProcessTable processes_;
  Attribution attribution_;
  const NotifierOptions options_;
  UniqueFd wake_;
  // Shared with the callbacks of dials, which may come after the notifier has gone.
  const std::shared_ptr<Outcomes> outcomes_ = std::make_shared<Outcomes>(kMaxOutcomes);
  std::unique_ptr<CallHandler> handler_;
  std::atomic<bool> stop_{false};
  std::atomic<unsigned> receiving_{0};
  std::vector<std::thread> receivers_;
  std::vector<std::thread> others_;
};

void NotifierThreads::Wake() const {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

Result<void> NotifierThreads::Run(const Capture& capture, FlowHandler& flows, const policy::CurrentPolicy& policy,
                                  policy::EventSink& sink) {
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return FailErrno("eventfd", errno);
  auto addresses = attribution_.Addresses();
  if (!addresses) return std::unexpected(addresses.error());
  CallHandler::Setup setup{
      .netns_cookie = capture.netns_cookie,
      .listener_port = capture.listener_port,
      .listener = capture.listener.get(),
      .workload_pid = options_.workload_pid,
      .writable_trees = options_.writable_trees,
      .host_sockets = options_.host_sockets,
      .host_addresses = options_.host_addresses,
      .own = OwnAddresses(std::move(*addresses)),
      .wake_sweeper = [this] { Wake(); },
      .finish_later = [outcomes = outcomes_](uint64_t cookie, uint64_t id,
                                             int error) { (void)outcomes->TryPush({cookie, id, error}); },
  };
  handler_ = std::make_unique<CallHandler>(std::move(setup), channel_, processes_, attribution_, flows, policy, sink);
  WakeTimer::InstallHandler();
  others_.emplace_back([this, listener = capture.listener.get()] { Sweep(listener); });
  for (unsigned i = 0; i < kConnectorThreads; ++i) others_.emplace_back([this] { Connect(); });
  const unsigned count = std::min(options_.threads == 0 ? kDefaultThreads : options_.threads, kMaxThreads);
  receiving_ = count;
  for (unsigned i = 0; i < count; ++i) receivers_.emplace_back([this] { Receive(); });
  return {};
}

NotifierThreads::~NotifierThreads() {
  stop_ = true;
  // A signal that arrives just before the wait begins is lost: send it until all have left.
  while (receiving_.load(std::memory_order_acquire) != 0) {
    for (std::thread& thread : receivers_) pthread_kill(thread.native_handle(), WakeTimer::Signal());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::thread& thread : receivers_) thread.join();
  outcomes_->Close();
  if (wake_) Wake();
  for (std::thread& thread : others_) thread.join();
}

void NotifierThreads::Receive() {
  WakeTimer timer;
  if (const auto opened = timer.Open(); !opened) LogError("{}", opened.error().message);
  seccomp_notif call;
  while (!stop_.load(std::memory_order_acquire)) {
    const auto received = channel_.Receive(&call);
    if (received == SeccompChannel::Received::kEnd) break;
    if (received == SeccompChannel::Received::kNothing) {
      timer.Disarm();
      continue;
    }
    timer.Arm();
    handler_->Handle(call);
  }
  receiving_.fetch_sub(1, std::memory_order_release);
}

void NotifierThreads::Connect() {
  WakeTimer timer;
  if (const auto opened = timer.Open(); !opened) LogError("{}", opened.error().message);
  while (auto batch = outcomes_->PopAll()) {
    for (const Outcome& outcome : *batch) {
      timer.Arm();
      handler_->Finish(outcome.cookie, outcome.id, outcome.error);
    }
    timer.Disarm();
  }
}

void NotifierThreads::Sweep(int listener) {
  WakeTimer timer;
  if (const auto opened = timer.Open(); !opened) LogError("{}", opened.error().message);
  pollfd fds[2] = {{wake_.get(), POLLIN, 0}, {listener, POLLIN, 0}};
  while (!stop_.load(std::memory_order_acquire)) {
    const int timeout = handler_->busy() ? static_cast<int>(kSignalProbe.count()) : -1;
    if (poll(fds, 2, timeout) < 0 && errno != EINTR) break;
    uint64_t count = 0;
    (void)!read(wake_.get(), &count, sizeof count);
    // Whoever connected takes its own connection in microseconds; what is still there after a while is nobody's.
    if (!stop_.load(std::memory_order_acquire)) std::this_thread::sleep_for(kSignalProbe);
    timer.Arm();
    handler_->Sweep();
    timer.Disarm();
  }
}

}  // namespace

Result<std::unique_ptr<Notifier>> Notifier::Start(UniqueFd notify_fd, const Capture& capture, NotifierOptions options,
                                                  FlowHandler& handler, const policy::CurrentPolicy& policy,
                                                  policy::EventSink& sink) {
  auto channel = SeccompChannel::Open(std::move(notify_fd), options.wake_up);
  if (!channel) return std::unexpected(channel.error());
  auto owner = SocketOwner::Open(capture, options.workload_pid);
  if (!owner) return std::unexpected(owner.error());
  auto notifier = std::make_unique<NotifierThreads>(std::move(*channel), std::move(*owner), std::move(options));
  if (auto running = notifier->Run(capture, handler, policy, sink); !running) return std::unexpected(running.error());
  return notifier;
}

}  // namespace sluice::supervisor
