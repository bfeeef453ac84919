#include "app/run.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <expected>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>

#include "app/exit_code.h"
#include "app/file.h"
#include "app/held_files.h"
#include "app/host.h"
#include "app/host_sockets.h"
#include "app/own_authority.h"
#include "app/reload.h"
#include "app/sandbox.h"
#include "app/served_policy.h"
#include "app/trust.h"
#include "audit/io/audit_file.h"
#include "base/log.h"
#include "base/stderr_lines.h"
#include "policy/compiled.h"
#include "policy/credential.h"
#include "policy/io/load.h"
#include "proxy/io/secret_store.h"
#include "proxy/io/tls.h"
#include "supervisor/environment.h"
#include "supervisor/io/launch.h"

namespace sluice::app {
namespace {

constexpr std::string_view kCommand = "sluice run";

// The first address of the synthetic range is given to no name, and every address reaches the resolver.
constexpr const char* kResolvConf = "nameserver 198.18.0.0\noptions ndots:1 timeout:2 attempts:2\n";

Result<std::vector<std::string>> Trees(const char* flag, const std::vector<std::string>& paths) {
  std::vector<std::string> trees;
  for (const std::string& path : paths) {
    std::error_code error;
    const std::string real = std::filesystem::canonical(path, error).string();
    if (error) return Fail(Code::kInvalid, fmt::format("{} {}: {}", flag, path, error.message()));
    trees.push_back(real);
  }
  return trees;
}

std::string OwnExecutable() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).string();
}

// What the workload gets to see and to change.
Result<supervisor::LaunchSpec> MakeSpec(const RunOptions& options, const policy::Snapshot& snapshot, HostSockets* host_sockets) {
  supervisor::LaunchSpec spec;
  spec.argv = options.command;
  spec.probe = supervisor::StartProbe::kCanary;
  std::error_code error;
  spec.work_directory = std::filesystem::canonical(options.cwd.empty() ? "." : options.cwd, error).string();
  if (error) return Fail(Code::kInvalid, fmt::format("--cwd {}: {}", options.cwd, error.message()));
  auto writable = Trees("--rw", options.read_write);
  if (!writable) return std::unexpected(writable.error());
  auto readable = Trees("--ro", options.read_only);
  if (!readable) return std::unexpected(readable.error());
  spec.read_write = *std::move(writable);
  spec.read_only = *std::move(readable);
  spec.protect.assign(snapshot.files().begin(), snapshot.files().end());
  // As it was named, too: a link that the command may point elsewhere is refused.
  if (!options.policy.empty()) spec.protect.push_back(std::filesystem::absolute(options.policy, error).string());
  spec.protect.push_back(OwnExecutable());
  if (!options.audit.empty()) spec.protect.push_back(Absolute(options.audit));
  auto sockets = FindHostSockets(snapshot.UnixPaths());
  if (!sockets) return std::unexpected(sockets.error());
  for (const auto& [path, named] : *sockets) spec.unix_sockets.push_back(path);
  *host_sockets = *std::move(sockets);
  if (!options.timeout.empty()) {
    spec.timeout = ParseDuration(options.timeout);
    if (!spec.timeout)
      return Fail(Code::kInvalid, fmt::format("--timeout {}: write a duration such as 250ms, 30s, 5m or 1h", options.timeout));
  }
  return spec;
}

// Without the variables that the sandbox sets itself, which are neither passed on nor missed.
supervisor::Variables InheritedEnvironment(const Trust& trust) {
  supervisor::Variables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    const std::string_view name = text.substr(0, equals);
    if (std::ranges::any_of(trust.environment, [name](const auto& set) { return set.first == name; })) continue;
    variables.emplace_back(name, text.substr(equals + 1));
  }
  return variables;
}

proxy::SeenTrees SeenTrees(const supervisor::LaunchSpec& spec) {
  proxy::SeenTrees trees{spec.work_directory};
  trees.insert(trees.end(), spec.read_write.begin(), spec.read_write.end());
  trees.insert(trees.end(), spec.read_only.begin(), spec.read_only.end());
  return trees;
}

// What rules send with requests. Read before anything is started, so that one that is missing is an error of the start; taken out
// of this process's own environment.
Result<std::shared_ptr<proxy::SecretStore>> ReadSecrets(const policy::Snapshot& snapshot, const supervisor::LaunchSpec& spec) {
  proxy::SecretStoreOptions options;
  options.trees = SeenTrees(spec);
  auto secrets = std::make_shared<proxy::SecretStore>(std::move(options));
  if (auto loaded = secrets->Load(snapshot.credentials(), snapshot.proxies()); !loaded) return std::unexpected(loaded.error());
  return secrets;
}

// The workload has stand-ins, and nothing that holds a secret.
Result<void> AddStandIns(const RunOptions& options, const proxy::SecretStore& secrets, supervisor::Variables* variables) {
  const auto is_stand_in = [&](std::string_view name) {
    return std::ranges::any_of(secrets.stand_ins(), [name](const auto& given) { return given.variable == name; });
  };
  for (const std::string& addition : options.environment)
    if (const auto taken = secrets.variables().find(addition); taken != secrets.variables().end() && !is_stand_in(addition))
      return Fail(Code::kInvalid,
                  fmt::format("--env {}: it holds the secret of {}, which the command must not see; `send: placeholder "
                              "{}` gives the command a stand-in",
                              addition, taken->second, addition));
  std::erase_if(*variables, [&](const auto& variable) { return is_stand_in(variable.first); });
  for (const auto& [name, value] : *variables)
    if (const std::string owner = secrets.SecretIn(value); !owner.empty())
      return Fail(Code::kInvalid,
                  fmt::format("the variable {} would show the command the secret of {}: leave it out", name, owner));
  for (const std::string& argument : options.command)
    if (const std::string owner = secrets.SecretIn(argument); !owner.empty())
      return Fail(Code::kInvalid, fmt::format("an argument of the command holds the secret of {}: leave it out", owner));
  for (const auto& given : secrets.stand_ins()) variables->emplace_back(given.variable, given.text);
  return {};
}

Result<void> AddTrust(const RunOptions& options, const Trust& trust, const proxy::SecretStore& secrets,
                      supervisor::LaunchSpec* spec) {
  auto environment = supervisor::ChooseEnvironment(InheritedEnvironment(trust), options.environment);
  if (!environment) return std::unexpected(environment.error());
  if (auto added = AddStandIns(options, secrets, &environment->variables); !added) return added;
  if (!environment->credentials.empty())
    LogInfo("not passed on, since they look like credentials: {} (--env NAME passes one)",
            fmt::join(environment->credentials, " "));
  spec->environment = std::move(environment->variables);
  for (const auto& variable : trust.environment) spec->environment.push_back(variable);
  spec->overlays = trust.overlays;
  spec->overlays.push_back({"/etc/resolv.conf", kResolvConf});
  return {};
}

// For --verbose: what the command gets to see.
void DescribeSpec(const supervisor::LaunchSpec& spec) {
  LogDebug("command: {}", fmt::join(spec.argv, " "));
  LogDebug("writable: {} {}", spec.work_directory, fmt::join(spec.read_write, " "));
  if (!spec.read_only.empty()) LogDebug("readable: {}", fmt::join(spec.read_only, " "));
  LogDebug("held read-only: {}", fmt::join(spec.protect, " "));
  if (!spec.unix_sockets.empty()) LogDebug("sockets of the host: {}", fmt::join(spec.unix_sockets, " "));
  std::vector<std::string_view> names;
  names.reserve(spec.environment.size());
  for (const auto& [name, value] : spec.environment) names.push_back(name);
  LogDebug("variables: {}", fmt::join(names, " "));
  names.clear();
  for (const auto& overlay : spec.overlays) names.push_back(overlay.path);
  LogDebug("files put in place: {}", fmt::join(names, " "));
}

// Whom the bundle, the variables and, where there is one, the Java store make trust the sandbox's authority.
std::string TrustedBy(const supervisor::LaunchSpec& spec) {
  const auto has = [&spec](std::string_view end) {
    return std::ranges::any_of(spec.overlays, [&](const auto& overlay) { return overlay.path.ends_with(end); });
  };
  return fmt::format("curl git node python{}{}", has("/cacerts") ? " java" : "",
                     has("/zz-sluice-authority.json") ? " chromium" : "");
}

void Announce(const RunOptions& options, const supervisor::LaunchSpec& spec, const policy::Snapshot& snapshot) {
  if (options.quiet) return;
  LogInfo(
      "enforcing: no interface, seccomp notifications, Landlock; authority trusted by {}; {} rule{}, digest {}{}",
      TrustedBy(spec), snapshot.rules().size(), snapshot.rules().size() == 1 ? "" : "s", snapshot.digest().substr(0, 12),
      snapshot.mode() == policy::Mode::kAudit ? "; mode audit: nothing is refused but bad addresses and protocol faults" : "");
}

std::string DescribeExit(const supervisor::ExitStatus& status) {
  if (status.timed_out) return "timed out";
  if (status.signal != 0) return fmt::format("killed by signal {} ({})", status.signal, strsignal(status.signal));
  return fmt::format("exit {}", status.code);
}

int LaunchExitCode(const Error& error) {
  const int code = Report(error);
  if (error.code == Code::kNotFound) return kExitNotFound;
  return error.code == Code::kPermission && error.sys_errno == EACCES ? kExitNotRunnable : code;
}

// What is decided before anything is started.
struct Plan {
  policy::SnapshotPtr snapshot;
  std::map<std::string, std::string> labels;
  supervisor::LaunchSpec spec;
  Trust trust;
  SandboxOptions sandbox;
  std::optional<audit::AuditFile> audit_file;
};

Result<Plan> MakePlan(const RunOptions& options) {
  Plan plan;
  auto labels = ParseLabels(options.labels);
  if (!labels) return std::unexpected(labels.error());
  plan.labels = *std::move(labels);
  auto snapshot = LoadPolicy(options, kCommand);
  if (!snapshot) return std::unexpected(snapshot.error());
  plan.snapshot = *std::move(snapshot);
  HostSockets host_sockets;
  auto spec = MakeSpec(options, *plan.snapshot, &host_sockets);
  if (!spec) return std::unexpected(spec.error());
  plan.spec = *std::move(spec);
  if (!options.audit.empty()) {
    // Before the launch, which protects the file and so needs it to be there.
    auto opened = audit::AuditFile::Open(options.audit);
    if (!opened) return std::unexpected(opened.error());
    plan.audit_file.emplace(*std::move(opened));
  }
  auto engine = MakeEngineOptions(options);
  if (!engine) return std::unexpected(engine.error());
  plan.sandbox.engine = *std::move(engine);
  plan.sandbox.host_sockets = std::move(host_sockets);
  auto secrets = ReadSecrets(*plan.snapshot, plan.spec);
  if (!secrets) return std::unexpected(secrets.error());
  plan.sandbox.engine.secrets = *secrets;
  plan.spec.hide = (*secrets)->files();
  if (!options.ca_key.empty()) {
    auto key = FindAuthorityKey(options.ca_key, SeenTrees(plan.spec));
    if (!key) return std::unexpected(key.error());
    plan.spec.hide.push_back(key->real);
  }
  plan.trust = FindTrust();
  if (auto added = AddTrust(options, plan.trust, **secrets, &plan.spec); !added) return std::unexpected(added.error());
  DescribeSpec(plan.spec);
  return plan;
}

// While the sandbox's first processes build what they live in: they were begun before, so that none of them ever holds the key.
Result<void> ProvideAuthority(const RunOptions& options, supervisor::Workload& workload, Plan* plan) {
  auto authority = MakeAuthority(options.ca_cert, options.ca_key, SeenTrees(plan->spec));
  if (!authority) return std::unexpected(authority.error());
  plan->sandbox.engine.authority = *std::move(authority);
  return ProvideTrust(plan->trust, plan->sandbox.engine.authority->pem(),
                      [&workload](const UniqueFd& content) { return workload.Provide(content); });
}

// From here on the workload may run. The watcher goes before the sandbox it tells.
std::expected<supervisor::ExitStatus, int> Supervise(const RunOptions& options, const supervisor::LaunchSpec& spec,
                                                     const HeldFiles& held, proxy::SecretStore& secrets, Sandbox& sandbox,
                                                     policy::CurrentPolicy& policy) {
  const auto load = [&options, &held, &secrets]() -> Result<policy::SnapshotPtr> {
    if (auto own = held.CheckHeld(); !own) return std::unexpected(own.error());
    auto next = LoadPolicy(options, kCommand);
    // Afterwards again: a file that is swapped while it is read is then another one.
    if (next)
      if (auto own = held.Check((*next)->files()); !own) return std::unexpected(own.error());
    if (next)
      if (auto read = secrets.Load((*next)->credentials(), (*next)->proxies()); !read) return std::unexpected(read.error());
    return next;
  };
  secrets.Watch();
  auto watcher = PolicyWatcher::Start(policy, load, [&sandbox] { sandbox.PolicyChanged(); });
  if (!watcher) return std::unexpected(Report(watcher.error()));
  if (auto released = sandbox.Release(); !released) return std::unexpected(LaunchExitCode(released.error()));
  Announce(options, spec, *policy.Get());
  return sandbox.Wait();
}

// Everything is recorded and every denial line is out by now.
int Conclude(const RunOptions& options, const supervisor::ExitStatus& status, std::unique_ptr<audit::Writer> writer) {
  const audit::Totals totals = writer->totals();
  const bool recorded = writer->healthy();
  writer.reset();
  if (!options.quiet) LogInfo("{} · {} allowed · {} denied", DescribeExit(status), totals.allowed, totals.denied);
  if (!recorded) {
    LogError("audit records could not be written to {}; traffic was refused from then on", options.audit);
    return kExitFault;
  }
  return options.fail_on_deny && totals.denied > 0 ? kExitDenied : status.code;
}

}  // namespace

std::optional<std::chrono::milliseconds> ParseDuration(const std::string& text) {
  uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || stop == text.data()) return std::nullopt;
  const std::string unit(stop, text.data() + text.size());
  uint64_t scale = 0;
  if (unit == "ms") scale = 1;
  if (unit == "s" || unit.empty()) scale = 1000;
  if (unit == "m") scale = 60'000;
  if (unit == "h") scale = 3'600'000;
  constexpr uint64_t kLongest = 365ull * 24 * 3'600'000;
  if (scale == 0 || number == 0 || number > kLongest / scale) return std::nullopt;
  return std::chrono::milliseconds(number * scale);
}

int Run(const RunOptions& options) {
  if (options.command.empty())
    return Report(Error{Code::kInvalid, "no command; write: sluice run [OPTIONS] -- COMMAND [ARGUMENT...]"});
  if (auto named = CheckPolicyNamed(options); !named) return Report(named.error());
  // Before any thread exists, so that all inherit it: the watcher alone takes SIGHUP.
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const auto room = RaiseDescriptorLimit();
  if (!room) return Report(room.error());

  // The order hides what takes long behind what is needed anyway. Whatever forks comes before the first thread.
  auto begun = supervisor::CaptureInProgress::Begin();
  if (!begun) return Report(begun.error());
  auto plan = MakePlan(options);
  if (!plan) return Report(plan.error());
  plan->sandbox.engine.descriptors = {room->limit, room->ceiling};
  auto capture = begun->Finish();
  if (!capture) return Report(capture.error());
  // Before the launch locks them: a file that is replaced meanwhile is not the one that was read.
  const HeldFiles held(plan->snapshot->files(), plan->spec);
  auto workload = supervisor::BeginLaunch(plan->spec, *capture);
  if (!workload) return LaunchExitCode(workload.error());
  if (auto made = ProvideAuthority(options, **workload, &*plan); !made) return LaunchExitCode(made.error());
  begun->End();

  policy::CurrentPolicy policy(plan->snapshot);
  auto writer = audit::Writer::Start(
      MakeAuditOptions(options, std::move(plan->labels), std::filesystem::path(options.command.front()).filename().string()),
      std::move(plan->audit_file));
  if (!writer) return Report(writer.error());
  const std::shared_ptr<proxy::SecretStore> secrets = plan->sandbox.engine.secrets;
  auto sandbox = Sandbox::Create(std::move(plan->sandbox), *std::move(capture), *std::move(workload), policy, **writer);
  if (!sandbox) return Report(sandbox.error());
  const auto status = Supervise(options, plan->spec, held, *secrets, **sandbox, policy);
  sandbox->reset();
  return status ? Conclude(options, *status, *std::move(writer)) : status.error();
}

}  // namespace sluice::app
