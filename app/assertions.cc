#include "app/assertions.h"

#include <fmt/format.h>

#include "app/differences.h"

namespace sluice::app {
namespace {

bool IsNever(const policy::Assertion& assertion) { return assertion.kind == policy::Assertion::Kind::kNever; }

Remark BrokenRemark(const policy::Snapshot& policy, const policy::Assertion& assertion, const prover::Difference& difference,
                    const SourceSpan& span) {
  const bool never = IsNever(assertion);
  const std::string text = AssertionText(assertion);
  const std::string witness = difference.witness.Text();
  Remark remark;
  remark.severity = Severity::kError;
  remark.code = never ? "never-broken" : "always-broken";
  remark.span = span;
  remark.details.emplace_back("witness", witness);
  remark.identity = fmt::format("{}\n{}", text, witness);
  if (const auto* rule = policy.rule(never ? difference.rule : difference.refused_by)) {
    remark.message = fmt::format("`{}` does not hold: {} {}", text, QuotedRule(*rule), never ? "lets it out" : "refuses it");
    remark.related.emplace_back("rule at", rule->span);
    if (rule->origin.line != 0) remark.details.emplace_back("preset", policy::PlaceText(rule->span, rule->origin));
  } else {
    remark.message =
        fmt::format("`{}` does not hold: {}", text, never ? "`mode: audit` lets it out" : WhyRefused(difference.refused_because));
  }
  return remark;
}

}  // namespace

std::string AssertionText(const policy::Assertion& assertion) {
  return fmt::format("{}: {}", IsNever(assertion) ? "never" : "always", assertion.info.text);
}

Remark UnknownRemark(const prover::Proof& proof, const SourceSpan& span, std::string_view question) {
  Remark remark;
  remark.severity = Severity::kError;
  remark.code = proof.replay_failed ? "prover-fault" : "unknown";
  remark.message = fmt::format("unknown: {}: {}", question, proof.why_unknown);
  remark.span = span;
  remark.identity = question;
  return remark;
}

AssertionCheck CheckAssertion(const policy::Snapshot& policy, const policy::Assertion& assertion, const std::string& name,
                              prover::Options options) {
  options.accepted.clear();
  const prover::Proof proof = IsNever(assertion) ? prover::CheckNever(policy, assertion.rule, options)
                                                 : prover::CheckAlways(policy, assertion.rule, options);
  const SourceSpan span = assertion.info.span.line != 0 ? assertion.info.span : SourceSpan{name, 0, 0, 0};
  AssertionCheck check{assertion};
  const auto& broken = IsNever(assertion) ? proof.gains : proof.losses;
  const bool unknown = proof.verdict == prover::Verdict::kUnknown;
  if (unknown) check.remarks.push_back(UnknownRemark(proof, span, fmt::format("`{}`", AssertionText(assertion))));
  // A witness that replayed is enough to say no, whatever bound was reached after it.
  if (!unknown || (!broken.empty() && !proof.replay_failed)) check.holds = broken.empty();
  for (const prover::Difference& difference : broken) {
    check.witnesses.push_back(difference.witness);
    check.remarks.push_back(BrokenRemark(policy, assertion, difference, span));
  }
  return check;
}

}  // namespace sluice::app
