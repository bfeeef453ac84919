#include "supervisor/io/decision_journal.h"

#include <utility>

#include "base/clock.h"

namespace sluice::supervisor {
namespace {

policy::DecisionEvent ToEvent(Judged judged) {
  policy::DecisionEvent event;
  event.time = SystemClock().Wall();
  event.connection = judged.connection;
  event.layer = judged.layer;
  event.target = std::move(judged.target);
  event.process = std::move(judged.process);
  event.decision = judged.decision;
  event.advice = std::move(judged.advice);
  event.snapshot = std::move(judged.snapshot);
  event.detail = std::move(judged.detail);
  return event;
}

}  // namespace

bool DecisionJournal::Allowed(Judged judged) const {
  policy::DecisionEvent event = ToEvent(std::move(judged));
  if (event.decision.audit_only) event.denial_id = sink_.NextDenialId();
  return sink_.Record(std::move(event));
}

void DecisionJournal::Denied(Judged judged) {
  judged.decision.allowed = false;
  policy::DecisionEvent event = ToEvent(std::move(judged));
  event.denial_id = sink_.NextDenialId();
  if (!sink_.Record(std::move(event))) unrecorded_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace sluice::supervisor
