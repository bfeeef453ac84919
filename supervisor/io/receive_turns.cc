#include "supervisor/io/receive_turns.h"

namespace sluice::supervisor {

static_assert(std::atomic<unsigned>::is_always_lock_free, "CallAnother runs in a signal handler");

ReceiveTurns::ReceiveTurns() { sem_init(&called_, 0, 0); }
ReceiveTurns::~ReceiveTurns() { sem_destroy(&called_); }

void ReceiveTurns::Rest() {
  resting_.fetch_add(1);
  while (sem_wait(&called_) != 0) {
  }
  // One post lets everybody out, each the next.
  if (closed_.load()) sem_post(&called_);
}

void ReceiveTurns::CallAnother() {
  if (waiting_.load() != 0) return;
  unsigned resting = resting_.load();
  while (resting != 0) {
    if (!resting_.compare_exchange_weak(resting, resting - 1)) continue;
    sem_post(&called_);
    return;
  }
}

void ReceiveTurns::Close() {
  closed_.store(true);
  sem_post(&called_);
}

}  // namespace sluice::supervisor
