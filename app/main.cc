// The `sluice` program: flags into option structs, nothing more.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "app/administration.h"
#include "app/commands.h"
#include "app/completion.h"
#include "app/doctor/io/doctor.h"
#include "app/exit_code.h"
#include "app/proxy.h"
#include "app/run.h"
#include "app/sidecar.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/stderr_lines.h"
#include "supervisor/io/standard_streams.h"

namespace {

using sluice::app::ProxyOptions;
using sluice::app::RunOptions;
using sluice::app::ServedOptions;
using sluice::app::SidecarOptions;

constexpr const char* kAbout =
    "sluice: an egress policy proxy. A workload runs with no network of its own; what it reaches is what the policy says.";

constexpr const char* kRunExamples = R"(
Examples:
  sluice run --policy policy.yaml -- make test
  sluice run --allow 'GET api.github.com/repos/**' --allow 'git fetch-pack github.com/octo/*' -- ./agent
  sluice run --preset npm@1:host=registry.corp.example -- npm ci
  sluice run --policy policy.yaml --audit audit.jsonl --name ci-42 --label job=build --fail-on-deny -- npm ci

Exit code: the command's own (128 + N when signal N ended it); 2 bad input, 3 --fail-on-deny and something was denied,
4 this machine lacks a needed feature, 5 the supervisor failed, 126 and 127 as a shell.
SIGHUP or a change of the policy file reloads it.)";

constexpr const char* kProxyExamples = R"(
Examples:
  sluice proxy --listen 127.0.0.1:3128 --policy policy.yaml --ca-out ca.pem
  sluice proxy --listen 127.0.0.1:0 --allow 'GET api.github.com/**' --ca-out ca.pem --bundle-out bundle.pem --print-env
  sluice proxy --listen unix:/run/sluice.sock --listen 10.0.0.1:3128 --tokens tokens --policy policy.yaml
  sluice proxy --listen 0.0.0.0:3128 --listen-tls-cert cert.pem --listen-tls-key key.pem --client-ca clients.pem -p policy.yaml

A line of the token file: NAME sha256:HASH [KEY=VALUE...], the hash as `printf %s "$TOKEN" | sha256sum` prints it; the token is
random (openssl rand -hex 32). Clients send it as the password of NAME, or as Bearer.

Exit code: 0 after SIGTERM or SIGINT; 2 bad input, 4 this machine lacks a needed feature, 5 the proxy failed.
SIGHUP or a change of the policy file reloads it, and SIGHUP the tokens.)";

constexpr const char* kSidecarExamples = R"(
Examples:
  sluice sidecar --policy policy.yaml --ca-out /shared/ca.pem
  sluice sidecar --policy policy.yaml --resolver 10.96.0.10 --stub-domain cluster.local=10.96.0.10 --no-inbound
  sluice sidecar --policy policy.yaml --dry-run

Fences every other process of the network namespace it runs in: names by its resolver, TCP by its proxy, the rest dropped. Needs
CAP_NET_ADMIN. The fence stays, shut, when the sidecar ends; `nft delete table inet sluice; nft delete table netdev sluice_egress`
takes it away.

Exit code: 0 after SIGTERM or SIGINT; 2 bad input, 4 this machine lacks a needed feature, 5 the sidecar failed.
SIGHUP or a change of the policy file reloads it.)";

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

void AddVia(CLI::App* sub, sluice::app::ViaFlags* via) {
  CLI::Option* url = sub->add_option("--via", via->url,
                                     "Upstream proxy for what the policy names none for: http://, https:// or socks5://HOST:PORT")
                         ->type_name("URL");
  sub->add_option("--via-auth", via->auth, "What that proxy is shown, as in 'basic env PROXY_LOGIN' or 'bearer file /run/token'")
      ->type_name("SOURCE")
      ->needs(url);
  sub->add_option("--via-ca", via->ca, "The only roots (PEM) for an https proxy")->type_name("FILE")->needs(url);
  sub->add_option("--via-except", via->except, "Reached without that proxy: a name, .suffix, prefix or host:port; repeatable")
      ->type_name("HOST")
      ->allow_extra_args(false)
      ->needs(url);
}

// What `run` and `proxy` have in common.
void AddServed(CLI::App* sub, ServedOptions* served, const char* default_name) {
  sub->add_option("-p,--policy", served->policy, "Policy file")->type_name("FILE");
  sub->add_option("-a,--allow", served->allows, "One more allow rule, as in a policy file; repeatable")
      ->type_name("RULE")
      ->allow_extra_args(false);
  sub->add_option("--preset", served->presets, "The rules of a preset, the newest version unless one is named; repeatable")
      ->type_name("NAME[@V][:PARAMETER=VALUE,...]")
      ->allow_extra_args(false);
  sub->add_option("--audit", served->audit, "Append one JSON line per decision and exchange to FILE")->type_name("FILE");
  sub->add_option("--resolver", served->resolvers, "Upstream DNS server; repeatable (default: the host's)")
      ->type_name("[tls://]IP[:PORT][#NAME]")
      ->allow_extra_args(false);
  sub->add_option("--stub-domain", served->stub_domains, "Servers of its own for a domain and all below it; repeatable")
      ->type_name("DOMAIN=SERVER[,SERVER...]")
      ->allow_extra_args(false);
  sub->add_option("--upstream-ca", served->upstream_ca, "Trust these roots (PEM) for upstreams, beside the system's; repeatable")
      ->type_name("FILE")
      ->allow_extra_args(false);
  CLI::Option* ca_cert =
      sub->add_option("--ca-cert", served->ca_cert, "Inspect with this authority (PEM) instead of one made at start")
          ->type_name("FILE");
  CLI::Option* ca_key = sub->add_option("--ca-key", served->ca_key, "Its key (PEM, no password)")->type_name("FILE");
  ca_cert->needs(ca_key);
  ca_key->needs(ca_cert);
  AddVia(sub, &served->via);
  sub->add_option("--name", served->name, fmt::format("Sandbox name in records (default: {})", default_name))->type_name("NAME");
  sub->add_option("-l,--label", served->labels, "Label in every record; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  sub->add_flag("-q,--quiet", served->quiet, "Print denials and errors only");
}

CLI::App* AddRun(CLI::App& app, RunOptions* run, bool* verbose) {
  CLI::App* sub = app.add_subcommand("run", "Run a command under a policy");
  sub->formatter(std::make_shared<RunFormatter>());
  sub->footer(kRunExamples);
  AddServed(sub, run, "the command's");
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
  sub->add_option("--timeout", run->timeout, "Kill the command after this long: 250ms, 30s, 5m, 1h")->type_name("DURATION");
  sub->add_flag("--fail-on-deny", run->fail_on_deny, "Exit 3 if anything was denied, whatever the command returned");
  sub->add_flag("-v,--verbose", *verbose, "Print debugging lines too");
  return sub;
}

CLI::App* AddProxy(CLI::App& app, ProxyOptions* proxy, bool* verbose) {
  CLI::App* sub = app.add_subcommand("proxy", "Serve an explicit HTTP and SOCKS5 proxy under a policy");
  sub->footer(kProxyExamples);
  sub->add_option("--listen", proxy->listen,
                  "Where clients connect: HTTP CONNECT, absolute form and SOCKS5 on one port; repeatable")
      ->type_name("ADDRESS:PORT|unix:/PATH")
      ->allow_extra_args(false);
  AddServed(sub, proxy, "proxy");
  sub->add_option("--ca-out", proxy->ca_out, "Write the authority's certificate (PEM), which clients are to trust, to FILE")
      ->type_name("FILE");
  sub->add_option("--bundle-out", proxy->bundle_out, "Write the system's roots with that certificate behind them to FILE")
      ->type_name("FILE");
  sub->add_flag("--print-env", proxy->print_env, "Print the variables that clients need as shell lines");
  sub->add_option("--tokens", proxy->tokens, "Names and hashed tokens of clients: none is served without one")->type_name("FILE");
  sub->add_option("--listen-tls-cert", proxy->tls_certificate, "Speak TLS to clients, with this certificate chain (PEM)")
      ->type_name("FILE");
  sub->add_option("--listen-tls-key", proxy->tls_key, "Its key (PEM)")->type_name("FILE");
  sub->add_option("--client-ca", proxy->client_ca, "Serve only clients that show a certificate of these authorities (PEM)")
      ->type_name("FILE");
  sub->add_option("--proxy-protocol", proxy->proxy_protocol, "Want a PROXY protocol header (v1 or v2) before each client")
      ->check(CLI::IsMember({"required"}))
      ->type_name("required");
  sub->add_option("--proxy-protocol-from", proxy->proxy_protocol_from,
                  "Whose headers are believed, and who may connect; repeatable")
      ->type_name("CIDR")
      ->allow_extra_args(false);
  sub->add_flag("--allow-open", proxy->allow_open, "Listen beyond this machine without asking clients who they are");
  sub->add_option("--drain", proxy->drain, "At SIGTERM, let open connections end for this long (default: 10s)")
      ->type_name("DURATION");
  sub->add_flag("-v,--verbose", *verbose, "Print debugging lines too");
  return sub;
}

CLI::App* AddSidecar(CLI::App& app, SidecarOptions* sidecar, bool* verbose) {
  CLI::App* sub = app.add_subcommand("sidecar", "Fence every other process of this network namespace");
  sub->footer(kSidecarExamples);
  AddServed(sub, sidecar, "sidecar");
  sluice::app::AddAdmin(sub, &sidecar->admin);
  sub->add_option("--ca-out", sidecar->ca_out, "Write the authority's certificate (PEM), which the workload is to trust, to FILE")
      ->type_name("FILE");
  sub->add_option("--bundle-out", sidecar->bundle_out, "Write the system's roots with that certificate behind them to FILE")
      ->type_name("FILE");
  sub->add_option("--processes", sidecar->processes,
                  "Whether other processes can be told apart, for rules with `by`: auto (default), seen or unseen")
      ->check(CLI::IsMember({"auto", "seen", "unseen"}))
      ->type_name("HOW");
  sub->add_flag("--no-inbound", sidecar->no_inbound, "Drop new connections from outside (probes, too)");
  sub->add_option("--proxy-port", sidecar->proxy_port, "Port of lo that TCP is redirected to (default: the kernel's choice)")
      ->type_name("PORT");
  sub->add_option("--dns-port", sidecar->dns_port, "Port of lo that lookups are redirected to (default: the kernel's choice)")
      ->type_name("PORT");
  sub->add_flag("--dry-run", sidecar->dry_run, "Print the fence's rules as nft(8) reads them, and end");
  sub->add_option("--drain", sidecar->drain, "At SIGTERM, let open connections end for this long (default: 10s)")
      ->type_name("DURATION");
  sub->add_flag("-v,--verbose", *verbose, "Print debugging lines too");
  return sub;
}

// An empty value is most often a variable that was not set, and would be taken for an option that was not given.
void RefuseEmptyValues(CLI::App& app) {
  for (CLI::App* sub : app.get_subcommands({})) {
    for (CLI::Option* option : sub->get_options())
      if (option->get_items_expected_max() > 0)
        option->check([](const std::string& value) { return value.empty() ? "the value is empty" : std::string(); });
    RefuseEmptyValues(*sub);
  }
}

// CLI11 prints usage errors by itself; ours go in one line to standard error, with a pointer to help.
int UsageError(const std::string& message, const std::string& command) {
  fmt::print(stderr, "sluice: {}\nTry: sluice {}--help\n", sluice::Printable(message), command.empty() ? "" : command + " ");
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
  std::string shell;
  bool verbose = false;
  const CLI::App* run_command = AddRun(app, &run, &verbose);
  ProxyOptions proxy;
  const CLI::App* proxy_command = AddProxy(app, &proxy, &verbose);
  SidecarOptions sidecar;
  const CLI::App* sidecar_command = AddSidecar(app, &sidecar, &verbose);
  const auto [health_command, ask_health] = sluice::app::AddHealth(app);
  const auto [doctor_command, examine] = sluice::app::AddDoctor(app);
  const auto commands = sluice::app::AddPolicyCommands(app);
  CLI::App* completion = app.add_subcommand("completion", "Print shell completion");
  completion->footer(kCompletionExamples);
  completion->add_option("shell", shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));

  RefuseEmptyValues(app);

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
  if (proxy_command->parsed()) return sluice::app::RunProxy(proxy);
  if (sidecar_command->parsed()) return sluice::app::RunSidecar(sidecar);
  if (health_command->parsed()) return ask_health();
  if (doctor_command->parsed()) return examine();
  for (const auto& [sub, act] : commands)
    if (sub->parsed()) return act();
  return sluice::app::PrintCompletion(shell);
}

// What was to be written is written; the kernel takes back the rest faster than libraries do. Sanitizers want to look at it.
int Leave(int code) {
  // Longer is not waited: whoever should read the last lines may never do so.
  (void)sluice::FlushStderr(sluice::kLastLines);
  std::fflush(nullptr);
#ifndef SLUICE_SANITIZED
  ::_exit(code);
#endif
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  // First of all: a file opened into 0 to 2 would pass for the workload's own.
  sluice::supervisor::ReserveStandardDescriptors();
  int code = sluice::app::kExitFault;
  try {
    code = Main(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    sluice::LogError("unexpected fault: {}", error.what());
  }
  return Leave(code);
}
