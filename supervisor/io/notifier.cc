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
#include "supervisor/io/receive_turns.h"
#include "supervisor/io/seccomp_channel.h"
#include "supervisor/io/wake_timer.h"

namespace sluice::supervisor {
namespace {

constexpr unsigned kDefaultThreads = 4;
constexpr unsigned kMaxThreads = 64;
constexpr unsigned kConnectorThreads = 2;
/// Outcomes of dials on their way to a connector. Every one belongs to an entry of WaitingConnects, or to one given up.
constexpr size_t kMaxOutcomes = 2 * kMaxWaitingConnects;

/// Every captured connection makes the listener readable, and wakes who waits for strays: that not more often than this.
constexpr std::chrono::milliseconds kStrayPause{1000};
/// A call that takes longer than this holds others up.
constexpr std::chrono::milliseconds kHeldUp{1};
/// A call that was there already when it was asked for: nobody can have been woken in this time.
constexpr std::chrono::microseconds kQueued{2};
/// So many of them in a row are a queue.
constexpr unsigned kQueueLength = 16;

// Each kept thread holds two descriptors: of few, few.
size_t ThreadsKept(int ceiling) {
  return std::clamp<size_t>(static_cast<size_t>(std::max(ceiling, 0)) / 16, 4, kMaxCachedThreads);
}

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
        processes_({.workload_pid = options.workload_pid, .most_threads = ThreadsKept(options.descriptor_ceiling)}),
        attribution_(std::move(owner), processes_),
        options_(std::move(options)) {}
  ~NotifierThreads() override;

  Result<void> Run(const Capture& capture, FlowHandler& flows, const policy::CurrentPolicy& policy, policy::EventSink& sink);

  policy::ProcessPtr Attribute(policy::Transport transport, const Endpoint& client, const Endpoint& server) override {
    return attribution_.Of(transport, client, server);
  }
  int GuessSender(const Endpoint& client) override { return attribution_.Guess(policy::Transport::kUdp, client); }

 private:
  enum class Begin : uint8_t { kWaiting, kResting };
  void Receive(Begin begin);
  class Shift;
  void ReceiveLoop(WakeTimer& timer);
  void Rest(WakeTimer& timer);
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
  ReceiveTurns turns_;
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
      .descriptor_limit = options_.descriptor_limit,
      .descriptor_ceiling = options_.descriptor_ceiling,
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
  for (unsigned i = 0; i < count; ++i) {
    receivers_.emplace_back([this, begin = i == 0 ? Begin::kWaiting : Begin::kResting] { Receive(begin); });
  }
  return {};
}

NotifierThreads::~NotifierThreads() {
  stop_ = true;
  turns_.Close();
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

// The call that a notification thread answers.
class NotifierThreads::Shift {
 public:
  explicit Shift(ReceiveTurns& turns) : turns_(turns), asked_(std::chrono::steady_clock::now()) {
    WakeTimer::AtEachTick([](void* self) { static_cast<Shift*>(self)->Tick(); }, this);
  }
  ~Shift() { WakeTimer::AtEachTick(nullptr, nullptr); }
  Shift(const Shift&) = delete;
  Shift& operator=(const Shift&) = delete;

  void Began() {
    const SteadyTime now = std::chrono::steady_clock::now();
    queued_ = now - asked_ < kQueued ? queued_ + 1 : 0;
    if (queued_ >= kQueueLength) turns_.CallAnother();
    began_.store(now, std::memory_order_relaxed);
  }
  void Ended() {
    asked_ = std::chrono::steady_clock::now();
    if (asked_ - began_.exchange(SteadyTime{}, std::memory_order_relaxed) > kHeldUp) turns_.CallAnother();
  }

 private:
  // In a signal handler.
  void Tick() {
    const SteadyTime began = began_.load(std::memory_order_relaxed);
    if (began != SteadyTime{} && std::chrono::steady_clock::now() - began > kHeldUp) turns_.CallAnother();
  }

  ReceiveTurns& turns_;
  SteadyTime asked_;
  std::atomic<SteadyTime> began_{SteadyTime{}};  // zero between calls
  unsigned queued_ = 0;
};

void NotifierThreads::Receive(Begin begin) {
  WakeTimer timer;
  if (const auto opened = timer.Open(); !opened) LogError("{}", opened.error().message);
  if (begin == Begin::kResting) Rest(timer);
  ReceiveLoop(timer);
  turns_.Close();
  receiving_.fetch_sub(1, std::memory_order_release);
}

void NotifierThreads::Rest(WakeTimer& timer) {
  timer.Disarm();
  turns_.Rest();
  // Should no call come, the tick ends the wait for it.
  timer.Arm();
}

void NotifierThreads::ReceiveLoop(WakeTimer& timer) {
  Shift shift(turns_);
  seccomp_notif call;
  while (!stop_.load(std::memory_order_acquire)) {
    turns_.Enter();
    const auto received = channel_.Receive(&call);
    const auto left = turns_.Leave();
    if (received == SeccompChannel::Received::kEnd) break;
    if (received == SeccompChannel::Received::kNothing) {
      left == ReceiveTurns::Left::kOthers ? Rest(timer) : timer.Disarm();
      continue;
    }
    shift.Began();
    timer.Arm();
    handler_->Handle(call);
    shift.Ended();
  }
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
  SteadyTime listen_from{};
  while (!stop_.load(std::memory_order_acquire)) {
    const SteadyTime now = std::chrono::steady_clock::now();
    const bool listens = now >= listen_from;
    pollfd fds[2] = {{wake_.get(), POLLIN, 0}, {listens ? listener : -1, POLLIN, 0}};
    std::chrono::milliseconds timeout{-1};
    if (!listens) timeout = std::chrono::ceil<std::chrono::milliseconds>(listen_from - now);
    if (handler_->busy()) timeout = kSignalProbe;
    if (poll(fds, 2, static_cast<int>(timeout.count())) < 0 && errno != EINTR) break;
    if ((fds[1].revents & POLLIN) != 0) listen_from = std::chrono::steady_clock::now() + kStrayPause;
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
  auto channel = SeccompChannel::Open(std::move(notify_fd), options.wake_up, options.workload_pid);
  if (!channel) return std::unexpected(channel.error());
  auto owner = SocketOwner::Open(capture, options.workload_pid);
  if (!owner) return std::unexpected(owner.error());
  auto notifier = std::make_unique<NotifierThreads>(std::move(*channel), std::move(*owner), std::move(options));
  if (auto running = notifier->Run(capture, handler, policy, sink); !running) return std::unexpected(running.error());
  return notifier;
}

}  // namespace sluice::supervisor
