#pragma once

// Remarks on policy files, as `lint` and `prove` make them, in every format that people and their tools read: text for a
// terminal, JSON, SARIF 2.1.0 for code scanning, GitHub's workflow commands and Markdown for a pull request's comment.
// Pure: each writer gives the whole text.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "policy/finding.h"

namespace sluice::app {

enum class ReportFormat : uint8_t { kText, kJson, kSarif, kGithub, kMarkdown };
/// "text", "json", "sarif", "github", "markdown".
[[nodiscard]] std::span<const std::string_view> ReportFormatNames();
[[nodiscard]] std::optional<ReportFormat> ParseReportFormat(std::string_view name);

using Severity = policy::Finding::Severity;
[[nodiscard]] std::string_view SeverityText(Severity severity);  ///< "error", "warning", "note"

/// What a code means, once per code. The texts are for people; codes never change their meaning.
struct CodeInfo {
  std::string_view code;   ///< "shadowed"; SARIF's rule id is "sluice/shadowed"
  std::string_view title;  ///< a few words
  std::string_view help;   ///< one or two sentences: why it matters, what to do
};

struct Remark {
  Severity severity = Severity::kWarning;
  std::string code{};
  std::string message{};                                       ///< one sentence without a final stop
  SourceSpan span{};                                           ///< line 0: about the file as a whole
  std::vector<std::pair<std::string, SourceSpan>> related{};   ///< "shadowed by", place
  std::vector<std::pair<std::string, std::string>> details{};  ///< "witness", "POST https://a.test/x"
  std::string identity{};  ///< what makes it the same remark after lines moved: rule text and witness; hashed for SARIF
};

/// A place as people and editors write it: "policy.yaml:7:12".
[[nodiscard]] std::string PlaceText(const SourceSpan& span);

/// "policy.yaml:7:12: warning: … [code]", then its details, indented.
[[nodiscard]] std::string RemarkText(const Remark& remark, bool color);

[[nodiscard]] std::string SarifLog(std::span<const Remark> remarks, std::span<const CodeInfo> codes);
/// "::error file=…,line=…::…", a line each.
[[nodiscard]] std::string GithubCommands(std::span<const Remark> remarks, std::span<const CodeInfo> codes);
/// At most 60,000 bytes, so that it fits a comment: what does not fit is counted.
[[nodiscard]] std::string Markdown(std::string_view heading, std::string_view summary, std::span<const Remark> remarks);

}  // namespace sluice::app
