// The `sluice` program: flags into option structs, nothing more.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "app/completion.h"
#include "app/exit_code.h"
#include "app/explain.h"
#include "app/fmt.h"
#include "app/lint.h"
#include "app/prove.h"
#include "app/run.h"
#include "base/log.h"

namespace {

using sluice::app::ExplainOptions;
using sluice::app::FmtOptions;
using sluice::app::LintOptions;
using sluice::app::ProveOptions;
using sluice::app::RunOptions;

constexpr const char* kAbout =
    "sluice: an egress policy proxy. A workload runs with no network of its own; what it reaches is what the policy says.";

constexpr const char* kRunExamples = R"(
Examples:
  sluice run --policy policy.yaml -- make test
  sluice run --allow 'GET api.github.com/repos/**' --allow 'git fetch-pack github.com/octo/*' -- ./agent
  sluice run --policy policy.yaml --audit audit.jsonl --name ci-42 --label job=build --fail-on-deny -- npm ci

Exit code: the command's own (128 + N when signal N ended it); 2 bad input, 3 --fail-on-deny and something was denied,
4 this machine lacks a needed feature, 5 the supervisor failed, 126 and 127 as a shell.
SIGHUP or a change of the policy file reloads it.)";

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
  sluice explain policy.yaml 'dns api.github.com'

Exit code: 0 allowed, 1 denied, 2 bad input.)";

constexpr const char* kProveExamples = R"(
Examples:
  sluice prove old.yaml new.yaml
  sluice prove --base-git origin/main policy.yaml
  sluice prove --base-git origin/main --format sarif policies/ > sluice.sarif
  sluice prove --never 'POST api.github.com/**' policy.yaml
  sluice prove --accept accepted.yaml old/ new/

Two folders are compared file by file, by relative path; a new file counts against an empty policy. With one FILE and no
base, its assertions alone are checked.

Exit code: 0 equal or narrowed, 1 widened, incomparable or an assertion broken, 2 bad input, 3 unknown: a bound was
reached before there was an answer, which is no pass.)";

constexpr const char* kFmtExamples = R"(
Examples:
  sluice fmt policy.yaml
  sluice fmt --check policies/
  sluice fmt - < policy.yaml

Prints the files that it changed. Exit code: 0 done, 1 --check and some file would change, 2 a file is no policy.)";

constexpr const char* kCompletionExamples = R"(
Examples:
  source <(sluice completion bash)
  sluice completion zsh > "${fpath[1]}/_sluice"
  sluice completion fish > ~/.config/fish/completions/sluice.fish)";

// `--` ends sluice's own flags: what follows is the command, whatever it looks like.
std::vector<std::string> SplitCommand(std::vector<std::string>* arguments) {
  for (auto it = arguments->begin(); it != arguments->end(); ++it) {
    if (*it != "--") continue;
    std::vector<std::string> command(it + 1, arguments->end());
    arguments->erase(it, arguments->end());
    return command;
  }
  return {};
}

// The command is no argument of CLI11's, so that it is named here.
class RunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: sluice run [OPTIONS] -- COMMAND [ARGUMENT...]\n";
  }
};

CLI::App* AddRun(CLI::App& app, RunOptions* run, bool* verbose) {
  CLI::App* sub = app.add_subcommand("run", "Run a command under a policy");
  sub->formatter(std::make_shared<RunFormatter>());
  sub->footer(kRunExamples);
  sub->add_option("-p,--policy", run->policy, "Policy file")->type_name("FILE");
  sub->add_option("-a,--allow", run->allows, "One more allow rule, as in a policy file; repeatable")
      ->type_name("RULE")
      ->allow_extra_args(false);
  sub->add_option("--audit", run->audit, "Append one JSON line per decision and exchange to FILE")->type_name("FILE");
  sub->add_option("--resolver", run->resolvers, "Upstream DNS server; repeatable (default: the host's)")
      ->type_name("IP[:PORT]")
      ->allow_extra_args(false);
  sub->add_option("--upstream-ca", run->upstream_ca, "Trust these roots (PEM) for upstreams, beside the system's; repeatable")
      ->type_name("FILE")
      ->allow_extra_args(false);
  sub->add_option("--rw", run->read_write, "A tree the command may write, beside the work directory; repeatable")
      ->type_name("DIR")
      ->allow_extra_args(false);
  sub->add_option("--ro", run->read_only, "A tree the command may read, beside the system's; repeatable")
      ->type_name("DIR")
      ->allow_extra_args(false);
  sub->add_option("-e,--env", run->environment, "Pass a variable the allowlist would drop; repeatable")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false);
  sub->add_option("--cwd", run->cwd, "Work directory (default: the current one)")->type_name("DIR");
  sub->add_option("--name", run->name, "Sandbox name in records (default: the command's)")->type_name("NAME");
  sub->add_option("-l,--label", run->labels, "Label in every record; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  sub->add_option("--timeout", run->timeout, "Kill the command after this long: 250ms, 30s, 5m, 1h")->type_name("DURATION");
  sub->add_flag("--fail-on-deny", run->fail_on_deny, "Exit 3 if anything was denied, whatever the command returned");
  sub->add_flag("-q,--quiet", run->quiet, "Print denials and errors only");
  sub->add_flag("-v,--verbose", *verbose, "Print debugging lines too");
  return sub;
}

void AddFormat(CLI::App* sub, sluice::app::OutputFormat* format) {
  using sluice::app::OutputFormat;
  sub->add_option_function<std::string>(
         "--format", [format](const std::string& word) { *format = word == "json" ? OutputFormat::kJson : OutputFormat::kText; },
         "text (default) or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("FORMAT");
}

void AddReportFormat(CLI::App* sub, sluice::app::ReportFormat* format) {
  const auto names = sluice::app::ReportFormatNames();
  sub->add_option_function<std::string>(
         "--format", [format](const std::string& word) { *format = *sluice::app::ParseReportFormat(word); },
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
           lint->fail_on = rank == 3 ? std::nullopt : std::optional(static_cast<sluice::app::Severity>(rank));
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
                  "What is asked: 'METHOD URL', 'git fetch-pack HOST/REPO', 'connect HOST:PORT', 'dns NAME'")
      ->required()
      ->type_name("REQUEST");
  sub->add_option("--by", explain->by, "Executable that asks")->type_name("EXE");
  sub->add_option("--ip", explain->ip, "Address the name resolves to")->type_name("ADDRESS");
  sub->add_option("--at", explain->at, "Time of asking, RFC 3339 (default: now)")->type_name("TIME");
  AddFormat(sub, &explain->format);
  return sub;
}

CLI::App* AddProve(CLI::App& app, ProveOptions* prove) {
  CLI::App* sub = app.add_subcommand("prove", "Say what a policy change lets out, with witnesses");
  sub->footer(kProveExamples);
  sub->add_option("paths", prove->paths, "BASE and HEAD, files or folders; or the heads alone")->required()->type_name("FILE");
  sub->add_option("--base-git", prove->base_git, "Read each FILE's base from this revision")->type_name("REV");
  sub->add_option("--never", prove->never, "Nothing of this may be reached; repeatable")
      ->type_name("RULE")
      ->allow_extra_args(false);
  sub->add_option("--always", prove->always, "All of this must be reached; repeatable")
      ->type_name("RULE")
      ->allow_extra_args(false);
  sub->add_option("--accept", prove->accept, "Regions accepted before, each with owner, reason and expiry")->type_name("FILE");
  sub->add_option("--exe-manifest", prove->manifest, "The executables that exist where the policy runs")->type_name("FILE");
  sub->add_option("--at", prove->at, "Compare from this time on, RFC 3339 (default: now)")->type_name("TIME");
  sub->add_option("--limit", prove->limit, "Steps of work before the answer is unknown")->type_name("STEPS");
  AddReportFormat(sub, &prove->format);
  return sub;
}

CLI::App* AddFmt(CLI::App& app, FmtOptions* fmt) {
  using sluice::app::FormatAction;
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

// CLI11 prints usage errors by itself; ours go in one line to standard error, with a pointer to help.
int UsageError(const std::string& message, const std::string& command) {
  fmt::print(stderr, "sluice: {}\nTry: sluice {}--help\n", message, command.empty() ? "" : command + " ");
  return sluice::app::kExitBadInput;
}

// What no option takes: a misspelt option says more than its value does.
std::string DescribeExtra(const std::vector<std::string>& extra, bool is_run) {
  const auto option = std::ranges::find_if(extra, [](const std::string& word) { return word.starts_with('-'); });
  if (option != extra.end()) return fmt::format("unknown option `{}`", *option);
  const std::string word = extra.empty() ? "" : extra.front();
  if (is_run) return fmt::format("`{}` is no option; put `--` before the command: sluice run [OPTIONS] -- COMMAND", word);
  return fmt::format("`{}` is one argument too many", word);
}

int Main(std::vector<std::string> arguments) {
  CLI::App app(kAbout, "sluice");
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.require_subcommand(1);
  app.footer("Read more: man sluice, docs/policy-language.md");
  RunOptions run;
  LintOptions lint;
  ExplainOptions explain;
  ProveOptions prove;
  FmtOptions fmt;
  std::string shell;
  bool verbose = false;
  const CLI::App* run_command = AddRun(app, &run, &verbose);
  const CLI::App* lint_command = AddLint(app, &lint);
  const CLI::App* explain_command = AddExplain(app, &explain);
  const CLI::App* prove_command = AddProve(app, &prove);
  const CLI::App* fmt_command = AddFmt(app, &fmt);
  CLI::App* completion = app.add_subcommand("completion", "Print shell completion");
  completion->footer(kCompletionExamples);
  completion->add_option("shell", shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));

  if (!arguments.empty() && arguments.front() == "run") run.command = SplitCommand(&arguments);
  const std::string command = arguments.empty() ? "" : arguments.front();
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
  } catch (const CLI::Success& request) {
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    const bool known = std::ranges::any_of(app.get_subcommands([](const CLI::App*) { return true; }),
                                           [&](const CLI::App* sub) { return sub->get_name() == command; });
    if (!known && !command.empty()) {
      const char* kind = command.starts_with('-') ? "option" : "command";
      return UsageError(fmt::format("unknown {} `{}`", kind, command), "");
    }
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
      return UsageError(DescribeExtra(app.remaining(true), run_command->parsed()), command);
    return UsageError(error.what(), known ? command : "");
  }
  if (verbose) sluice::SetLogLevel(sluice::LogLevel::kDebug);
  if (run_command->parsed()) return sluice::app::Run(run);
  if (lint_command->parsed()) return sluice::app::RunLint(lint);
  if (explain_command->parsed()) return sluice::app::RunExplain(explain);
  if (prove_command->parsed()) return sluice::app::RunProve(prove);
  if (fmt_command->parsed()) return sluice::app::RunFmt(fmt);
  return sluice::app::PrintCompletion(shell);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Main(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    sluice::LogError("unexpected fault: {}", error.what());
    return sluice::app::kExitFault;
  }
}
