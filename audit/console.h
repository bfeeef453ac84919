#pragma once

// Denials as lines for a person. Time is a parameter; nothing is written here.
//
//   sluice: denied  POST https://telemetry.example/v1/event   node[4711] < npm < make   no rule
//           allow it: --allow 'POST telemetry.example/v1/event'          (d-7)

#include <chrono>
#include <cstdint>
#include <list>
#include <string>

#include "base/clock.h"
#include "base/keyed_hash.h"
#include "policy/event.h"

namespace sluice::audit {

enum class Style : uint8_t { kPlain, kColor };

/// "POST https://a.test/x", "connect a.test:5432", "lookup of a.test". Everything the workload chose is encoded and cut.
[[nodiscard]] std::string SubjectText(const policy::DecisionEvent& event);
/// "node[4711] < npm < make".
[[nodiscard]] std::string ProcessText(const policy::ProcessPtr& process);
/// One denial, its newlines included.
[[nodiscard]] std::string DenialText(const policy::DecisionEvent& event, Style style);

/// Decides which denials are shown: equal ones (executable, target, reason) within five seconds of the first are counted and told
/// once, and no more than a few lines a second are shown at all, since a workload can be denied as often as it likes. One thread
/// at a time.
class Repeats {
 public:
  explicit Repeats(Style style) : style_(style) {}

  /// What is to be written now; may be empty. `times`: the event stands for that many.
  [[nodiscard]] std::string Offer(const policy::DecisionEvent& event, SteadyTime now, uint64_t times = 1);
  /// Counts that are due. kAll: at the end.
  enum class Due : uint8_t { kOnly, kAll };
  [[nodiscard]] std::string Collect(SteadyTime now, Due due);
  /// Whether Collect will have something to say later.
  [[nodiscard]] bool pending() const { return repeats_ != 0 || hidden_ != 0; }

 private:
  struct Entry {
    std::string key;
    std::string summary;
    SteadyTime first;
    uint64_t more = 0;
    uint64_t quiet = 0;  // repeats that are not worth a line
  };

  [[nodiscard]] bool TakeToken(SteadyTime now);
  void CloseEntry(std::list<Entry>::iterator at, std::string* out);

  const Style style_;
  std::list<Entry> entries_;  // oldest first
  KeyedMap<std::string, std::list<Entry>::iterator> index_;
  uint64_t repeats_ = 0;  // sum of `more`
  uint64_t hidden_ = 0;   // never shown, for want of tokens
  SteadyTime hidden_since_{};
  double tokens_ = 40;
  SteadyTime last_{};
};

}  // namespace sluice::audit
