#include "supervisor/io/notifier.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "base/bounded_queue.h"
#include "base/fault.h"
#include "base/start_thread.h"
#include "base/wake_timer.h"
#include "supervisor/io/attribution.h"
#include "supervisor/io/call_handler.h"
#include "supervisor/io/process_identity.h"
#include "supervisor/io/receive_turns.h"
#include "supervisor/io/seccomp_channel.h"

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
  NotifierThreads(SocketOwner owner, NotifierOptions options)
      : processes_({.workload_pid = options.workload_pid,
                    .pid_namespace = options.pid_namespace,
                    .most_threads = ThreadsKept(options.descriptor_ceiling),
                    .view = options.view}),
        attribution_(std::move(owner), processes_),
        options_(std::move(options)) {}
  ~NotifierThreads() override;

  Result<void> Run(const Capture& capture, FlowHandler& flows, const policy::CurrentPolicy& policy, policy::EventSink& sink);

  Result<void> Watch(UniqueFd notify_fd, const std::optional<seccomp_notif>& first) override;
  size_t Prune() override;

  policy::ProcessPtr Attribute(policy::Transport transport, const Endpoint& client, const Endpoint& server) override {
    return attribution_.Of(transport, client, server);
  }
  int GuessSender(policy::Transport transport, const Endpoint& client) override { return attribution_.Guess(transport, client); }

 private:
  enum class Begin : uint8_t { kWaiting, kResting };
  // One filter's calls, and the threads that receive them.
  struct Receivers {
    explicit Receivers(SeccompChannel of) : channel(std::make_shared<const SeccompChannel>(std::move(of))) {}
    const SeccompChannelPtr channel;
    std::optional<seccomp_notif> first;
    std::atomic<bool> stop{false};
    std::atomic<unsigned> receiving{0};
    ReceiveTurns turns;
    std::vector<std::thread> threads;
  };
  using Body = std::function<void(WakeTimer& timer)>;
  static Result<void> StartThreads(std::vector<Body> bodies, std::vector<std::thread>* threads);
  void Receive(Receivers& receivers, Begin begin, WakeTimer& timer);
  class Shift;
  void ReceiveLoop(Receivers& receivers, Begin begin, WakeTimer& timer);
  static void Rest(Receivers& receivers, WakeTimer& timer);
  static void End(Receivers& receivers);
  void Connect(WakeTimer& timer);
  void Sweep(int listener, WakeTimer& timer);
  void Wake() const;

  ProcessTable processes_;
  Attribution attribution_;
  const NotifierOptions options_;
  UniqueFd wake_;
  // Shared with the callbacks of dials, which may come after the notifier has gone.
  const std::shared_ptr<Outcomes> outcomes_ = std::make_shared<Outcomes>(kMaxOutcomes);
  std::unique_ptr<CallHandler> handler_;
  std::atomic<bool> stop_{false};
  std::vector<std::unique_ptr<Receivers>> receivers_;
  std::vector<std::thread> others_;
};

void NotifierThreads::Wake() const {
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
}

Result<void> NotifierThreads::Run(const Capture& capture, FlowHandler& flows, const policy::CurrentPolicy& policy,
                                  policy::EventSink& sink) {
  wake_.Reset(Faulty("notifier.wake", [] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }));
  if (!wake_) return FailErrno("eventfd", errno);
  auto addresses = attribution_.Addresses();
  if (!addresses) return std::unexpected(addresses.error());
  CallHandler::Setup setup{
      .netns_cookie = capture.netns_cookie,
      .listener_port = capture.listener_port,
      .listener = capture.listener.get(),
      .workload_pid = options_.workload_pid,
      .writable_trees = options_.writable_trees,
      .shared_trees = options_.shared_trees,
      .host_sockets = options_.host_sockets,
      .view = options_.view,
      .host_addresses = options_.host_addresses,
      .descriptor_limit = options_.descriptor_limit,
      .descriptor_ceiling = options_.descriptor_ceiling,
      .own = OwnAddresses(std::move(*addresses)),
      .owner_of_networks = options_.owner_of_networks,
      .wake_sweeper = [this] { Wake(); },
      .finish_later = [outcomes = outcomes_](uint64_t cookie, uint64_t id,
                                             int error) { (void)outcomes->TryPush({cookie, id, error}); },
  };
  handler_ = std::make_unique<CallHandler>(std::move(setup), processes_, attribution_, flows, policy, sink);
  WakeTimer::InstallHandler();
  std::vector<Body> bodies = {[this, listener = capture.listener.get()](WakeTimer& timer) { Sweep(listener, timer); }};
  for (unsigned i = 0; i < kConnectorThreads; ++i) bodies.emplace_back([this](WakeTimer& timer) { Connect(timer); });
  if (auto started = StartThreads(std::move(bodies), &others_); !started) return started;
  return handler_->Ready();  // its threads have begun beside these
}

// Each with a timer, which only the thread itself can make. One without would wait for ever in a connect that does: where there
// is none to be had (the user's limit on pending signals), nothing is started.
Result<void> NotifierThreads::StartThreads(std::vector<Body> bodies, std::vector<std::thread>* threads) {
  std::vector<std::future<Result<void>>> timers;
  threads->reserve(threads->size() + bodies.size());
  Result<void> all = {};
  for (Body& body : bodies) {
    std::promise<Result<void>> opened;
    auto timer_made = opened.get_future();
    std::thread thread;
    const auto start = [&] {
      return StartThread(&thread, [run = std::move(body), said = std::move(opened)]() mutable {
        WakeTimer timer;
        said.set_value(timer.Open());
        run(timer);
      });
    };
    if (Faulty("notifier.thread", start) != 0) {
      all = FailErrno("cannot start a thread", errno);
      break;
    }
    threads->push_back(std::move(thread));
    timers.push_back(std::move(timer_made));
  }
  for (auto& timer : timers)
    if (auto made = timer.get(); !made) all = std::move(made);
  return all;
}

Result<void> NotifierThreads::Watch(UniqueFd notify_fd, const std::optional<seccomp_notif>& first) {
  auto channel = SeccompChannel::Open(std::move(notify_fd), options_.wake_up, options_.workload_pid);
  if (!channel) return std::unexpected(channel.error());
  Receivers& receivers = *receivers_.emplace_back(std::make_unique<Receivers>(*std::move(channel)));
  receivers.first = first;
  const unsigned count = std::min(options_.threads == 0 ? kDefaultThreads : options_.threads, kMaxThreads);
  receivers.receiving = count;
  std::vector<Body> bodies;
  for (unsigned i = 0; i < count; ++i) {
    const Begin begin = i == 0 ? Begin::kWaiting : Begin::kResting;
    bodies.emplace_back([this, &receivers, begin](WakeTimer& timer) { Receive(receivers, begin, timer); });
  }
  auto started = StartThreads(std::move(bodies), &receivers.threads);
  if (started) return started;
  receivers.stop = true;
  receivers.receiving -= count - static_cast<unsigned>(receivers.threads.size());
  End(receivers);
  receivers_.pop_back();
  return started;
}

size_t NotifierThreads::Prune() {
  std::erase_if(receivers_, [](const std::unique_ptr<Receivers>& receivers) {
    pollfd state{receivers->channel->fd(), 0, 0};
    if (poll(&state, 1, 0) <= 0 || (state.revents & (POLLHUP | POLLERR)) == 0) return false;
    End(*receivers);
    return true;
  });
  return receivers_.size();
}

void NotifierThreads::End(Receivers& receivers) {
  receivers.stop = true;
  receivers.turns.Close();
  // A signal that arrives just before the wait begins is lost: send it until all have left.
  while (receivers.receiving.load(std::memory_order_acquire) != 0) {
    for (std::thread& thread : receivers.threads) WakeTimer::Wake(thread.native_handle());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::thread& thread : receivers.threads) thread.join();
}

NotifierThreads::~NotifierThreads() {
  stop_ = true;
  for (const auto& receivers : receivers_) receivers->stop = true;
  for (const auto& receivers : receivers_) End(*receivers);
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

void NotifierThreads::Receive(Receivers& receivers, Begin begin, WakeTimer& timer) {
  if (begin == Begin::kResting) Rest(receivers, timer);
  ReceiveLoop(receivers, begin, timer);
  receivers.turns.Close();
  receivers.receiving.fetch_sub(1, std::memory_order_release);
}

void NotifierThreads::Rest(Receivers& receivers, WakeTimer& timer) {
  timer.Disarm();
  receivers.turns.Rest();
  // Should no call come, the tick ends the wait for it.
  timer.Arm();
}

void NotifierThreads::ReceiveLoop(Receivers& receivers, Begin begin, WakeTimer& timer) {
  Shift shift(receivers.turns);
  seccomp_notif call;
  if (begin == Begin::kWaiting && receivers.first) {
    timer.Arm();
    handler_->Handle(receivers.channel, *receivers.first);
  }
  while (!receivers.stop.load(std::memory_order_acquire)) {
    receivers.turns.Enter();
    const auto received = receivers.channel->Receive(&call);
    const auto left = receivers.turns.Leave();
    if (received == SeccompChannel::Received::kEnd) break;
    if (received == SeccompChannel::Received::kNothing) {
      left == ReceiveTurns::Left::kOthers ? Rest(receivers, timer) : timer.Disarm();
      continue;
    }
    shift.Began();
    timer.Arm();
    handler_->Handle(receivers.channel, call);
    shift.Ended();
  }
}

void NotifierThreads::Connect(WakeTimer& timer) {
  while (auto batch = outcomes_->PopAll()) {
    for (const Outcome& outcome : *batch) {
      timer.Arm();
      handler_->Finish(outcome.cookie, outcome.id, outcome.error);
    }
    timer.Disarm();
  }
}

void NotifierThreads::Sweep(int listener, WakeTimer& timer) {
  SteadyTime listen_from{};
  while (!stop_.load(std::memory_order_acquire)) {
    const SteadyTime now = std::chrono::steady_clock::now();
    const bool listens = now >= listen_from;
    pollfd fds[2] = {{wake_.get(), POLLIN, 0}, {listens ? listener : -1, POLLIN, 0}};
    std::chrono::milliseconds timeout{-1};
    if (!listens) timeout = std::chrono::ceil<std::chrono::milliseconds>(listen_from - now);
    if (handler_->busy()) timeout = kSignalProbe;
    // Where it cannot wait, it looks after each pause: without it, nobody's connect would ever be given up.
    if (Faulty("notifier.wait", [&] { return poll(fds, 2, static_cast<int>(timeout.count())); }) < 0) fds[1].revents = 0;
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
  auto owner = SocketOwner::Open(capture, options.workload_pid);
  if (!owner) return std::unexpected(owner.error());
  auto notifier = std::make_unique<NotifierThreads>(std::move(*owner), std::move(options));
  if (auto running = notifier->Run(capture, handler, policy, sink); !running) return std::unexpected(running.error());
  if (notify_fd)
    if (auto watching = notifier->Watch(std::move(notify_fd), {}); !watching) return std::unexpected(watching.error());
  return notifier;
}

}  // namespace sluice::supervisor
