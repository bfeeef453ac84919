#pragma once

// A queue with a bound, many producers and one consumer. A full queue refuses at once: the caller fails closed.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace sluice {

template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  /// False when full or closed; `value` is then untouched. Any thread, never blocks for long.
  [[nodiscard]] bool TryPush(T&& value) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(value));
      if (items_.size() != 1) return true;
    }
    ready_.notify_one();
    return true;
  }

  /// Everything queued, waiting for at least one item; nothing once closed and drained.
  [[nodiscard]] std::optional<std::deque<T>> PopAll() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    return std::exchange(items_, {});
  }

  /// Refuses further items; what is queued can still be taken.
  void Close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

 private:
  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace sluice
