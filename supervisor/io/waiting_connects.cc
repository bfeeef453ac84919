#include "supervisor/io/waiting_connects.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "supervisor/io/socket_facts.h"

namespace sluice::supervisor {

WaitingConnects::Begun WaitingConnects::Insert(uint64_t cookie, Entry entry) {
  const std::lock_guard lock(mutex_);
  if (const auto it = entries_.find(cookie); it != entries_.end()) {
    if (it->second.state != State::kOver && entry.state != State::kOver) {
      drop_(std::move(entry.pinned));
      if (it->second.waiters.size() >= kMaxWaitersPerSocket) return Begun::kFull;
      for (Waiter& waiter : entry.waiters) it->second.waiters.push_back(std::move(waiter));
      return Begun::kJoined;
    }
    if (it->second.pinned) drop_(std::move(it->second.pinned));
    Answer(it->second.waiters, ECONNABORTED);
    it->second = std::move(entry);
    return Begun::kNew;
  }
  if (entries_.size() >= kMaxWaitingConnects && !ForgetAnOutcome()) {
    if (entry.pinned) drop_(std::move(entry.pinned));
    return Begun::kFull;
  }
  entries_.emplace(cookie, std::move(entry));
  size_.store(entries_.size(), std::memory_order_release);
  return Begun::kNew;
}

// The oldest, by its socket: it gives way to somebody who waits.
bool WaitingConnects::ForgetAnOutcome() {
  const auto it = std::ranges::find_if(entries_, [](const auto& one) { return one.second.state == State::kOver; });
  if (it == entries_.end()) return false;
  entries_.erase(it);
  return true;
}

void WaitingConnects::Answer(std::vector<Waiter>& waiters, int error) {
  for (const Waiter& waiter : waiters) waiter.caller.Reply(error);
  waiters.clear();
}

bool WaitingConnects::Join(uint64_t cookie, Blocking blocking, Waiter waiter) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(cookie);
  if (it == entries_.end()) return false;
  Entry& entry = it->second;
  if (entry.state == State::kOver) {
    waiter.caller.Reply(entry.result);
    entries_.erase(it);
    size_.store(entries_.size(), std::memory_order_release);
  } else if (blocking == Blocking::kNo) {
    waiter.caller.Reply(EALREADY);
  } else if (entry.waiters.size() >= kMaxWaitersPerSocket) {
    waiter.caller.Reply(ENOBUFS);
  } else {
    entry.waiters.push_back(std::move(waiter));
  }
  return true;
}

WaitingConnects::Begun WaitingConnects::Begin(uint64_t cookie, UniqueFd pinned, ApprovedConnect approved, Waiter waiter) {
  Entry entry;
  entry.pinned = std::move(pinned);
  entry.approved = std::move(approved);
  entry.waiters.push_back(std::move(waiter));
  entry.since = std::chrono::steady_clock::now();
  return Insert(cookie, std::move(entry));
}

WaitingConnects::Begun WaitingConnects::BeginHung(uint64_t cookie, UniqueFd pinned, std::vector<uint8_t> address, Waiter waiter) {
  Entry entry;
  entry.state = State::kHung;
  entry.pinned = std::move(pinned);
  entry.address = std::move(address);
  entry.waiters.push_back(std::move(waiter));
  entry.since = std::chrono::steady_clock::now();
  return Insert(cookie, std::move(entry));
}

std::optional<Attempt> WaitingConnects::Prepared(uint64_t cookie, uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(cookie);
  if (it == entries_.end() || it->second.state != State::kPreparing || it->second.approved.id != id) return std::nullopt;
  Attempt out;
  out.cookie = cookie;
  out.pinned = std::move(it->second.pinned);
  out.approved = std::move(it->second.approved);
  for (const Waiter& waiter : it->second.waiters) out.callers.push_back(waiter.caller);
  entries_.erase(it);
  size_.store(entries_.size(), std::memory_order_release);
  return out;
}

bool WaitingConnects::Settle(Entry& entry, int error, SteadyTime now) {
  if (entry.pinned) drop_(std::move(entry.pinned));
  entry.state = State::kOver;
  entry.result = error;
  entry.since = now;
  const bool told = !entry.waiters.empty();
  Answer(entry.waiters, error);
  return told;
}

void WaitingConnects::Failed(uint64_t cookie, uint64_t id, int error) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(cookie);
  if (it == entries_.end() || it->second.state != State::kPreparing || it->second.approved.id != id) return;
  if (Settle(it->second, error, std::chrono::steady_clock::now())) entries_.erase(it);
  size_.store(entries_.size(), std::memory_order_release);
}

void WaitingConnects::Remember(uint64_t cookie, int error) {
  Entry entry;
  entry.state = State::kOver;
  entry.result = error;
  entry.since = std::chrono::steady_clock::now();
  (void)Insert(cookie, std::move(entry));  // full: the caller then sees what the kernel says of the socket
}

void WaitingConnects::Abandon(uint64_t cookie) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(cookie);
  if (it == entries_.end()) return;
  Answer(it->second.waiters, ECONNABORTED);
  if (it->second.pinned) drop_(std::move(it->second.pinned));
  entries_.erase(it);
  size_.store(entries_.size(), std::memory_order_release);
}

void WaitingConnects::Tick() {
  const std::lock_guard lock(mutex_);
  const SteadyTime now = std::chrono::steady_clock::now();
  auto it = entries_.lower_bound(next_probe_);
  size_t probes = 0;  // an entry that nobody waits for takes none
  for (size_t left = entries_.size(); left != 0 && probes < kMaxProbesPerTick; --left) {
    if (it == entries_.end()) it = entries_.begin();
    probes += it->second.waiters.size();
    const Ticked ticked = TickOne(it->second, now);
    it = ticked == Ticked::kOver ? entries_.erase(it) : std::next(it);
    if (ticked == Ticked::kHeldUp) break;
  }
  next_probe_ = it == entries_.end() ? 0 : it->first;
  size_.store(entries_.size(), std::memory_order_release);
}

WaitingConnects::Ticked WaitingConnects::TickOne(Entry& entry, SteadyTime now) {
  if (entry.state == State::kOver) return now - entry.since > kUnclaimedAge ? Ticked::kOver : Ticked::kStays;
  ProbeWaiters(entry, now);
  if (entry.state == State::kHung) return TickHung(entry);
  return now - entry.since >= kConnectDeadline && Settle(entry, ETIMEDOUT, now) ? Ticked::kOver : Ticked::kStays;
}

WaitingConnects::Ticked WaitingConnects::TickHung(Entry& entry) {
  // The kernel keeps this connect's state: once nobody waits, it needs no place here.
  if (entry.waiters.empty()) {
    drop_(std::move(entry.pinned));
    return Ticked::kOver;
  }
  pollfd state{entry.pinned.get(), POLLOUT, 0};
  if (poll(&state, 1, 0) <= 0) return Ticked::kStays;
  // It ended, so that this call returns at once, with the true outcome. After shutdown(2) it is a new connect, and may hang as
  // the first one did.
  const int error = ConnectInPlace(entry.pinned.get(), reinterpret_cast<const sockaddr*>(entry.address.data()),
                                   static_cast<socklen_t>(entry.address.size()));
  if (error == EINTR) return Ticked::kHeldUp;
  if (error == EALREADY || error == EINPROGRESS) return Ticked::kStays;
  Answer(entry.waiters, error);
  drop_(std::move(entry.pinned));
  return Ticked::kOver;
}

void WaitingConnects::ProbeWaiters(Entry& entry, SteadyTime now) {
  std::erase_if(entry.waiters, [&](const Waiter& waiter) {
    if (!waiter.caller.IsWaiting()) return true;
    if (waiter.deadline && now >= *waiter.deadline) {
      waiter.caller.Reply(EINPROGRESS);
      return true;
    }
    if (!waiter.thread->SignalPending()) return false;
    waiter.caller.Restart();
    return true;
  });
}

}  // namespace sluice::supervisor
