#pragma once

// Records on their way to the writer thread: a queue with a bound in which no kind of record and no process takes everybody's
// room. Many producers, one consumer.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <variant>

#include "audit/fold.h"
#include "policy/event.h"

namespace sluice::audit {

using QueuedRecord = std::variant<policy::DecisionEvent, policy::ExchangeEvent>;

/// What happens to the one whose record finds no room decides how much room there is for it: a refusal stands anyhow (half of the
/// queue), an allowed call is refused (seven eighths), a finished exchange cannot be undone (all of it).
enum class RecordKind : uint8_t { kRefusal, kAllowed, kExchange };

class RecordQueue {
 public:
  explicit RecordQueue(size_t capacity) : capacity_(capacity) {}

  /// False when there is no room or it was closed; `record` is then untouched. Once a quarter of the queue is taken, a process
  /// has room for another quarter. Any thread, never blocks for long.
  [[nodiscard]] bool TryPush(QueuedRecord&& record, Owner owner, RecordKind kind);

  /// Everything queued, waiting for at least one record, or no longer than `at_most`; nothing once closed and drained. After the
  /// first it waits kGather longer, unless a quarter of the queue is taken, so that whoever adds the next ones need not wake
  /// anybody: whoever decides pays for the wake-up.
  [[nodiscard]] std::optional<std::deque<QueuedRecord>> PopAll(std::optional<std::chrono::milliseconds> at_most);

  /// Refuses further records; what is queued can still be taken.
  void Close();

 private:
  static constexpr std::chrono::milliseconds kGather{1};
  [[nodiscard]] size_t RoomFor(RecordKind kind) const;
  [[nodiscard]] size_t Crowded() const { return capacity_ / 4; }

  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<QueuedRecord> records_;
  std::map<Owner, size_t> crowding_;  // records since a quarter was taken
  bool closed_ = false;
};

}  // namespace sluice::audit
