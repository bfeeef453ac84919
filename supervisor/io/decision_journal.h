#pragma once

// Turns what the notifier decides into audit records. Any thread.

#include <atomic>
#include <cstdint>
#include <string>

#include "policy/event.h"

namespace sluice::supervisor {

struct Judged {
  policy::EventLayer layer = policy::EventLayer::kConnect;
  policy::EventTarget target;
  policy::ProcessPtr process;
  policy::Decision decision;
  policy::Advice advice;
  policy::SnapshotPtr snapshot;
  std::string detail;
  uint64_t connection = 0;
};

class DecisionJournal {
 public:
  explicit DecisionJournal(policy::EventSink& sink) : sink_(sink) {}

  /// False: it could not be recorded, so it must not happen.
  [[nodiscard]] bool Allowed(Judged judged) const;
  /// A denial stands whether it was recorded or not; one that was not is counted.
  void Denied(Judged judged);
  [[nodiscard]] uint64_t unrecorded() const { return unrecorded_.load(std::memory_order_relaxed); }

 private:
  policy::EventSink& sink_;
  std::atomic<uint64_t> unrecorded_{0};
};

}  // namespace sluice::supervisor
