#pragma once

// What the prover found, in words and as JSON.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "app/report.h"
#include "policy/snapshot.h"
#include "prover/prove.h"

namespace sluice::app {

/// Which way the difference goes: what the head lets out and the base does not, or the other way round.
enum class Direction : uint8_t { kGain, kLoss };

/// "refused: method": what the other policy says of the witness.
[[nodiscard]] std::string_view WhyRefused(policy::Reason reason);
/// "`allow: GET a.test`", and where it stands: "… at policy.yaml:7".
[[nodiscard]] std::string QuotedRule(const policy::RuleInfo& rule);
[[nodiscard]] std::string RuleAtPlace(const policy::RuleInfo& rule);

/// `here` is the policy that lets it out, `there` the one that does not; `name` stands for a place where no rule does.
[[nodiscard]] Remark DifferenceRemark(const prover::Difference& difference, const policy::Snapshot& here,
                                      const policy::Snapshot& there, const std::string& name, Direction direction);

[[nodiscard]] nlohmann::json WitnessJson(const prover::Witness& witness);
[[nodiscard]] nlohmann::json DifferenceJson(const prover::Difference& difference, const policy::Snapshot& here,
                                            const policy::Snapshot& there, const std::string& name);

}  // namespace sluice::app
