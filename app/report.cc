#include "app/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/printable.h"
#include "policy/io/executables.h"

namespace sluice::app {
namespace {

constexpr std::array<std::string_view, 5> kFormats = {"text", "json", "sarif", "github", "markdown"};
constexpr size_t kMaxMarkdown = 60'000;  // a comment holds 65,536 characters

const CodeInfo* FindCode(std::span<const CodeInfo> codes, std::string_view code) {
  const auto it = std::ranges::find(codes, code, &CodeInfo::code);
  return it == codes.end() ? nullptr : &*it;
}

// Relative to the work directory where it lies below, which in CI is the root of the repository.
std::string RelativePath(const std::string& file) {
  const std::filesystem::path path(file);
  if (!path.is_absolute()) return path.lexically_normal().string();
  std::error_code error;
  const auto here = std::filesystem::current_path(error);
  if (error) return file;
  const std::string relative = path.lexically_relative(here).string();
  return relative.empty() || relative.starts_with("..") ? file : relative;
}

std::string Fingerprint(const Remark& remark) {
  const std::string text = fmt::format("{}\n{}\n{}", remark.code, RelativePath(remark.span.file), remark.identity);
  return policy::TextDigest(text).value_or("").substr(0, 32);
}

std::string Uri(const std::string& file) {
  const std::string path = RelativePath(file);
  std::string out = path.starts_with('/') ? "file://" : "";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::string_view("-._~/").find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", byte);
    }
  }
  return out;
}

nlohmann::json Location(const SourceSpan& span) {
  nlohmann::json physical{{"artifactLocation", {{"uri", Uri(span.file)}}}};
  if (!RelativePath(span.file).starts_with('/')) physical["artifactLocation"]["uriBaseId"] = "%SRCROOT%";
  if (span.line != 0) {
    physical["region"] = {{"startLine", span.line}};
    if (span.column != 0) {
      physical["region"]["startColumn"] = span.column;
      if (span.length != 0) physical["region"]["endColumn"] = span.column + span.length;
    }
  }
  return {{"physicalLocation", std::move(physical)}};
}

std::string LongMessage(const Remark& remark) {
  std::string text = Printable(remark.message);
  for (const auto& [name, value] : remark.details) text += fmt::format("\n{}: {}", name, Printable(value));
  return text;
}

nlohmann::json SarifResult(const Remark& remark, const std::vector<std::string>& ids) {
  const std::string id = "sluice/" + remark.code;
  nlohmann::json result{
      {"ruleId", id},
      {"level", SeverityText(remark.severity)},
      {"message", {{"text", LongMessage(remark)}}},
      {"locations", nlohmann::json::array({Location(remark.span)})},
      {"partialFingerprints", {{"sluiceFinding/v1", Fingerprint(remark)}}},
  };
  if (const auto it = std::ranges::find(ids, id); it != ids.end()) result["ruleIndex"] = it - ids.begin();
  for (const auto& [name, span] : remark.related) {
    nlohmann::json location = Location(span);
    location["id"] = result["relatedLocations"].size();
    location["message"] = {{"text", name}};
    result["relatedLocations"].push_back(std::move(location));
  }
  for (const auto& [name, value] : remark.details) result["properties"][name] = Printable(value);
  return result;
}

// Percent-escapes of GitHub's workflow commands.
std::string EscapeCommand(std::string_view text, std::string_view also) {
  std::string out;
  for (const char c : text) {
    if (c == '%' || c == '\r' || c == '\n' || also.find(c) != std::string_view::npos) {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out;
}

// Policy text as Markdown's code, whatever it holds.
std::string CodeSpan(std::string_view text) {
  size_t longest = 0;
  size_t run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  const std::string_view pad = longest > 0 ? " " : "";
  return fmt::format("{}{}{}{}{}", fence, pad, Printable(text), pad, fence);
}

// What messages put in backquotes stays code, the rest cannot become markup. Quoted text with backquotes of its own could end
// the code where it likes: then all of it is code.
std::string Prose(std::string_view text) {
  if (text.find("``") != std::string_view::npos || std::ranges::count(text, '`') % 2 != 0) return CodeSpan(text);
  std::string out;
  bool code = false;
  for (const char c : Printable(text)) {
    if (c == '`') code = !code;
    if (!code && std::string_view("*_<>[]|\\#~&@").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string_view Mark(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "🔴";
    case Severity::kWarning:
      return "🟠";
    case Severity::kNote:
      break;
  }
  return "🔵";
}

bool BeginsWithCode(const Remark& remark) { return remark.message.starts_with(remark.code + ": "); }

// For where the code stands before the message already.
std::string_view WithoutCode(const Remark& remark) {
  return std::string_view(remark.message).substr(BeginsWithCode(remark) ? remark.code.size() + 2 : 0);
}

std::string MarkdownItem(const Remark& remark) {
  std::string text =
      fmt::format("- {} **{}** {} — {}\n", Mark(remark.severity), remark.code,
                  CodeSpan(PlaceText({RelativePath(remark.span.file), remark.span.line, 0, 0})), Prose(WithoutCode(remark)));
  for (const auto& [name, value] : remark.details) text += fmt::format("  - {}: {}\n", name, CodeSpan(value));
  for (const auto& [name, span] : remark.related) text += fmt::format("  - {} {}\n", name, CodeSpan(PlaceText(span)));
  return text;
}

}  // namespace

std::span<const std::string_view> ReportFormatNames() { return kFormats; }

std::optional<ReportFormat> ParseReportFormat(std::string_view name) {
  const auto it = std::ranges::find(kFormats, name);
  if (it == kFormats.end()) return std::nullopt;
  return static_cast<ReportFormat>(it - kFormats.begin());
}

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

std::string PlaceText(const SourceSpan& span) {
  std::string text = span.file;
  if (span.line != 0) text += fmt::format(":{}", span.line);
  if (span.line != 0 && span.column != 0) text += fmt::format(":{}", span.column);
  return text;
}

std::string RemarkText(const Remark& remark, bool color) {
  const char* shade = "";
  if (color)
    shade = remark.severity == Severity::kError ? "\x1b[31m" : remark.severity == Severity::kWarning ? "\x1b[33m" : "\x1b[36m";
  const char* bold = color ? "\x1b[1m" : "";
  const char* off = color ? "\x1b[0m" : "";
  std::string text =
      fmt::format("{}{}:{} {}{}:{} {}{}\n", bold, Printable(PlaceText(remark.span)), off, shade, SeverityText(remark.severity),
                  off, Printable(remark.message), BeginsWithCode(remark) ? "" : fmt::format(" [{}]", remark.code));
  size_t width = 0;
  for (const auto& [name, value] : remark.details) width = std::max(width, name.size());
  for (const auto& [name, value] : remark.details) text += fmt::format("    {:<{}}  {}\n", name, width, Printable(value));
  for (const auto& [name, span] : remark.related) text += fmt::format("    {} {}\n", name, Printable(PlaceText(span)));
  return text;
}

std::string SarifLog(std::span<const Remark> remarks, std::span<const CodeInfo> codes) {
  std::set<std::string> used;
  for (const Remark& remark : remarks) used.insert(remark.code);
  nlohmann::json rules = nlohmann::json::array();
  std::vector<std::string> ids;
  for (const std::string& code : used) {
    ids.push_back("sluice/" + code);
    nlohmann::json rule{{"id", ids.back()}};
    if (const CodeInfo* info = FindCode(codes, code); info != nullptr) {
      rule["shortDescription"] = {{"text", info->title}};
      rule["fullDescription"] = {{"text", info->help}};
      rule["help"] = {{"text", info->help}};
    }
    rules.push_back(std::move(rule));
  }
  nlohmann::json results = nlohmann::json::array();
  for (const Remark& remark : remarks) results.push_back(SarifResult(remark, ids));
  const nlohmann::json driver{
      {"name", "sluice"}, {"version", SLUICE_VERSION}, {"semanticVersion", SLUICE_VERSION}, {"rules", rules}};
  const nlohmann::json run{
      {"tool", {{"driver", driver}}},
      {"columnKind", "unicodeCodePoints"},
      {"originalUriBaseIds", {{"%SRCROOT%", {{"description", {{"text", "the folder that sluice ran in"}}}}}}},
      {"results", std::move(results)}};
  const nlohmann::json log{
      {"$schema", "https://json.schemastore.org/sarif-2.1.0.json"}, {"version", "2.1.0"}, {"runs", nlohmann::json::array({run})}};
  return log.dump(2, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string GithubCommands(std::span<const Remark> remarks, std::span<const CodeInfo> codes) {
  std::string text;
  for (const Remark& remark : remarks) {
    const std::string_view command = remark.severity == Severity::kNote ? "notice" : SeverityText(remark.severity);
    std::string properties = fmt::format("file={}", EscapeCommand(Printable(RelativePath(remark.span.file)), ":,"));
    if (remark.span.line != 0) properties += fmt::format(",line={}", remark.span.line);
    if (remark.span.line != 0 && remark.span.column != 0) properties += fmt::format(",col={}", remark.span.column);
    const CodeInfo* info = FindCode(codes, remark.code);
    properties +=
        fmt::format(",title={}", EscapeCommand(fmt::format("sluice: {}", info != nullptr ? info->title : remark.code), ":,"));
    text += fmt::format("::{} {}::{}\n", command, properties, EscapeCommand(LongMessage(remark), ""));
  }
  return text;
}

std::string Markdown(std::string_view heading, std::string_view summary, std::span<const Remark> remarks) {
  std::string text = fmt::format("### {}\n\n{}\n", heading, Prose(summary));
  if (!remarks.empty()) text += "\n";
  size_t shown = 0;
  for (const Remark& remark : remarks) {
    const std::string item = MarkdownItem(remark);
    if (text.size() + item.size() > kMaxMarkdown) break;
    text += item;
    ++shown;
  }
  if (shown < remarks.size()) text += fmt::format("\n… and {} more; run `sluice` for all of them.\n", remarks.size() - shown);
  return text;
}

}  // namespace sluice::app
