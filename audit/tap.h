#pragma once

// Who looks on while records are written: counters and live readers. Runs on the writer's own thread, after the decision was
// answered, so that nothing waits for it; what it misses is never missing in the file.

#include <cstdint>
#include <string_view>

#include "policy/event.h"

namespace sluice::audit {

class Tap {
 public:
  virtual ~Tap() = default;

  /// A decision, or `times` equal refusals of a flood. Must not block.
  virtual void Saw(const policy::DecisionEvent& event, uint64_t times) noexcept = 0;
  virtual void Saw(const policy::ExchangeEvent& event) noexcept = 0;

  /// Whether somebody reads along: where nobody does, no line is made for it.
  [[nodiscard]] virtual bool wants_lines() const noexcept = 0;
  /// The record of what was seen last, with its newline. Valid for the call. Must not block.
  virtual void Line(std::string_view line) noexcept = 0;
};

}  // namespace sluice::audit
