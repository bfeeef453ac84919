#pragma once

// `never` and `always`, a policy's own or the command line's, checked by the prover for `prove` and `lint` alike.

#include <optional>
#include <string>
#include <vector>

#include "app/report.h"
#include "policy/rule.h"
#include "prover/prove.h"

namespace sluice::app {

struct AssertionCheck {
  policy::Assertion assertion;
  std::optional<bool> holds{};  ///< nothing: a bound was reached, or a witness did not replay
  std::vector<prover::Witness> witnesses{};
  std::vector<Remark> remarks{};  ///< "never-broken", "always-broken", "unknown", "prover-fault"
};

/// `name` is the policy's, for assertions that stand in no file. What `options` accepts does not count here.
[[nodiscard]] AssertionCheck CheckAssertion(const policy::Snapshot& policy, const policy::Assertion& assertion,
                                            const std::string& name, prover::Options options);

/// "never: POST a.test/**".
[[nodiscard]] std::string AssertionText(const policy::Assertion& assertion);

/// `question` has no answer: "whether the policy widens".
[[nodiscard]] Remark UnknownRemark(const prover::Proof& proof, const SourceSpan& span, std::string_view question);

}  // namespace sluice::app
