#include "proxy/io/upstream_pool.h"

#include <algorithm>
#include <utility>

#include "proxy/io/limits.h"

namespace sluice::proxy {

Upstream* UpstreamPool::Peek(const std::string& key) {
  const auto found = idle_.find(key);
  if (found == idle_.end()) return nullptr;
  auto& stack = found->second;
  while (!stack.empty()) {
    if (IsIdle(*stack.back())) return stack.back().get();
    stack.pop_back();
    --size_;
  }
  return nullptr;
}

UpstreamPtr UpstreamPool::Take(const std::string& key, const UsableJudge& usable) {
  const Upstream* next = Peek(key);
  if (next == nullptr || !usable(next->known_address())) return nullptr;
  auto& stack = idle_.find(key)->second;
  UpstreamPtr upstream = std::move(stack.back());
  stack.pop_back();
  --size_;
  upstream->reused = true;
  upstream->trimmed = false;
  return upstream;
}

void UpstreamPool::Give(const std::string& key, UpstreamPtr upstream, SteadyTime now) {
  upstream->idle_since = now;
  if (const auto waiting = wants_.find(key); waiting != wants_.end()) {
    const auto fits = [&](const Want* want) { return want->usable_(upstream->known_address()); };
    if (const auto first = std::ranges::find_if(waiting->second, fits); first != waiting->second.end()) {
      Want* const want = *first;
      want->Leave();
      want->got_ = std::move(upstream);
      want->waiter_.Poke();
      return;
    }
  }
  auto& stack = idle_[key];
  if (stack.size() >= kMaxIdlePerKey) return;
  if (size_ >= kMaxIdleUpstreams) DropOldest();
  stack.push_back(std::move(upstream));
  ++size_;
}

void UpstreamPool::DropOldest() {
  auto oldest = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    if (it->second.empty()) continue;
    if (oldest == idle_.end() || it->second.front()->idle_since < oldest->second.front()->idle_since) oldest = it;
  }
  if (oldest == idle_.end()) return;
  oldest->second.erase(oldest->second.begin());
  --size_;
}

void UpstreamPool::Sweep(SteadyTime now) {
  for (auto it = idle_.begin(); it != idle_.end();) {
    size_ -= std::erase_if(
        it->second, [&](const UpstreamPtr& upstream) { return now - upstream->idle_since > kPoolIdle || !IsIdle(*upstream); });
    for (auto& upstream : it->second) {
      if (upstream->trimmed || now - upstream->idle_since < kTrimAfter) continue;
      upstream->in.Release();
      upstream->stream.Trim();
      upstream->trimmed = true;
    }
    it = it->second.empty() ? idle_.erase(it) : std::next(it);
  }
}

void UpstreamPool::Drop(const std::string& key) {
  const auto found = idle_.find(key);
  if (found == idle_.end()) return;
  size_ -= found->second.size();
  idle_.erase(found);
}

void UpstreamPool::Clear() {
  idle_.clear();
  size_ = 0;
  // Each ends within the call, and finds nothing of itself here any more.
  for (const Late& late : std::exchange(late_, {})) late.dial->Cancel();
}

bool UpstreamPool::HasRoom(const std::string& key) const {
  if (size_ + late_.size() >= kMaxIdleUpstreams) return false;
  const auto found = idle_.find(key);
  const auto of_key = static_cast<size_t>(std::ranges::count(late_, key, &Late::key));
  return of_key + (found != idle_.end() ? found->second.size() : 0) < kMaxIdlePerKey;
}

bool UpstreamPool::KeepLate(const std::string& key, Waiter* dial) {
  if (!HasRoom(key)) return false;
  late_.push_back({key, dial});
  return true;
}

void UpstreamPool::LateEnded(const Waiter* dial) {
  std::erase_if(late_, [&](const Late& late) { return late.dial == dial; });
}

UpstreamPool::Want::Want(UpstreamPool& pool, std::string key, Waiter& waiter, const UsableJudge& usable)
    : pool_(pool), key_(std::move(key)), waiter_(waiter), usable_(usable) {
  Enlist();
}

UpstreamPool::Want::~Want() {
  Leave();
  if (got_ == nullptr) return;
  const SteadyTime since = got_->idle_since;
  pool_.Give(key_, std::move(got_), since);
}

void UpstreamPool::Want::Enlist() { pool_.wants_[key_].push_back(this); }

void UpstreamPool::Want::Leave() {
  const auto found = pool_.wants_.find(key_);
  if (found == pool_.wants_.end()) return;
  std::erase(found->second, this);
  if (found->second.empty()) pool_.wants_.erase(found);
}

UpstreamPtr UpstreamPool::Want::Take() {
  if (got_ == nullptr) return nullptr;
  UpstreamPtr upstream = std::move(got_);
  // Since it came, the peer may have closed it, and the policy may be another.
  if (IsIdle(*upstream) && usable_(upstream->known_address())) {
    upstream->reused = true;
    return upstream;
  }
  Enlist();
  return nullptr;
}

}  // namespace sluice::proxy
