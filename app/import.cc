#include "app/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/file.h"
#include "app/standard_output.h"
#include "base/log.h"
#include "base/printable.h"
#include "policy/io/foreign.h"
#include "policy/io/load.h"
#include "policy/io/yaml.h"

namespace sluice::app {
namespace {

Result<policy::Imported> Read(const ImportOptions& options) {
  policy::ForeignOptions foreign;
  foreign.only = options.only;
  if (!options.from.empty()) {
    foreign.kind = policy::ParseImportKind(options.from);
    if (!foreign.kind)
      return Fail(Code::kInvalid,
                  fmt::format("--from: no kind `{}`; there are {}", options.from, fmt::join(policy::ImportWords(), ", ")));
  }
  const bool standard = options.file == "-";
  const auto text = ReadFile(standard ? "/dev/stdin" : options.file, policy::kMaxFileBytes);
  if (!text) return std::unexpected(text.error());
  const std::string name = standard ? "stdin" : options.file;
  auto imported = policy::ReadForeign(*text, name, foreign);
  // A plain list of domains, say, is no document whose shape could tell.
  if (!imported && !foreign.kind && !policy::ParsePolicyTree(*text, name))
    imported.error().message += fmt::format("; where the shape does not tell whose policy it is, `--from KIND` does ({})",
                                            fmt::join(policy::ImportWords(), ", "));
  return imported;
}

nlohmann::json RemarkJson(const policy::ImportRemark& remark) {
  const policy::Finding& finding = remark.finding;
  return {{"code", finding.code},
          {"message", finding.message},
          {"file", finding.span.file},
          {"line", finding.span.line},
          {"column", finding.span.column}};
}

void PrintJson(const policy::Imported& imported, const std::string& native) {
  nlohmann::json out{{"kind", policy::ImportWord(imported.kind)},
                     {"policy", native},
                     {"rules", imported.rules.size()},
                     {"remarks", nlohmann::json::array()}};
  for (const policy::ImportRemark& remark : imported.remarks) out["remarks"].push_back(RemarkJson(remark));
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

int RunImport(const ImportOptions& options) {
  const auto imported = Read(options);
  if (!imported) {
    PrintError(policy::RenderError(imported.error(), StderrHasColor()) + "\n");
    return 2;
  }
  const std::string native = policy::WriteNative(*imported, options.file == "-" ? "stdin" : options.file);
  if (options.format == OutputFormat::kJson) {
    PrintJson(*imported, native);
  } else {
    fmt::print("{}", native);
  }
  if (options.verbosity == Verbosity::kVerbose)
    for (const policy::ImportRemark& remark : imported->remarks) {
      const policy::Finding& f = remark.finding;
      PrintError(
          fmt::format("{}:{}:{}: {} [{}]\n", Printable(f.span.file), f.span.line, f.span.column, Printable(f.message), f.code));
    }
  return 0;
}

}  // namespace sluice::app
