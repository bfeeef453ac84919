#pragma once

// What `prove` found, pair by pair, and its report in every format.

#include <string>
#include <vector>

#include "app/assertions.h"
#include "app/policy_pairs.h"
#include "app/report.h"
#include "base/result.h"
#include "prover/prove.h"

namespace sluice::app {

struct PairResult {
  PolicyPair pair;  ///< neither side is null: what is missing is an empty policy
  prover::Proof proof;
  std::vector<AssertionCheck> assertions{};
};

enum class Question : uint8_t { kChange, kAssertionsAlone };

struct ProveReport {
  Question question = Question::kChange;
  std::vector<PairResult> pairs{};
  std::vector<Remark> others{};  ///< about what was given beside the policies
  size_t accepted = 0;           ///< acceptances that took something away
};

/// Of all pairs together.
struct Outcome {
  prover::Verdict verdict = prover::Verdict::kEqual;
  size_t gains = 0;
  size_t losses = 0;
  size_t assertions = 0;
  size_t broken = 0;     ///< assertions that do not hold
  bool unknown = false;  ///< of a comparison or an assertion
};
[[nodiscard]] Outcome OutcomeOf(const std::vector<PairResult>& pairs);

/// "2 gains, 0 losses: widened; 1 of 3 assertions does not hold".
[[nodiscard]] std::string Summary(const ProveReport& report, const Outcome& outcome);

/// The whole text for standard output. Reads the files named again where columns count characters (columns.h).
[[nodiscard]] std::string RenderReport(ReportFormat format, const ProveReport& report, bool color);

/// The same where nothing was proved, for at least one reason. Each is about its file unless the error says where.
[[nodiscard]] std::string RenderFailure(ReportFormat format, const std::vector<UnloadedPolicy>& reasons);

}  // namespace sluice::app
