#pragma once

// Bounds on what a workload can spell out in lookups. A name that stands in a rule as written carries nothing; a name that a
// wildcard let through may carry bytes, so its shape and the rate of new ones are bounded. Time is a parameter.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "base/clock.h"

namespace sluice::dns {

struct Limits {
  size_t wildcard_name = 128;        ///< octets of a name under a wildcard
  size_t wildcard_label = 40;        ///< octets of one of its labels
  size_t wildcard_labels = 8;        ///< labels beyond the rule's own
  double new_names_per_minute = 60;  ///< under a wildcard, for one CountingDomain
  double upstream_per_second = 50;   ///< lookups that no cache answers, of one sandbox
  double upstream_burst = 200;
};

/// A rate that may be exceeded for a moment.
class TokenBucket {
 public:
  TokenBucket(double per_second, double burst) : rate_(per_second), burst_(burst), tokens_(burst) {}
  [[nodiscard]] bool Take(SteadyTime now);

 private:
  double rate_;
  double burst_;
  double tokens_;
  SteadyTime last_{};
};

/// One thread.
class Limiter {
 public:
  explicit Limiter(Limits limits) : limits_(limits), upstream_(limits.upstream_per_second, limits.upstream_burst) {}

  /// What of the name itself is too much; nothing when it may pass. `rule_text` is the allow that matched.
  [[nodiscard]] std::optional<std::string> JudgeShape(std::string_view name, std::string_view rule_text) const;
  /// The same for the rate at which names not asked before may be asked. Counts this one.
  [[nodiscard]] std::optional<std::string> JudgeNewName(std::string_view name, std::string_view rule_text, SteadyTime now);
  [[nodiscard]] std::optional<std::string> JudgeUpstream(SteadyTime now);

 private:
  Limits limits_;
  TokenBucket upstream_;
  std::unordered_set<size_t> known_;  // hashes of names that passed
  std::unordered_map<std::string, TokenBucket> domains_;
};

/// Whose names are counted together: the longest end of the name that the rule spells ("a.test" under `*.a.test`); under a bare
/// wildcard the last two labels, or three where those two are like "co.uk". Without a public suffix list, near enough.
[[nodiscard]] std::string_view CountingDomain(std::string_view canonical_name, std::string_view rule_text);

}  // namespace sluice::dns
