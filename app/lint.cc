#include "app/lint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <tuple>

#include "app/assertions.h"
#include "app/columns.h"
#include "app/exit_code.h"
#include "app/lint_codes.h"
#include "app/lint_comments.h"
#include "app/policy_files.h"
#include "app/standard_output.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/printable.h"
#include "policy/io/load.h"
#include "prover/lint.h"

namespace sluice::app {
namespace {

nlohmann::json SpanJson(const SourceSpan& span) { return {{"file", span.file}, {"line", span.line}, {"column", span.column}}; }

struct FileReport {
  std::string file;
  Error error;  ///< where `snapshot` is null
  policy::SnapshotPtr snapshot;
  std::vector<Remark> remarks;

  [[nodiscard]] bool Reaches(Severity severity) const {
    return std::ranges::any_of(remarks, [severity](const Remark& r) { return r.severity >= severity; });
  }
};

Remark ToRemark(policy::Finding finding, const policy::Snapshot& snapshot) {
  Remark remark;
  remark.severity = finding.severity;
  remark.code = std::move(finding.code);
  remark.message = std::move(finding.message);
  // The rule's text, not its line, says whether two runs speak of the same.
  for (const policy::RuleInfo& info : snapshot.rules())
    if (info.span == finding.span && info.origin == finding.origin) remark.identity = info.text;
  if (finding.other.line != 0) remark.related.emplace_back("other rule at", finding.other);
  remark.span = std::move(finding.span);
  return remark;
}

std::vector<Remark> RemarksOn(const policy::Snapshot& snapshot, const std::string& file) {
  const WallTime now = SystemClock().Wall();
  std::vector<Remark> remarks;
  for (auto findings : {policy::Lint(snapshot, now), policy::LintBreadth(snapshot, now), prover::LintReach(snapshot, now)})
    for (policy::Finding& finding : findings) remarks.push_back(ToRemark(std::move(finding), snapshot));
  prover::Options options;
  options.at = now;
  const bool allows = std::ranges::any_of(snapshot.rules(), &policy::RuleInfo::allow);
  if (!allows && snapshot.mode() == policy::Mode::kEnforce)
    remarks.push_back({.severity = Severity::kNote,
                       .code = "no-allow",
                       .message = "no rule allows anything, so the policy refuses everything",
                       .span = {file, 0, 0, 0}});
  for (const policy::Assertion& assertion : snapshot.assertions())
    std::ranges::move(CheckAssertion(snapshot, assertion, file, options).remarks, std::back_inserter(remarks));
  CommentRemarks comments = ReadComments(snapshot, LintCodes());
  std::ranges::move(comments.remarks, std::back_inserter(remarks));
  ApplyIgnores(std::move(comments.ignores), &remarks);
  std::ranges::sort(remarks, {},
                    [](const Remark& r) { return std::tie(r.span.file, r.span.line, r.span.column, r.code, r.message); });
  // What is plain to see is found by the proof again.
  const auto doubles = std::ranges::unique(
      remarks, [](const Remark& a, const Remark& b) { return a.span == b.span && a.code == b.code && a.message == b.message; });
  remarks.erase(doubles.begin(), doubles.end());
  return remarks;
}

FileReport Examine(const std::string& file) {
  FileReport report;
  report.file = file;
  policy::LoadOptions options;
  options.check_executables = false;
  auto loaded = policy::LoadFile(file, options);
  if (!loaded) {
    report.error = std::move(loaded.error());
    return report;
  }
  report.snapshot = std::move(*loaded);
  report.remarks = RemarksOn(*report.snapshot, file);
  return report;
}

// For formats in which a file that does not load is one more remark.
Remark LoadRemark(const FileReport& report) {
  Remark remark;
  remark.severity = Severity::kError;
  remark.code = "does-not-load";
  remark.message = report.error.message;
  remark.span = report.error.span.value_or(SourceSpan{report.file, 0, 0, 0});
  remark.identity = report.error.message;
  return remark;
}

std::string OkLine(const FileReport& report) {
  const size_t rules = report.snapshot->rules().size();
  return fmt::format("{}: ok, {} rule{} (digest {}…)\n", Printable(report.file), rules, rules == 1 ? "" : "s",
                     report.snapshot->digest().substr(0, 4));
}

void PrintText(const FileReport& report) {
  if (report.snapshot == nullptr) {
    PrintError(policy::RenderError(report.error, StderrHasColor()) + "\n");
    return;
  }
  for (const Remark& remark : report.remarks) fmt::print("{}", RemarkText(remark, StdoutHasColor()));
  if (!report.Reaches(Severity::kError)) fmt::print("{}", OkLine(report));
}

nlohmann::json ToJson(const FileReport& report) {
  nlohmann::json out{{"file", report.file}, {"loads", report.snapshot != nullptr}, {"findings", nlohmann::json::array()}};
  if (report.snapshot == nullptr) {
    out["error"] = {{"message", report.error.message}};
    if (report.error.span) out["error"].update(SpanJson(*report.error.span));
    return out;
  }
  out["rules"] = report.snapshot->rules().size();
  out["digest"] = report.snapshot->digest();
  for (const Remark& remark : report.remarks) {
    nlohmann::json finding = SpanJson(remark.span);
    finding.update({{"severity", SeverityText(remark.severity)}, {"code", remark.code}, {"message", remark.message}});
    for (const auto& [name, value] : remark.details) finding["details"][name] = value;
    if (!remark.related.empty()) finding["other"] = SpanJson(remark.related.front().second);
    out["findings"].push_back(std::move(finding));
  }
  return out;
}

std::string Summary(const std::vector<Remark>& remarks, size_t files) {
  const auto count = [&](Severity severity) { return std::ranges::count(remarks, severity, &Remark::severity); };
  const auto some = [&](Severity severity) {
    return fmt::format("{} {}{}", count(severity), SeverityText(severity), count(severity) == 1 ? "" : "s");
  };
  return fmt::format("{}, {}, {} in {} file{}", some(Severity::kError), some(Severity::kWarning), some(Severity::kNote), files,
                     files == 1 ? "" : "s");
}

void Print(ReportFormat format, const std::vector<FileReport>& reports) {
  if (format == ReportFormat::kText) {
    for (const FileReport& report : reports) PrintText(report);
    return;
  }
  if (format == ReportFormat::kJson) {
    nlohmann::json files = nlohmann::json::array();
    for (const FileReport& report : reports) files.push_back(ToJson(report));
    fmt::print("{}\n", nlohmann::json{{"files", std::move(files)}}.dump(2, ' ', true, nlohmann::json::error_handler_t::replace));
    return;
  }
  std::vector<Remark> all;
  for (const FileReport& report : reports) {
    if (report.snapshot == nullptr) all.push_back(LoadRemark(report));
    std::ranges::copy(report.remarks, std::back_inserter(all));
  }
  if (format == ReportFormat::kMarkdown) {
    fmt::print("{}", Markdown("Policy lint", Summary(all, reports.size()), all));
    return;
  }
  const std::vector<Remark> counted = WithCharacterColumns(std::move(all));
  fmt::print("{}", format == ReportFormat::kSarif ? SarifLog(counted, LintCodes()) : GithubCommands(counted, LintCodes()));
}

}  // namespace

int RunLint(const LintOptions& options) {
  int code = kExitOk;
  std::vector<FileReport> reports;
  for (const std::string& path : options.files) {
    const auto files = FilesAt(path, FileKind::kPolicy);
    if (!files) {
      PrintError(policy::RenderError(files.error(), StderrHasColor()) + "\n");
      code = kExitBadInput;
      continue;
    }
    for (const std::string& file : *files) {
      reports.push_back(Examine(file));
      const FileReport& report = reports.back();
      const bool failed = options.fail_on && report.Reaches(*options.fail_on);
      code = std::max(code, report.snapshot == nullptr ? kExitBadInput : failed ? kExitNegative : kExitOk);
    }
  }
  Print(options.format, reports);
  return code;
}

}  // namespace sluice::app
