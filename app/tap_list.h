#pragma once

// Several who look on while records are written, as one.

#include <algorithm>
#include <vector>

#include "audit/tap.h"

namespace sluice::app {

class TapList final : public audit::Tap {
 public:
  /// Before the writer starts. Outlives the list.
  void Add(audit::Tap& tap) { taps_.push_back(&tap); }
  /// For audit::Options; null where nobody looks on.
  [[nodiscard]] audit::Tap* tap() { return taps_.empty() ? nullptr : this; }

  void Saw(const policy::DecisionEvent& event, uint64_t times) noexcept override {
    for (audit::Tap* tap : taps_) tap->Saw(event, times);
  }
  void Saw(const policy::ExchangeEvent& event) noexcept override {
    for (audit::Tap* tap : taps_) tap->Saw(event);
  }
  [[nodiscard]] bool wants_lines() const noexcept override {
    return std::ranges::any_of(taps_, [](const audit::Tap* tap) { return tap->wants_lines(); });
  }
  void Line(std::string_view line) noexcept override {
    for (audit::Tap* tap : taps_)
      if (tap->wants_lines()) tap->Line(line);
  }

 private:
  std::vector<audit::Tap*> taps_;
};

}  // namespace sluice::app
