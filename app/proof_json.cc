#include "app/proof_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "app/prove_report.h"
#include "base/clock.h"

namespace sluice::app {

nlohmann::json ProofJson(const std::string& name, const policy::SnapshotPtr& base, const policy::SnapshotPtr& head,
                         uint64_t steps, prover::Verdict* verdict) {
  prover::Options options;
  options.at = SystemClock().Wall();
  options.limit = steps;
  PairResult pair{{name, base, head}, prover::Compare(*base, *head, options)};
  *verdict = pair.proof.verdict;
  ProveReport report;
  report.pairs.push_back(std::move(pair));
  nlohmann::json out = nlohmann::json::parse(RenderReport(ReportFormat::kJson, report, false), nullptr, false);
  out.erase("assertions");
  out["summary"] = Summary(report, OutcomeOf(report.pairs));
  return out;
}

}  // namespace sluice::app
