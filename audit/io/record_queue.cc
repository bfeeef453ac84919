#include "audit/io/record_queue.h"

#include <algorithm>
#include <utility>

namespace sluice::audit {

size_t RecordQueue::RoomFor(RecordKind kind) const {
  switch (kind) {
    case RecordKind::kRefusal:
      return std::max<size_t>(capacity_ / 2, 1);
    case RecordKind::kAllowed:
      return capacity_ - capacity_ / 8;
    case RecordKind::kExchange:
      break;
  }
  return capacity_;
}

bool RecordQueue::TryPush(QueuedRecord&& record, Owner owner, RecordKind kind) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || records_.size() >= RoomFor(kind)) return false;
    if (records_.size() >= Crowded() && kind != RecordKind::kExchange) {
      size_t& taken = crowding_[owner];
      if (taken >= std::max<size_t>(capacity_ / 4, 1)) return false;
      ++taken;
    }
    records_.push_back(std::move(record));
    if (records_.size() != 1 && records_.size() != Crowded()) return true;
  }
  ready_.notify_one();
  return true;
}

std::optional<std::deque<QueuedRecord>> RecordQueue::PopAll(std::optional<std::chrono::milliseconds> at_most) {
  std::unique_lock lock(mutex_);
  const auto wanted = [this] { return closed_ || !records_.empty(); };
  if (at_most) {
    ready_.wait_for(lock, *at_most, wanted);
  } else {
    ready_.wait(lock, wanted);
  }
  if (!records_.empty()) ready_.wait_for(lock, kGather, [this] { return closed_ || records_.size() >= Crowded(); });
  if (records_.empty() && closed_) return std::nullopt;
  crowding_.clear();
  return std::exchange(records_, {});
}

void RecordQueue::Close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  ready_.notify_all();
}

}  // namespace sluice::audit
