#include "app/commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include "app/explain.h"
#include "app/fmt.h"
#include "app/import.h"
#include "app/lint.h"
#include "app/policy_tests.h"
#include "app/preset.h"
#include "app/prove.h"
#include "app/usage_error.h"
#include "prover/prove.h"

namespace sluice::app {
namespace {

constexpr const char* kLintExamples = R"(
Examples:
  sluice lint policy.yaml
  sluice lint --fail-on warning policies/
  sluice lint --format sarif policies/ > sluice.sarif

`# sluice:ignore CODE reason` on a rule leaves that remark out. docs/lint.md has a line for each code.

Exit code: 0 clean or below --fail-on, 1 a finding of that severity, 2 a file that does not load.)";

constexpr const char* kExplainExamples = R"(
Examples:
  sluice explain policy.yaml 'POST https://api.github.com/repos/octo/hello/issues'
  sluice explain policy.yaml 'git fetch-pack github.com/octo/hello' --by /usr/bin/git
  sluice explain policy.yaml 'connect db.internal:5432' --ip 10.1.0.7
  sluice explain policy.yaml 'graphql mutation api.github.com/graphql' --field addStar
  sluice explain policy.yaml 'mcp tools/call mcp.example/mcp' --tool search_code
  sluice explain policy.yaml 'git receive-pack github.com/octo/hello' --ref refs/heads/main
  sluice explain policy.yaml 'dns api.github.com'

Exit code: 0 allowed, 1 denied, 2 bad input.)";

constexpr const char* kPresetExamples = R"(
Examples:
  sluice preset list
  sluice preset show npm
  sluice preset show npm@1 --set host=registry.corp.example)";

constexpr const char* kImportExamples = R"(
Examples:
  sluice import openshell.yaml > policy.yaml
  sluice import --from gh-aw-firewall domains.txt
  sluice import --only payments smokescreen.yaml

Every other command but fmt, which writes native ones alone, reads these files as they are. Exit code: 0 printed, 2 something in the file cannot be kept.)";

constexpr const char* kProveExamples = R"(
Examples:
  sluice prove old.yaml new.yaml
  sluice prove --base-git origin/main policy.yaml
  sluice prove --base-git origin/main --format sarif policies/ > sluice.sarif
  sluice prove --never 'POST api.github.com/**' policy.yaml
  sluice prove --accept accepted.yaml old/ new/

A gain is what the new policy lets out and the old one does not; its witness is one such request, the shortest found. A loss
is the other way round. Two folders are compared file by file, by relative path; a new file counts against an empty policy.
With one FILE and no base, its assertions alone are checked: its own `assert:` list, --never and --always.

Exit code: 0 equal or narrowed, 1 widened, incomparable or an assertion broken, 2 bad input, 3 unknown: a bound was
reached before there was an answer, which is no pass.)";

constexpr const char* kFmtExamples = R"(
Examples:
  sluice fmt policy.yaml
  sluice fmt --check policies/
  sluice fmt - < policy.yaml

Prints the files that it changed. Exit code: 0 done, 1 --check and some file would change, 2 a file is no policy.)";

constexpr const char* kTestExamples = R"(
Examples:
  sluice test policy.test.yaml
  sluice test --min-coverage 80 policies/

A test file names its policy and asks questions of it, as `explain` takes them:
  version: 1
  policy: policy.yaml
  tests:
    - allow: GET https://api.github.com/repos/octo/hello
    - deny: POST https://api.github.com/repos/octo/hello
      by: /usr/bin/node
      reason: method

Exit code: 0 all passed, 1 a test failed or too few rules are covered, 2 a file cannot be read.)";

void AddFormat(CLI::App* sub, OutputFormat* format) {
  sub->add_option_function<std::string>(
         "--format", [format](const std::string& word) { *format = word == "json" ? OutputFormat::kJson : OutputFormat::kText; },
         "text (default) or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("FORMAT");
}

void AddReportFormat(CLI::App* sub, ReportFormat* format) {
  const auto names = ReportFormatNames();
  sub->add_option_function<std::string>(
         "--format", [format](const std::string& word) { *format = *ParseReportFormat(word); },
         "text (default), json, sarif, github or markdown")
      ->check(CLI::IsMember(std::vector<std::string>(names.begin(), names.end())))
      ->type_name("FORMAT");
}

CLI::App* AddLint(CLI::App& app, LintOptions* lint) {
  CLI::App* sub = app.add_subcommand("lint", "Check policy files");
  sub->footer(kLintExamples);
  sub->add_option("files", lint->files, "Policy files, or folders of them")->required()->type_name("FILE");
  static constexpr std::string_view kSeverities[] = {"note", "warning", "error", "never"};
  sub->add_option_function<std::string>(
         "--fail-on",
         [lint](const std::string& word) {
           const auto* const it = std::ranges::find(kSeverities, word);
           const auto rank = it - std::begin(kSeverities);
           lint->fail_on = rank == 3 ? std::nullopt : std::optional(static_cast<Severity>(rank));
         },
         "Exit 1 from this severity on: note, warning, error (default) or never")
      ->check(CLI::IsMember({"note", "warning", "error", "never"}))
      ->type_name("SEVERITY");
  AddReportFormat(sub, &lint->format);
  return sub;
}

CLI::App* AddExplain(CLI::App& app, ExplainOptions* explain) {
  CLI::App* sub = app.add_subcommand("explain", "Say what a policy answers to one request, and why");
  sub->footer(kExplainExamples);
  sub->add_option("file", explain->file, "Policy file")->required()->type_name("FILE");
  sub->add_option("request", explain->question,
                  "What is asked: 'METHOD URL', 'git fetch-pack HOST/REPO', 'graphql KIND HOST/PATH', 'mcp METHOD HOST/PATH', "
                  "'jsonrpc METHOD HOST/PATH', 'ws URL', 'grpc HOST CALL', 'connect HOST:PORT', the same with tcp, tls or udp, "
                  "'dns NAME', 'unix PATH'")
      ->required()
      ->type_name("REQUEST");
  sub->add_option("--by", explain->by, "Executable that asks")->type_name("EXE");
  sub->add_option("--under", explain->under, "Executable of an ancestor of it, repeatable")->type_name("EXE");
  sub->add_option("--ip", explain->ip, "Address the name resolves to")->type_name("ADDRESS");
  sub->add_option("--header", explain->headers, "Header field of the request, repeatable")->type_name("'NAME: VALUE'");
  sub->add_option("--field", explain->body.fields, "Root field of a graphql question, repeatable")->type_name("NAME");
  sub->add_option("--operation", explain->body.operation, "Name of its operation")->type_name("NAME");
  sub->add_option("--tool", explain->body.tool, "Tool of `mcp tools/call`")->type_name("NAME");
  sub->add_option("--ref", explain->body.refs, "Ref of a push, in full, repeatable")->type_name("REF");
  sub->add_option("--ref-change", explain->body.ref_change, "How it changes: create, update (default) or delete")
      ->check(CLI::IsMember({"create", "update", "delete"}))
      ->type_name("CHANGE");
  sub->add_option("--json", explain->json, "Value in a JSON body or message, repeatable")->type_name("POINTER=VALUE");
  sub->add_option("--body", explain->body_file, "Body of the request as it is sent")->type_name("FILE");
  sub->add_option("--content-type", explain->content_type, "Type of that body (default: application/json)")->type_name("TYPE");
  sub->add_option("--at", explain->at, "Time of asking, RFC 3339 (default: now)")->type_name("TIME");
  AddFormat(sub, &explain->format);
  return sub;
}

/// `preset list` and `preset show`.
struct PresetCommands {
  CLI::App* list = nullptr;
  CLI::App* show = nullptr;
  OutputFormat list_format = OutputFormat::kText;
  PresetShowOptions options{};
};

void AddPreset(CLI::App& app, PresetCommands* preset) {
  CLI::App* sub = app.add_subcommand("preset", "Name the presets that ship, and show the rules of one");
  sub->require_subcommand(1);
  sub->footer(kPresetExamples);
  preset->list = sub->add_subcommand("list", "Name every preset and version");
  AddFormat(preset->list, &preset->list_format);
  preset->show = sub->add_subcommand("show", "Print a preset's parameters, rules and notes");
  preset->show->add_option("name", preset->options.name, "npm for the newest version, or npm@1")
      ->required()
      ->type_name("NAME[@V]");
  preset->show->add_option("--set", preset->options.sets, "Give a parameter its value; repeatable")
      ->type_name("PARAMETER=VALUE")
      ->allow_extra_args(false);
  AddFormat(preset->show, &preset->options.format);
}

CLI::App* AddImport(CLI::App& app, ImportOptions* import) {
  CLI::App* sub = app.add_subcommand("import", "Print another tool's policy as a native one, with remarks");
  sub->footer(kImportExamples);
  sub->add_option("file", import->file, "File, or - for standard input")->required()->type_name("FILE");
  sub->add_option("--from", import->from,
                  "openshell, sandbox-runtime, opensandbox, gh-aw-firewall, harden-runner, smokescreen or cilium (default: told "
                  "by the shape)")
      ->type_name("KIND");
  sub->add_option("--only", import->only, "The service or job, where the file holds several")->type_name("NAME");
  AddFormat(sub, &import->format);
  sub->add_flag_callback(
      "-v,--verbose", [import] { import->verbosity = Verbosity::kVerbose; }, "Print the remarks on standard error too");
  return sub;
}

CLI::App* AddProve(CLI::App& app, ProveOptions* prove) {
  CLI::App* sub = app.add_subcommand("prove", "Say what a policy change lets out, with witnesses");
  sub->footer(kProveExamples);
  sub->add_option("paths", prove->paths, "BASE and HEAD, files or folders; or the heads alone")->required()->type_name("FILE");
  sub->add_option("--base-git", prove->base_git, "Read each FILE's base from this revision, and prove what includes it as well")
      ->type_name("REV");
  sub->add_option("--never", prove->never, "Nothing of this may be reached; repeatable")
      ->type_name("RULE")
      ->allow_extra_args(false);
  sub->add_option("--always", prove->always, "All of this must be reached; repeatable")
      ->type_name("RULE")
      ->allow_extra_args(false);
  sub->add_option("--accept", prove->accept, "A list of accepted regions, each with owner, reason and expiry (docs/ci.md)")
      ->type_name("FILE");
  sub->add_option("--exe-manifest", prove->manifest,
                  "The executables that exist where the policy runs, a path or LINK -> PATH a line")
      ->type_name("FILE");
  sub->add_option("--at", prove->at, "Compare from this time on, RFC 3339 (default: now)")->type_name("TIME");
  sub->add_option("--limit", prove->limit,
                  "Steps of work before the answer is unknown (default: " + std::to_string(prover::Options{}.limit) + ")")
      ->check(CheckNumber)
      ->check([](const std::string& steps) { return steps == "0" ? "an answer takes one step at least" : ""; })
      ->type_name("STEPS");
  AddReportFormat(sub, &prove->format);
  return sub;
}

CLI::App* AddFmt(CLI::App& app, FmtOptions* fmt) {
  CLI::App* sub = app.add_subcommand("fmt", "Rewrite policy files in their canonical form");
  sub->footer(kFmtExamples);
  sub->add_option("files", fmt->files, "Policy files or folders; - is standard input")->required()->type_name("FILE");
  auto* check = sub->add_flag_callback(
      "--check", [fmt] { fmt->action = FormatAction::kCheck; }, "Change nothing; name the files that would change");
  sub->add_flag_callback(
         "--stdout", [fmt] { fmt->action = FormatAction::kPrint; }, "Print the result instead of writing it")
      ->excludes(check);
  return sub;
}

CLI::App* AddTest(CLI::App& app, TestOptions* test) {
  CLI::App* sub = app.add_subcommand("test", "Run unit tests of policies");
  sub->footer(kTestExamples);
  sub->add_option("files", test->files, "Test files, or folders with *.test.yaml")->required()->type_name("FILE");
  sub->add_option("--min-coverage", test->min_coverage, "Fail when fewer of a policy's rules decided a test, in percent")
      ->check(CheckNumber)
      ->check(CLI::Range(0, 100))
      ->type_name("PERCENT");
  AddFormat(sub, &test->format);
  return sub;
}

// Options that live as long as the command.
template <class Options, class Add, class Run>
Command Make(CLI::App& app, Add add, Run run) {
  auto options = std::make_shared<Options>();
  const CLI::App* sub = add(app, options.get());
  return {sub, [options, run] { return run(*options); }};
}

}  // namespace

std::vector<Command> AddPolicyCommands(CLI::App& app) {
  std::vector<Command> commands{
      Make<LintOptions>(app, AddLint, RunLint),
      Make<ProveOptions>(app, AddProve, RunProve),
      Make<ExplainOptions>(app, AddExplain, RunExplain),
      Make<TestOptions>(app, AddTest, RunTest),
      Make<FmtOptions>(app, AddFmt, RunFmt),
      Make<ImportOptions>(app, AddImport, RunImport),
  };
  auto preset = std::make_shared<PresetCommands>();
  AddPreset(app, preset.get());
  commands.push_back({preset->list, [preset] { return RunPresetList(preset->list_format); }});
  commands.push_back({preset->show, [preset] { return RunPresetShow(preset->options); }});
  return commands;
}

}  // namespace sluice::app
