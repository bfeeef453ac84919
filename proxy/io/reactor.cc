#include "proxy/io/reactor.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/fault.h"
#include "base/log.h"

namespace sluice::proxy {
namespace {

constexpr int kRoundsPerPoll = 8;
constexpr std::chrono::milliseconds kRetryAfter{10};

uint8_t ReadyFrom(uint32_t events) {
  uint8_t ready = 0;
  if ((events & (EPOLLIN | EPOLLPRI)) != 0) ready |= kReadable;
  if ((events & EPOLLOUT) != 0) ready |= kWritable;
  if ((events & EPOLLRDHUP) != 0) ready |= kReadable | kPeerDone;
  // EPOLLHUP alone is a connection whose two ends both said FIN: there may still be bytes to read.
  if ((events & EPOLLHUP) != 0) ready |= kReadable | kWritable | kPeerDone;
  if ((events & EPOLLERR) != 0) ready |= kReadable | kWritable | kPeerDone | kBroken;
  return ready;
}

// No kernel lets that happen: who waits for a socket goes on by its deadline, and the operator is told.
void CannotWait(int error) {
  static std::atomic<bool> told{false};
  if (!told.exchange(true)) LogError("the proxy cannot wait for its sockets: {}; nothing passes", std::strerror(error));
  std::this_thread::sleep_for(kRetryAfter);
}

}  // namespace

bool Channel::Open(Reactor& reactor, UniqueFd fd, uint8_t initial) {
  Close();
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = this;
  if (Faulty("reactor.watch", [&] { return epoll_ctl(reactor.epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event); }) != 0)
    return false;
  fd_ = std::move(fd);
  reactor_ = &reactor;
  ready = initial;
  return true;
}

void Channel::Close() {
  if (!fd_.valid()) return;
  reactor_->Forget(this);
  if (waiter_ != nullptr)
    for (auto& on : waiter_->on_)
      if (on.channel == this) on = {};
  waiter_ = nullptr;
  // Closing the last descriptor of a socket takes it out of the epoll set.
  fd_.Reset();
}

UniqueFd Channel::Release() {
  if (!fd_.valid()) return {};
  reactor_->Forget(this);
  epoll_ctl(reactor_->epoll_.get(), EPOLL_CTL_DEL, fd_.get(), nullptr);
  waiter_ = nullptr;
  return std::move(fd_);
}

bool Waiter::ReadyNow() noexcept {
  if (cancelled_) {
    wake_ = Wake::kCancelled;
    return true;
  }
  if (poked_) {
    poked_ = false;
    wake_ = Wake::kReady;
    return true;
  }
  for (const On& on : on_)
    if (on.channel != nullptr && std::exchange(on.channel->enough, false)) yield_ = true;
  if (yield_) return false;
  for (const On& on : on_) {
    if (on.channel != nullptr && (on.channel->ready & (on.interest | kBroken)) != 0) {
      wake_ = Wake::kReady;
      return true;
    }
  }
  return false;
}

void Waiter::Suspend(std::coroutine_handle<> handle) noexcept {
  handle_ = handle;
  for (const On& on : on_) {
    if (on.channel == nullptr) continue;
    on.channel->waiter_ = this;
    on.channel->interest_ = on.interest | kBroken;
  }
  previous_ = nullptr;
  next_ = reactor_.waiters_;
  if (next_ != nullptr) next_->previous_ = this;
  reactor_.waiters_ = this;
  if (yield_) Queue();
}

void Waiter::Queue() noexcept {
  if (queued_slot_ != kNoSlot) return;
  queued_slot_ = reactor_.queued_.size();
  reactor_.queued_.push_back(this);
  if (!reactor_.polling_) reactor_.Ring();
}

void Waiter::Poke() {
  poked_ = true;
  if (handle_) Queue();
}

void Waiter::CancelSoon() {
  cancelled_ = true;
  if (handle_) Queue();
}

void Waiter::Disarm() noexcept {
  if (!handle_) return;
  handle_ = nullptr;
  for (On& on : on_) {
    if (on.channel != nullptr && on.channel->waiter_ == this) {
      on.channel->waiter_ = nullptr;
      on.channel->interest_ = 0;
    }
    on = {};
  }
  if (previous_ != nullptr) {
    previous_->next_ = next_;
  } else {
    reactor_.waiters_ = next_;
  }
  if (next_ != nullptr) next_->previous_ = previous_;
  previous_ = next_ = nullptr;
  if (expired_slot_ != kNoSlot) {
    reactor_.expired_[expired_slot_] = nullptr;
    expired_slot_ = kNoSlot;
  }
  if (queued_slot_ == kNoSlot) return;
  for (auto* list : {&reactor_.queued_, &reactor_.running_})
    if (queued_slot_ < list->size() && (*list)[queued_slot_] == this) (*list)[queued_slot_] = nullptr;
  queued_slot_ = kNoSlot;
}

void Waiter::Fire(Wake wake) {
  if (!handle_) return;
  const auto handle = handle_;
  Disarm();
  wake_ = cancelled_ ? Wake::kCancelled : wake;
  poked_ = false;
  handle.resume();
}

void Waiter::Cancel() {
  cancelled_ = true;
  Fire(Wake::kCancelled);
}

Reactor::Reactor()
    : epoll_(Faulty("reactor.epoll", [] { return epoll_create1(EPOLL_CLOEXEC); })),
      bell_(Faulty("reactor.bell", [] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })),
      now_(SystemClock().Steady()) {
  // Edge-triggered: each ring is a new event, and the count need not be read.
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = nullptr;
  const auto watch = [&] { return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, bell_.get(), &event); };
  if (epoll_ && (!bell_ || Faulty("reactor.bell.watch", watch) != 0)) epoll_.Reset();
}

Reactor::~Reactor() = default;

void Reactor::Ring() {
  const uint64_t once = 1;
  (void)!write(bell_.get(), &once, sizeof once);
}

void Reactor::Post(std::move_only_function<void()> act) {
  bool first = false;
  {
    const std::lock_guard lock(posting_);
    first = posted_.empty();
    posted_.push_back(std::move(act));
    any_posted_.store(true, std::memory_order_release);
  }
  if (first) Ring();
}

void Reactor::RunPosted() {
  std::vector<std::move_only_function<void()>> acts;
  {
    const std::lock_guard lock(posting_);
    acts.swap(posted_);
    any_posted_.store(false, std::memory_order_relaxed);
  }
  for (auto& act : acts) act();
}

bool Reactor::Poll(std::chrono::milliseconds wait) {
  polling_ = true;
  const bool more = PollRounds(queued_.empty() ? static_cast<int>(wait.count()) : 0);
  polling_ = false;
  return more;
}

bool Reactor::PollRounds(int wait_ms) {
  std::array<epoll_event, kEventsPerPoll> events;
  for (int round = 0; round < kRoundsPerPoll; ++round) {
    const int n = Faulty("reactor.wait", [&] {
      return epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), round == 0 ? wait_ms : 0);
    });
    if (n < 0 && errno != EINTR) CannotWait(errno);
    Refresh();
    // What other threads asked for is done all the same: they wait for it.
    if (n == 0 && queued_.empty()) return false;
    batch_size_ = n > 0 ? static_cast<size_t>(n) : 0;
    for (size_t i = 0; i < batch_size_; ++i) {
      batch_[i] = static_cast<Channel*>(events[i].data.ptr);
      batch_events_[i] = events[i].events;
    }
    for (batch_at_ = 0; batch_at_ < batch_size_; ++batch_at_) {
      Channel* channel = batch_[batch_at_];
      if (channel == nullptr) continue;
      channel->ready |= ReadyFrom(batch_events_[batch_at_]);
      if (channel->waiter_ != nullptr && (channel->ready & channel->interest_) != 0) channel->waiter_->Fire(Wake::kReady);
    }
    batch_size_ = 0;
    if (any_posted_.load(std::memory_order_acquire)) RunPosted();
    running_.swap(queued_);
    for (size_t i = 0; i < running_.size(); ++i)
      if (Waiter* waiter = running_[i]; waiter != nullptr) waiter->Fire(Wake::kReady);
    running_.clear();
    // To ask for more at once costs as much as to wait for it, and a single event is seldom followed by another.
    if (queued_.empty() && (wait_ms != 0 || n == 1)) return false;
  }
  return true;
}

void Reactor::Sweep() {
  Refresh();
  // Resuming one flow may end others, which then take themselves off this list.
  for (Waiter* waiter = waiters_; waiter != nullptr; waiter = waiter->next_) {
    if (waiter->deadline_ > now_) continue;
    waiter->expired_slot_ = expired_.size();
    expired_.push_back(waiter);
  }
  for (size_t i = 0; i < expired_.size(); ++i)
    if (expired_[i] != nullptr) expired_[i]->Fire(Wake::kTimeout);
  expired_.clear();
}

void Reactor::Forget(Channel* channel) {
  for (size_t i = batch_at_; i < batch_size_; ++i)
    if (batch_[i] == channel) batch_[i] = nullptr;
}

}  // namespace sluice::proxy
