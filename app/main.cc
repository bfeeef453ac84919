// The `sluice` program: flags into option structs, nothing more.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "app/administration.h"
#include "app/agent.h"
#include "app/commands.h"
#include "app/completion.h"
#include "app/doctor/io/doctor.h"
#include "app/exit_code.h"
#include "app/late_libraries.h"
#include "app/oci_seccomp.h"
#include "app/proxy.h"
#include "app/run.h"
#include "app/sidecar.h"
#include "app/standard_output.h"
#include "app/usage_error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/stderr_lines.h"
#include "supervisor/io/standard_streams.h"

namespace {

using sluice::app::AgentOptions;
using sluice::app::CheckNumber;
using sluice::app::OciSeccompOptions;
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
  sluice run --spec launch.json
  sluice run -p policy.yaml --workspace /srv/job-7 --timeout 10m --max-memory 2GiB --result result.json --transcript out.txt -- make
  sluice run -p policy.yaml --publish 127.0.0.1:8080:8080 -- python3 -m http.server 8080

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
takes it away. Where nothing names a policy it is /etc/sluice/policy.yaml.

Exit code: 0 after SIGTERM or SIGINT; 2 bad input, 4 this machine lacks a needed feature, 5 the sidecar failed.
SIGHUP or a change of the policy file reloads it.)";

constexpr const char* kAgentExamples = R"(
Examples:
  sluice agent --listen /run/sluice/agent.sock --policy policy.yaml --ca-out /run/sluice/ca.pem
  sluice agent --listen /run/sluice/agent.sock --policy-dir /etc/sluice/policies --audit /var/log/sluice.jsonl
  sluice agent --listen "$XDG_RUNTIME_DIR/sluice.sock" --policy policy.yaml --on-restart freeze

Supervises containers whose seccomp profile names that socket (sluice oci-seccomp prints one) and whose network namespace has lo
alone. A container's program starts once it is supervised, and not at all when it cannot be. docs/containers.md has the rest.

Exit code: 0 after SIGTERM or SIGINT, which end the containers too; 2 bad input, 4 this machine lacks a needed feature, 5 the agent
failed. SIGHUP or a change of a policy file reloads it.)";

constexpr const char* kOciSeccompExamples = R"(
Examples:
  sluice oci-seccomp > seccomp.json                                  # linux.seccomp of config.json: runc, crun, containerd
  sluice oci-seccomp --form docker --agent /run/sluice/agent.sock    # a file for Docker, Podman and CRI-O
  sluice oci-seccomp --form docker --base /usr/share/containers/seccomp.json
  jq --slurpfile s seccomp.json '.linux.seccomp = $s[0]' config.json)";

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

// What the commands that serve a policy have in common.
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
  sub->add_flag("--mirror-certificates", served->mirror_certificates,
                "Show clients the subject and the covering names of the upstream's certificate, which is met first");
  AddVia(sub, &served->via);
  sub->add_option("--name", served->name, fmt::format("Sandbox name in records (default: {})", default_name))->type_name("NAME");
  sub->add_option("-l,--label", served->labels, "Label in every record; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  sub->add_flag("-q,--quiet", served->quiet, "Print denials, warnings and errors only");
}

void AddEnvironment(CLI::App* sub, RunOptions* run) {
  sub->add_option("-e,--env", run->environment,
                  "Pass a variable the allowlist would drop, unless it looks like a credential; repeatable")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false);
  sub->add_option("--unsafe-env", run->unsafe_environment, "Pass one even if it looks like a credential; repeatable")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false);
  sub->add_option("--env-inherit", run->environment_inherit, "What is passed unasked: usual (default) or none")
      ->check(CLI::IsMember({"usual", "none"}))
      ->type_name("WHAT");
}

// What launchers ask for: limits, what is written down, and what becomes of a run without its launcher.
void AddContract(CLI::App* sub, RunOptions* run) {
  sub->add_option("--spec", run->spec,
                  "Read the launch from this JSON file, - is standard input; flags win over it (docs/launch.md)")
      ->type_name("FILE");
  sub->add_option("--timeout", run->timeout, "Kill the command after this long: 250ms, 30s, 5m, 1h")->type_name("DURATION");
  sub->add_option("--max-memory", run->memory, "What the run may use: 512MiB, 2GiB")->type_name("OCTETS");
  sub->add_option("--max-processes", run->processes, "How many processes and threads there may be")->type_name("COUNT");
  sub->add_option("--max-open-files", run->open_files, "How many descriptors each process may have")->type_name("COUNT");
  sub->add_option("--max-output", run->output_limit, "Kill the command when it has written this much: 64MiB")
      ->type_name("OCTETS");
  sub->add_option("--publish", run->publish, "Lead a port of this machine to one of the sandbox's loopback; repeatable")
      ->type_name("[ADDRESS:]PORT:PORT")
      ->allow_extra_args(false);
  sub->add_option("--transcript", run->transcript, "Write what the command prints to FILE too")->type_name("FILE");
  sub->add_option("--result", run->result, "Write what the run came to as JSON to FILE or descriptor N")->type_name("FILE|fd:N");
  sub->add_option("--lifeline", run->lifeline, "Descriptor whose other end the launcher holds: its end is a disconnect")
      ->check(CheckNumber)
      ->type_name("FD");
  sub->add_option("--on-disconnect", run->on_disconnect, "Then kill (default) or freeze the run")
      ->check(CLI::IsMember({"kill", "freeze"}))
      ->type_name("WHAT");
  sub->add_flag_callback("--pid-namespace", [] {}, "A process namespace of its own: always so, and accepted for clearness");
  sub->add_flag("--allow-user-namespaces", run->allow_user_namespaces,
                "Let the command make user, process and network namespaces of its own");
  sub->add_flag("--allow-containers", run->allow_containers,
                "Let the command run containers of its own: namespaces of any kind, with mounts; not for root");
  sub->add_flag("--allow-nested", run->allow_nested,
                "Serve `sluice run` in the sandbox, under policies that only narrow this one");
  // For those runs alone.
  sub->add_flag("--nested", run->nested)->group("");
  sub->add_option("--records-fd", run->records_fd)->group("");
  sub->add_option("--rations-fd", run->rations_fd)->group("");
  sub->add_option("--outer-names", run->outer_names)->group("");
  sub->add_option("--protect", run->protect)->group("")->allow_extra_args(false);
  sub->add_option("--hide", run->hide)->group("")->allow_extra_args(false);
}

CLI::App* AddRun(CLI::App& app, RunOptions* run) {
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
  AddEnvironment(sub, run);
  sub->add_option("--workspace", run->workspace, "A prepared folder: the command may write it, and starts there")
      ->type_name("DIR");
  sub->add_option("--cwd", run->cwd, "Work directory (default: the workspace, or the current one)")->type_name("DIR");
  AddContract(sub, run);
  sub->add_option("--control", run->control,
                  "Serve status, policy, decisions, hold and stop here, to this user alone; repeatable")
      ->type_name("PATH")
      ->allow_extra_args(false);
  sub->add_flag("--await-hold", run->await_hold, "Start the command once somebody holds the run (GET /v1/hold)");
  sub->add_option("--policy-fd", run->policy_fd, "Read the policy from this descriptor instead")
      ->check(CheckNumber)
      ->type_name("N")
      ->excludes("--policy", "--allow", "--preset");
  // Taken over at once, so that what is wrong with the other options is told there as well.
  sub->add_option_function<int>(
         "--log-fd",
         [run](int fd) {
           run->log_fd = fd;
           if (auto sent = sluice::SendLinesTo(fd); !sent) throw CLI::ValidationError("--log-fd", sent.error().message);
         },
         "Write Sluice's own lines to this descriptor instead of standard error")
      ->check(CheckNumber)
      ->type_name("N")
      ->trigger_on_parse();
  sub->add_flag("--fail-on-deny", run->fail_on_deny, "Exit 3 if anything was denied, whatever the command returned");
  sub->add_flag("--kill-on-deny", run->kill_on_deny, "Kill the run at its first denial");
  sub->add_flag("-v,--verbose", run->verbose, "Print debugging lines too");
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
  sub->add_flag("--host-network", sidecar->host_network,
                "Fence a machine's own network, every process of it, which is refused otherwise");
  sub->add_flag("--unsafe-workload-rights", sidecar->unsafe_workload_rights,
                "Be ready though a workload is seen that holds a capability which leads past the fence");
  sub->add_option("--proxy-port", sidecar->proxy_port, "Port of lo that TCP is redirected to (default: the kernel's choice)")
      ->check(CheckNumber)
      ->type_name("PORT");
  sub->add_option("--dns-port", sidecar->dns_port, "Port of lo that lookups are redirected to (default: the kernel's choice)")
      ->check(CheckNumber)
      ->type_name("PORT");
  sub->add_flag("--dry-run", sidecar->dry_run, "Print the fence's rules as nft(8) reads them, and end");
  sub->add_option("--drain", sidecar->drain, "At SIGTERM, let open connections end for this long (default: 10s)")
      ->type_name("DURATION");
  sub->add_flag("-v,--verbose", *verbose, "Print debugging lines too");
  return sub;
}

CLI::App* AddAgent(CLI::App& app, AgentOptions* agent, bool* verbose) {
  CLI::App* sub = app.add_subcommand("agent", "Supervise the containers of runtimes, as their seccomp agent");
  sub->footer(kAgentExamples);
  sub->add_option("--listen", agent->listen, "Socket that runtimes connect to")->type_name("PATH");
  AddServed(sub, agent, "the container's");
  sub->add_option("--policy-dir", agent->policy_dir, "Policies to choose from, by annotation or by the file `select` there")
      ->type_name("DIR");
  sub->add_option("--on-restart", agent->on_restart,
                  "What becomes of containers that have lost their supervisor: kill (default) or freeze")
      ->check(CLI::IsMember({"kill", "freeze"}))
      ->type_name("HOW");
  sub->add_option("--ca-out", agent->ca_out, "Write the authority's certificate (PEM), which containers are to trust, to FILE")
      ->type_name("FILE");
  sub->add_option("--bundle-out", agent->bundle_out, "Write the system's roots with that certificate behind them to FILE")
      ->type_name("FILE");
  sub->add_option("--peer", agent->peers, "User whose runtimes are served, beside root and this one; repeatable")
      ->check(CheckNumber)
      ->type_name("UID")
      ->allow_extra_args(false);
  sub->add_option("--annotation", agent->annotations, "Annotation of a container that records show; repeatable")
      ->type_name("KEY")
      ->allow_extra_args(false);
  sub->add_option("--state-dir", agent->state_dir,
                  "Where running containers are recorded (default: /run/sluice-agent, or below $XDG_RUNTIME_DIR)")
      ->type_name("DIR");
  sub->add_flag("-v,--verbose", *verbose, "Print debugging lines too");
  return sub;
}

CLI::App* AddOciSeccomp(CLI::App& app, OciSeccompOptions* profile) {
  CLI::App* sub = app.add_subcommand("oci-seccomp", "Print the seccomp profile that hands containers to the agent");
  sub->footer(kOciSeccompExamples);
  sub->add_option("--agent", profile->agent, "The agent's socket (default: /run/sluice/agent.sock)")->type_name("PATH");
  sub->add_option("--form", profile->form, "config (default): linux.seccomp of config.json; docker: Docker, Podman, CRI-O")
      ->check(CLI::IsMember({"config", "docker"}))
      ->type_name("FORM");
  sub->add_option("--metadata", profile->metadata, "Text that the agent gets with each container: policy=NAME chooses one")
      ->type_name("TEXT");
  sub->add_flag(
      "--wait-killable", profile->wait_killable,
      "No handled signal interrupts a call that the agent has taken; for runtimes that take filter flags (not runc 1.1)");
  sub->add_option("--base", profile->base, "A profile that lists what is allowed: what it refuses stays refused")
      ->type_name("FILE");
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
  sluice::QueueStderr(sluice::LineKind::kLog, fmt::format("sluice: {}\nTry: sluice {}--help\n", sluice::Printable(message),
                                                          command.empty() ? "" : command + " "));
  return sluice::app::kExitBadInput;
}

// Every command but `run`, and the options that they fill.
class OtherCommands {
 public:
  OtherCommands(CLI::App& app, bool* verbose) {
    AddServing(AddProxy(app, &proxy_, verbose), [this] { return sluice::app::RunProxy(proxy_); });
    AddServing(AddSidecar(app, &sidecar_, verbose), [this] { return sluice::app::RunSidecar(sidecar_); });
    AddServing(AddAgent(app, &agent_, verbose), [this] { return sluice::app::RunAgent(agent_); });
    Add(AddOciSeccomp(app, &profile_), [this] { return sluice::app::RunOciSeccomp(profile_); });
    const auto [health, ask] = sluice::app::AddHealth(app);
    Add(health, ask);
    const auto [doctor, examine] = sluice::app::AddDoctor(app);
    Add(doctor, examine);
    std::ranges::move(sluice::app::AddPolicyCommands(app), std::back_inserter(commands_));
    CLI::App* completion = app.add_subcommand("completion", "Print shell completion");
    completion->footer(kCompletionExamples);
    completion->add_option("shell", shell_, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}))
        ->type_name("SHELL");
    Add(completion, [this] { return sluice::app::PrintCompletion(shell_); });
  }

  /// What was asked for.
  [[nodiscard]] int Act() const {
    for (const auto& [sub, act] : commands_)
      if (sub->parsed()) return act();
    return sluice::app::kExitFault;
  }

 private:
  void Add(const CLI::App* sub, std::function<int()> act) { commands_.push_back({sub, std::move(act)}); }
  // One that does not end by itself has all its libraries before it gives up rights or forks.
  void AddServing(const CLI::App* sub, std::function<int()> act) {
    Add(sub, [act = std::move(act)] {
      auto loaded = sluice::app::LoadLateLibraries();
      return loaded ? act() : sluice::app::Report(loaded.error());
    });
  }

  std::vector<sluice::app::Command> commands_;
  ProxyOptions proxy_;
  SidecarOptions sidecar_;
  AgentOptions agent_;
  OciSeccompOptions profile_;
  std::string shell_;
};

enum class Output : uint8_t { kOpen, kClosed };

int Main(std::vector<std::string> arguments, Output output) {
  CLI::App app(kAbout, "sluice");
  app.set_version_flag("--version", "sluice " SLUICE_VERSION);
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.require_subcommand(1);
  app.footer("Read more: man sluice, docs/policy-language.md");
  RunOptions run;
  bool verbose = false;
  const std::string command = arguments.empty() ? "" : arguments.front();
  if (command == "run") run.command = SplitCommand(&arguments);
  const CLI::App* run_command = AddRun(app, &run);
  // To make the hundreds of options that the others have takes longer than a run's first process does.
  std::optional<OtherCommands> others;
  if (command != "run") others.emplace(app, &verbose);

  RefuseEmptyValues(app);

  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
  } catch (const CLI::Success& request) {
    if (output == Output::kClosed) sluice::app::LetClosedOutputFail();
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    return UsageError(sluice::app::DescribeUsageError(app, error, command), sluice::app::AskedCommand(app, command));
  }
  if (verbose) sluice::SetLogLevel(sluice::LogLevel::kDebug);
  if (run_command->parsed()) return sluice::app::Run(run);
  // A run's is its command's, which gets the stand-in that it always got.
  if (output == Output::kClosed) sluice::app::LetClosedOutputFail();
  return others->Act();
}

// What could not be printed was asked for: nothing exits 0 that did not say it.
int Printed(int code) {
  const auto printed = sluice::app::FlushStandardOutput();
  if (printed) return code;
  sluice::LogError("{}", printed.error().message);
  return code == sluice::app::kExitFault ? code : sluice::app::ExitCodeFor(printed.error());
}

// What was to be written is written; the kernel takes back the rest faster than libraries do. Sanitizers want to look at it.
int Leave(int code) {
  code = Printed(code);
  // Longer is not waited: whoever should read the last lines may never do so.
  (void)sluice::FlushStderr(sluice::kLastLines);
  std::fflush(nullptr);
#ifndef SLUICE_SANITIZED
  ::_exit(code);
#endif
  return code;
}

}  // namespace

#ifdef SLUICE_SANITIZED
// A container's supervisor is a fork of the agent: what the agent's threads hold is on stacks that it has not.
extern "C" const char* __lsan_default_suppressions() { return "leak:sluice::LineOutput::LineOutput\n"; }
extern "C" const char* __lsan_default_options() { return "print_suppressions=0"; }
// Without /proc it cannot look, and fails; nor can it be told not to, since that is where it reads its options.
extern "C" int __lsan_is_turned_off() { return ::access("/proc/self", F_OK) == 0 ? 0 : 1; }
#endif

int main(int argc, char** argv) {
  const Output output = ::fcntl(STDOUT_FILENO, F_GETFD) < 0 ? Output::kClosed : Output::kOpen;
  // A file that may not grow (RLIMIT_FSIZE) is one that cannot be written, and is told as a full disk is.
  (void)std::signal(SIGXFSZ, SIG_IGN);
  // First of all: a file opened into 0 to 2 would pass for the workload's own.
  sluice::supervisor::ReserveStandardDescriptors();
  // Where whoever started this ignores it, the kernel reaps our children: nobody would learn that one has ended or how, and its
  // number would be another's while it is still taken for the child's.
  std::signal(SIGCHLD, SIG_DFL);
  int code = sluice::app::kExitFault;
  try {
    code = Main(std::vector<std::string>(argv + 1, argv + argc), output);
  } catch (const std::system_error& error) {
    // As fmt has it of standard output; Leave() tells what was lost.
    if (std::ferror(stdout) != 0 && error.code().value() != EPIPE) {
      code = sluice::app::kExitBadInput;
    } else {
      sluice::LogError("unexpected fault: {}", error.what());
    }
  } catch (const std::exception& error) {
    sluice::LogError("unexpected fault: {}", error.what());
  }
  return Leave(code);
}
