#include "app/prove_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/columns.h"
#include "app/differences.h"
#include "app/lint_codes.h"

namespace sluice::app {
namespace {

using prover::Verdict;

std::string Count(size_t number, std::string_view noun, std::string_view plural) {
  return fmt::format("{} {}", number, number == 1 ? noun : plural);
}

std::string AssertionSummary(const Outcome& outcome) {
  if (outcome.broken == 0)
    return outcome.assertions == 1 ? "the assertion holds" : fmt::format("all {} assertions hold", outcome.assertions);
  if (outcome.assertions == 1) return "the assertion does not hold";
  return fmt::format("{} of {} assertions {} not hold", outcome.broken, outcome.assertions, outcome.broken == 1 ? "does" : "do");
}

std::string ChangeSummary(const ProveReport& report, const Outcome& outcome) {
  const size_t files = report.pairs.size();
  const std::string of = files == 1 ? "" : fmt::format(" in {} policies", files);
  std::string text = outcome.gains + outcome.losses == 0
                         ? fmt::format("{}{}", prover::VerdictText(outcome.verdict), of)
                         : fmt::format("{}, {}{}: {}", Count(outcome.gains, "gain", "gains"),
                                       Count(outcome.losses, "loss", "losses"), of, prover::VerdictText(outcome.verdict));
  if (outcome.verdict != Verdict::kEqual) return text;
  return text + (files == 1 ? ": both let out the same" : ": each lets out the same as before");
}

std::vector<Remark> RemarksOf(const PairResult& result) {
  const auto& [name, base, head] = result.pair;
  std::vector<Remark> remarks;
  remarks.reserve(result.proof.gains.size() + result.proof.losses.size());
  for (const auto& gain : result.proof.gains) remarks.push_back(DifferenceRemark(gain, *head, *base, name, Direction::kGain));
  for (const auto& loss : result.proof.losses) remarks.push_back(DifferenceRemark(loss, *base, *head, name, Direction::kLoss));
  if (result.proof.verdict == Verdict::kUnknown)
    remarks.push_back(UnknownRemark(result.proof, {name, 0, 0, 0}, "whether the policy widens"));
  for (const AssertionCheck& check : result.assertions) std::ranges::copy(check.remarks, std::back_inserter(remarks));
  return remarks;
}

nlohmann::json AssertionJson(const AssertionCheck& check, const std::string& name) {
  const SourceSpan& span = check.assertion.info.span;
  nlohmann::json out{{"assert", AssertionText(check.assertion)}, {"policy", name}, {"holds", nullptr}};
  if (check.holds) out["holds"] = *check.holds;
  if (span.line != 0) out.update({{"file", span.file}, {"line", span.line}});
  out["witnesses"] = nlohmann::json::array();
  for (const prover::Witness& witness : check.witnesses) out["witnesses"].push_back(WitnessJson(witness));
  return out;
}

nlohmann::json PolicyJson(const PairResult& result) {
  nlohmann::json out{{"file", result.pair.name},
                     {"verdict", prover::VerdictText(result.proof.verdict)},
                     {"base_digest", result.pair.base->digest()},
                     {"head_digest", result.pair.head->digest()}};
  if (!result.proof.why_unknown.empty()) out["unknown"] = result.proof.why_unknown;
  return out;
}

nlohmann::json EmptyReport() {
  nlohmann::json out{{"verdict", nullptr}};
  for (const char* list : {"gains", "losses", "assertions", "policies", "remarks"}) out[list] = nlohmann::json::array();
  return out;
}

std::string JsonReport(const ProveReport& report, const Outcome& outcome) {
  nlohmann::json out = EmptyReport();
  out["verdict"] = prover::VerdictText(outcome.verdict);
  for (const PairResult& result : report.pairs) {
    const auto& [name, base, head] = result.pair;
    for (const auto& gain : result.proof.gains) out["gains"].push_back(DifferenceJson(gain, *head, *base, name));
    for (const auto& loss : result.proof.losses) out["losses"].push_back(DifferenceJson(loss, *base, *head, name));
    for (const auto& check : result.assertions) out["assertions"].push_back(AssertionJson(check, name));
    out["policies"].push_back(PolicyJson(result));
  }
  for (const Remark& remark : report.others)
    out["remarks"].push_back({{"severity", SeverityText(remark.severity)},
                              {"code", remark.code},
                              {"message", remark.message},
                              {"file", remark.span.file},
                              {"line", remark.span.line}});
  return out.dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string FailureJson(const std::vector<Remark>& remarks) {
  nlohmann::json out = EmptyReport();
  for (const Remark& remark : remarks)
    out["errors"].push_back(
        {{"message", remark.message}, {"file", remark.span.file}, {"line", remark.span.line}, {"column", remark.span.column}});
  out["error"] = out["errors"].front();  // for those who ask for one
  return out.dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string TextReport(const std::vector<Remark>& remarks, const std::string& summary, const Outcome& outcome, bool color) {
  std::string text;
  for (const Remark& remark : remarks) text += RemarkText(remark, color);
  if (!color) return text + summary + "\n";
  const bool bad = outcome.gains != 0 || outcome.broken != 0 || outcome.unknown;
  return text + fmt::format("\x1b[{}m{}\x1b[0m\n", bad ? "1;31" : "1;32", summary);
}

}  // namespace

Outcome OutcomeOf(const std::vector<PairResult>& pairs) {
  Outcome outcome;
  for (const PairResult& result : pairs) {
    outcome.gains += result.proof.gains.size();
    outcome.losses += result.proof.losses.size();
    outcome.unknown |= result.proof.verdict == Verdict::kUnknown;
    for (const AssertionCheck& check : result.assertions) {
      ++outcome.assertions;
      outcome.unknown |= !check.holds;
      outcome.broken += check.holds == false ? 1 : 0;
    }
  }
  if (outcome.unknown) {
    outcome.verdict = Verdict::kUnknown;
  } else if (outcome.gains != 0) {
    outcome.verdict = outcome.losses != 0 ? Verdict::kIncomparable : Verdict::kWidened;
  } else if (outcome.losses != 0) {
    outcome.verdict = Verdict::kNarrowed;
  }
  return outcome;
}

std::string Summary(const ProveReport& report, const Outcome& outcome) {
  std::string text = report.question == Question::kChange ? ChangeSummary(report, outcome) : "";
  if (report.question == Question::kAssertionsAlone && outcome.unknown) text = "unknown";
  if (outcome.assertions != 0 && (!outcome.unknown || outcome.broken != 0))
    text += (text.empty() ? "" : "; ") + AssertionSummary(outcome);
  if (report.accepted != 0) text += fmt::format("; {} taken out", Count(report.accepted, "accepted region", "accepted regions"));
  return text;
}

std::string RenderReport(ReportFormat format, const ProveReport& report, bool color) {
  const Outcome outcome = OutcomeOf(report.pairs);
  const std::string summary = Summary(report, outcome);
  std::vector<Remark> all;
  for (const PairResult& result : report.pairs) std::ranges::move(RemarksOf(result), std::back_inserter(all));
  std::ranges::copy(report.others, std::back_inserter(all));
  // A reviewer of a change is asked about what it opens; what it closes is only told where people read the whole.
  std::vector<Remark> open;
  std::ranges::copy_if(all, std::back_inserter(open), [](const Remark& remark) { return remark.code != "narrowed"; });
  switch (format) {
    case ReportFormat::kText:
      break;
    case ReportFormat::kJson:
      return JsonReport(report, outcome);
    case ReportFormat::kSarif:
      return SarifLog(WithCharacterColumns(std::move(open)), ProveCodes());
    case ReportFormat::kGithub:
      return GithubCommands(WithCharacterColumns(std::move(open)), ProveCodes()) + summary + "\n";
    case ReportFormat::kMarkdown:
      return Markdown("Policy reach: " + std::string(prover::VerdictText(outcome.verdict)), summary, all);
  }
  return TextReport(all, summary, outcome, color);
}

std::string RenderFailure(ReportFormat format, const std::vector<UnloadedPolicy>& reasons) {
  std::vector<Remark> whole;
  for (const auto& [file, error] : reasons) {
    Remark remark;
    remark.severity = Severity::kError;
    remark.code = error.span ? "does-not-load" : "not-proved";
    remark.message = error.message;
    remark.span = error.span.value_or(SourceSpan{file, 0, 0, 0});
    remark.identity = error.message;
    whole.push_back(std::move(remark));
  }
  switch (format) {
    case ReportFormat::kText:
      break;  // standard error has it
    case ReportFormat::kJson:
      return FailureJson(whole);
    case ReportFormat::kSarif:
      return SarifLog(WithCharacterColumns(whole), ProveCodes());
    case ReportFormat::kGithub:
      return GithubCommands(WithCharacterColumns(whole), ProveCodes());
    case ReportFormat::kMarkdown:
      return Markdown("Policy reach: nothing proved", "bad input", whole);
  }
  return "";
}

}  // namespace sluice::app
