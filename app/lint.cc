#include "app/lint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "base/printable.h"
#include "policy/io/load.h"

namespace sluice::app {
namespace {

using Severity = policy::Finding::Severity;

std::string_view SeverityText(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      break;
  }
  return "note";
}

nlohmann::json SpanJson(const SourceSpan& span) { return {{"file", span.file}, {"line", span.line}, {"column", span.column}}; }

struct FileReport {
  std::string file;
  Error error;  ///< where `snapshot` is null
  policy::SnapshotPtr snapshot;
  std::vector<policy::Finding> findings;
  [[nodiscard]] bool has_errors() const {
    return std::any_of(findings.begin(), findings.end(), [](const policy::Finding& f) { return f.severity == Severity::kError; });
  }
};

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
  report.findings = policy::Lint(*report.snapshot, SystemClock().Wall());
  return report;
}

void PrintText(const FileReport& report) {
  if (report.snapshot == nullptr) {
    fmt::print(stderr, "{}\n", policy::RenderError(report.error, StderrHasColor()));
    return;
  }
  for (const policy::Finding& f : report.findings)
    fmt::print("{}:{}:{}: {}: {} [{}]\n", Printable(f.span.file), f.span.line, f.span.column, SeverityText(f.severity),
               Printable(f.message), f.code);
  const size_t rules = report.snapshot->rules().size();
  if (report.has_errors()) return;
  fmt::print("{}: ok, {} rule{} (digest {}…)\n", Printable(report.file), rules, rules == 1 ? "" : "s",
             report.snapshot->digest().substr(0, 4));
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
  for (const policy::Finding& f : report.findings) {
    nlohmann::json finding = SpanJson(f.span);
    finding.update({{"severity", SeverityText(f.severity)}, {"code", f.code}, {"message", f.message}});
    if (f.other.line != 0) finding["other"] = SpanJson(f.other);
    out["findings"].push_back(std::move(finding));
  }
  return out;
}

}  // namespace

int RunLint(const LintOptions& options) {
  int code = 0;
  nlohmann::json files = nlohmann::json::array();
  for (const std::string& file : options.files) {
    const FileReport report = Examine(file);
    code = std::max(code, report.snapshot == nullptr ? 2 : report.has_errors() ? 1 : 0);
    if (options.format == OutputFormat::kJson) {
      files.push_back(ToJson(report));
    } else {
      PrintText(report);
    }
  }
  if (options.format == OutputFormat::kJson)
    fmt::print("{}\n", nlohmann::json{{"files", std::move(files)}}.dump(2, ' ', true, nlohmann::json::error_handler_t::replace));
  std::fflush(stdout);
  return code;
}

}  // namespace sluice::app
