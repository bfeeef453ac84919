#include "app/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <expected>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "app/exit_code.h"
#include "app/file.h"
#include "app/held_files.h"
#include "app/host.h"
#include "app/host_sockets.h"
#include "app/late_libraries.h"
#include "app/nested.h"
#include "app/nested_names.h"
#include "app/nested_records.h"
#include "app/own_authority.h"
#include "app/own_policy_text.h"
#include "app/passed_sockets.h"
#include "app/reload.h"
#include "app/report.h"
#include "app/run_control.h"
#include "app/run_result.h"
#include "app/sandbox.h"
#include "app/seen_credentials.h"
#include "app/served_policy.h"
#include "app/tap_list.h"
#include "app/trust.h"
#include "audit/io/audit_file.h"
#include "audit/record.h"
#include "base/log.h"
#include "base/path_error.h"
#include "base/stderr_lines.h"
#include "policy/compiled.h"
#include "policy/credential.h"
#include "policy/io/executables.h"
#include "policy/io/load.h"
#include "proxy/io/secret_store.h"
#include "proxy/io/tls.h"
#include "supervisor/environment.h"
#include "supervisor/io/launch.h"
#include "supervisor/io/launch_facts.h"
#include "supervisor/io/prepared_launch.h"
#include "supervisor/io/publisher.h"
#include "supervisor/mount_plan.h"
#include "supervisor/published_port.h"

namespace sluice::app {
namespace {

constexpr std::string_view kCommand = "sluice run";
constexpr std::chrono::milliseconds kUnwatched{100};  // the policy file, and shorter runs not at all

// The first address of the synthetic range is given to no name, and every address reaches the resolver.
constexpr const char* kResolvConf = "nameserver 198.18.0.0\noptions ndots:1 timeout:2 attempts:2\n";

// What may be named: a file can be shown, but nothing made beside it, and nobody starts where he may not go.
enum class Shown : uint8_t { kEntered, kFolders, kAnything };

Result<std::vector<std::string>> Trees(const char* flag, const std::vector<std::string>& paths, Shown shown) {
  std::vector<std::string> trees;
  for (const std::string& path : paths) {
    std::error_code error;
    const std::string real = std::filesystem::canonical(path, error).string();
    if (error) return Fail(Code::kInvalid, fmt::format("{} {}: {}", flag, path, error.message()));
    if (shown != Shown::kAnything && !std::filesystem::is_directory(real, error))
      return Fail(Code::kInvalid, fmt::format("{} {}: it is no folder", flag, path));
    if (shown == Shown::kEntered && ::access(real.c_str(), X_OK) != 0) return FailPath(fmt::format("{} {}", flag, path), errno);
    trees.push_back(real);
  }
  return trees;
}

std::string OwnExecutable() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).string();
}

Result<std::optional<uint64_t>> Octets(const char* flag, const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto octets = ParseOctets(text);
  if (!octets) return Fail(Code::kInvalid, fmt::format("{} {}: write a number of octets such as 512MiB or 2GiB", flag, text));
  return octets;
}

// A count that the kernel takes, and with which a program can start.
Result<std::optional<uint32_t>> Count(const char* flag, const std::optional<uint64_t>& number, uint32_t least) {
  if (!number) return std::nullopt;
  if (*number < least || *number > std::numeric_limits<int32_t>::max())
    // As it was written: a negative one has been taken for a large one.
    return Fail(Code::kInvalid, fmt::format("{} {}: at least {}, and below 2^31", flag, static_cast<int64_t>(*number), least));
  return static_cast<uint32_t>(*number);
}

// A descriptor that this process was given for its launcher's sake.
Result<int> Lifeline(uint64_t number) {
  const int fd = number <= 2 || number > std::numeric_limits<int32_t>::max() ? -1 : static_cast<int>(number);
  struct stat about{};
  if (fd < 0 || ::fstat(fd, &about) != 0)
    return Fail(Code::kInvalid, fmt::format("--lifeline {}: no descriptor above 2 was inherited with that number", number));
  if (!S_ISFIFO(about.st_mode) && !S_ISSOCK(about.st_mode))
    return Fail(Code::kInvalid,
                fmt::format("--lifeline {}: it is no pipe and no socket, and so never says that its other end is gone", number));
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

Result<void> AddLimits(const RunOptions& options, supervisor::LaunchSpec* spec) {
  constexpr uint32_t kLeastProcesses = 2;  // the sandbox's first and the command
  constexpr uint32_t kLeastFiles = 16;
  constexpr uint64_t kLeastMemory = uint64_t{4} << 20;
  if (!options.timeout.empty()) {
    spec->timeout = ParseDuration(options.timeout);
    if (!spec->timeout)
      return Fail(Code::kInvalid, fmt::format("--timeout {}: write a duration such as 250ms, 30s, 5m or 1h", options.timeout));
  }
  auto memory = Octets("--max-memory", options.memory);
  if (!memory) return std::unexpected(memory.error());
  if (*memory && **memory < kLeastMemory) return Fail(Code::kInvalid, "--max-memory: at least 4MiB");
  auto output = Octets("--max-output", options.output_limit);
  if (!output) return std::unexpected(output.error());
  auto processes = Count("--max-processes", options.processes, kLeastProcesses);
  if (!processes) return std::unexpected(processes.error());
  auto files = Count("--max-open-files", options.open_files, kLeastFiles);
  if (!files) return std::unexpected(files.error());
  spec->limits = {.memory = *memory, .processes = *processes, .open_files = *files, .output = *output};
  if (options.on_disconnect == "freeze") spec->on_disconnect = supervisor::OnDisconnect::kFreeze;
  if (options.lifeline) {
    auto lifeline = Lifeline(*options.lifeline);
    if (!lifeline) return std::unexpected(lifeline.error());
    spec->lifeline = *lifeline;
  }
  if (options.allow_user_namespaces)
    spec->own_namespaces = ::geteuid() == 0 ? supervisor::OwnNamespaces::kAllowed : supervisor::OwnNamespaces::kMapped;
  if (options.allow_containers) spec->own_namespaces = supervisor::OwnNamespaces::kContainers;
  return {};
}

// What the workload gets to see and to change.
Result<supervisor::LaunchSpec> MakeSpec(const RunOptions& options, const policy::Snapshot& snapshot, HostSockets* host_sockets) {
  supervisor::LaunchSpec spec;
  spec.argv = options.command;
  spec.probe = supervisor::StartProbe::kCanary;
  std::error_code error;
  auto workspace = Trees("--workspace", options.workspace.empty() ? std::vector<std::string>() : std::vector{options.workspace},
                         Shown::kEntered);
  if (!workspace) return std::unexpected(workspace.error());
  const std::string start = !options.cwd.empty() ? options.cwd : !workspace->empty() ? workspace->front() : ".";
  auto work_directory = Trees("--cwd", {start}, Shown::kEntered);
  if (!work_directory) return std::unexpected(work_directory.error());
  spec.work_directory = std::move(work_directory->front());
  auto writable = Trees("--rw", options.read_write, Shown::kFolders);
  if (!writable) return std::unexpected(writable.error());
  auto readable = Trees("--ro", options.read_only, Shown::kAnything);
  if (!readable) return std::unexpected(readable.error());
  spec.read_write = *std::move(writable);
  // One that is not the work directory itself; in it, the work directory is granted already.
  if (!workspace->empty() && workspace->front() != spec.work_directory) {
    if (!supervisor::IsWithin(spec.work_directory, workspace->front()))
      return Fail(Code::kInvalid, fmt::format("--cwd {} is not in the workspace {}", spec.work_directory, workspace->front()));
    spec.read_write.push_back(workspace->front());
  }
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
  if (auto limited = AddLimits(options, &spec); !limited) return std::unexpected(limited.error());
  // The timer that continues one that stopped itself would continue one that the outer run has stopped.
  if (options.nested) spec.job_control = supervisor::JobControl::kNone;
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

// A folder that the command may write may come from somebody else, or have had another command in it: no link in there leads the
// supervisor's own files elsewhere. Before the first of them is opened.
Result<void> CheckOutputs(const RunOptions& options) {
  std::vector<std::string> named = options.read_write;
  if (!options.workspace.empty()) named.push_back(options.workspace);
  if (!options.cwd.empty() || options.workspace.empty()) named.push_back(options.cwd.empty() ? "." : options.cwd);
  std::vector<std::string> trees;
  for (const std::string& path : named) {
    std::error_code error;  // one that is not there is told later
    const std::string real = std::filesystem::canonical(path, error).string();
    if (!error) trees.push_back(real);
  }
  const std::pair<const char*, const std::string*> outputs[] = {
      {"--result", &options.result}, {"--transcript", &options.transcript}, {"--audit", &options.audit}};
  for (const auto& [flag, path] : outputs) {
    if (path->empty() || path->starts_with("fd:")) continue;
    const std::string folder = std::filesystem::path(Absolute(*path)).parent_path().string();
    if (auto fine = supervisor::RefuseLinksInTrees(folder, trees); !fine)
      return Fail(Code::kInvalid, fmt::format("{}: {}", flag, fine.error().message));
  }
  return {};
}

// The workload has stand-ins, and nothing that holds a secret.
Result<void> AddStandIns(const RunOptions& options, const proxy::SecretStore& secrets, supervisor::Variables* variables) {
  const auto is_stand_in = [&](std::string_view name) {
    return std::ranges::any_of(secrets.stand_ins(), [name](const auto& given) { return given.variable == name; });
  };
  std::vector<std::string> named = options.environment;
  named.insert(named.end(), options.unsafe_environment.begin(), options.unsafe_environment.end());
  for (const std::string& addition : named)
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
  supervisor::EnvironmentWishes wishes{.additions = options.environment, .unsafe = options.unsafe_environment};
  if (options.environment_inherit == "none") wishes.inherit = supervisor::Inherit::kNone;
  // Whatever it is called, a stand-in is no credential.
  std::erase_if(wishes.additions, [&secrets](const std::string& addition) {
    return std::ranges::any_of(secrets.stand_ins(), [&](const auto& given) { return given.variable == addition; });
  });
  auto environment = supervisor::ChooseEnvironment(InheritedEnvironment(trust), wishes);
  if (!environment) return std::unexpected(environment.error());
  if (auto added = AddStandIns(options, secrets, &environment->variables); !added) return added;
  if (!environment->credentials.empty())
    LogInfo("not passed on, since they look like credentials: {} (--unsafe-env NAME passes one)",
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

// Nobody who prepares a folder means to give a login away with it.
void RemarkOnCredentials(const RunOptions& options, const supervisor::LaunchSpec& spec) {
  if (options.nested) return;
  std::vector<std::string> found;
  for (const std::string& tree : SeenTrees(spec))
    for (std::string& path : FindSeenCredentials(tree)) found.push_back(std::move(path));
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  if (!found.empty())
    LogWarn(
        "the command sees files that hold credentials: {} (a `credentials:` entry of the policy sends one without showing it)",
        fmt::join(found, " "));
}

void Announce(const RunOptions& options, const supervisor::LaunchSpec& spec, const policy::Snapshot& snapshot) {
  RemarkOnCredentials(options, spec);
  if (options.quiet) return;
  LogInfo(
      "enforcing: no interface, seccomp notifications, Landlock; authority trusted by {}; {} rule{}, digest {}{}",
      TrustedBy(spec), snapshot.rules().size(), snapshot.rules().size() == 1 ? "" : "s", snapshot.digest().substr(0, 12),
      snapshot.mode() == policy::Mode::kAudit ? "; mode audit: nothing is refused but bad addresses and protocol faults" : "");
}

// Which of them are held for the run as a whole, and which are not, is nothing to be guessed at.
void AnnounceLimits(const RunOptions& options, const supervisor::LaunchSpec& spec, const supervisor::LimitsInForce& limits,
                    const std::vector<supervisor::PublishedPort>& published) {
  if (!limits.no_cgroup.empty() && (spec.limits.memory || spec.limits.processes))
    LogWarn("no control group holds the limits on memory and processes: {}", limits.no_cgroup);
  if (options.quiet) return;
  const auto parts = DescribeLimits(limits, spec.timeout);
  if (!parts.empty()) LogInfo("limits: {}", fmt::join(parts, "; "));
  for (const auto& port : published)
    LogInfo("published: {} leads to port {} of the sandbox", port.outside.ToString(), port.inside);
}

std::string DescribeExit(const supervisor::ExitStatus& status) {
  if (status.timed_out) return "timed out";
  if (status.ended_by == supervisor::EndedBy::kOutput) return "killed: it wrote more than --max-output";
  if (status.ended_by == supervisor::EndedBy::kMemory) return "killed: it ran out of the memory that --max-memory gives it";
  if (status.ended_by == supervisor::EndedBy::kPolicy) return "killed: something was denied (--kill-on-deny)";
  if (status.ended_by == supervisor::EndedBy::kDisconnect) return "killed: the launcher is gone";
  if (status.ended_by == supervisor::EndedBy::kStopped) return "stopped";
  if (status.signal != 0) return fmt::format("killed by signal {} ({})", status.signal, strsignal(status.signal));
  return fmt::format("exit {}", status.code);
}

int LaunchExitCode(const Error& error) {
  const int code = Report(error);
  if (error.code == Code::kNotFound) return kExitNotFound;
  const bool not_runnable = error.sys_errno == EACCES || error.sys_errno == EISDIR;
  return error.code == Code::kPermission && not_runnable ? kExitNotRunnable : code;
}

// What is decided before anything is started.
struct Plan {
  policy::SnapshotPtr snapshot;
  std::map<std::string, std::string> labels;
  supervisor::LaunchSpec spec;
  Trust trust;
  SandboxOptions sandbox;
  std::optional<audit::AuditFile> audit_file;
  std::optional<ResultFile> transcript;
  std::unique_ptr<NestedRuns> nested;
  ControlPlan control;
};

// What the bounds on names are shared with.
Result<CommonNames> PlanNames(const RunOptions& options, const NestedRuns* nested) {
  CommonNames common;
  if (nested != nullptr) common.rations = nested->rations();
  if (!options.nested) return common;
  auto rations = MapNameRations(options.rations_fd);
  if (!rations) return std::unexpected(rations.error());
  common.rations = *std::move(rations);
  auto names = policy::LoadFile(options.outer_names);
  if (!names) return std::unexpected(names.error());
  common.spelled_by = *std::move(names);
  return common;
}

// With what this machine has at the paths of `by`: the run sees the same.
void TellHere(const policy::Snapshot& snapshot, const RunOptions& options) {
  TellPolicy(snapshot, options);
  if (!options.check_executables) return;
  for (const policy::Finding& finding : policy::MissingExecutables(snapshot))
    LogWarn("{}: {}", policy::PlaceText(finding.span, finding.origin), finding.message);
}

Result<Plan> MakePlan(const RunOptions& options, const std::optional<ResultFile>& result_file) {
  Plan plan;
  auto labels = ParseLabels(options.labels);
  if (!labels) return std::unexpected(labels.error());
  plan.labels = *std::move(labels);
  auto snapshot = LoadPolicy(options, kCommand);
  if (!snapshot) return std::unexpected(snapshot.error());
  plan.snapshot = *std::move(snapshot);
  TellHere(*plan.snapshot, options);
  HostSockets host_sockets;
  auto spec = MakeSpec(options, *plan.snapshot, &host_sockets);
  if (!spec) return std::unexpected(spec.error());
  plan.spec = *std::move(spec);
  auto control = PlanControl(options.control, options.await_hold, plan.spec);
  if (!control) return std::unexpected(control.error());
  plan.control = *std::move(control);
  if (!options.audit.empty()) {
    // Before the launch, which protects the file and so needs it to be there.
    auto opened = audit::AuditFile::Open(options.audit);
    if (!opened) return std::unexpected(opened.error());
    plan.audit_file.emplace(*std::move(opened));
  }
  if (!options.transcript.empty()) {
    auto opened = ResultFile::Open(options.transcript);
    if (!opened) return std::unexpected(Error{Code::kInvalid, "--transcript: " + opened.error().message, 0, std::nullopt});
    plan.transcript.emplace(*std::move(opened));
    plan.spec.transcript = plan.transcript->fd();
    if (!plan.transcript->path().empty()) plan.spec.protect.push_back(plan.transcript->path());
  }
  plan.spec.protect.insert(plan.spec.protect.end(), options.protect.begin(), options.protect.end());
  if (options.allow_nested) {
    auto nested = NestedRuns::Prepare();
    if (!nested) return std::unexpected(nested.error());
    plan.nested = *std::move(nested);
    // Not among those that a `unix` rule has to name: /tmp is the workload's own.
    plan.spec.unix_sockets.push_back(plan.nested->path());
  }
  if (result_file && !result_file->path().empty()) plan.spec.protect.push_back(result_file->path());
  auto engine = MakeEngineOptions(options);
  if (!engine) return std::unexpected(engine.error());
  plan.sandbox.engine = *std::move(engine);
  plan.sandbox.host_sockets = std::move(host_sockets);
  auto secrets = ReadSecrets(*plan.snapshot, plan.spec);
  if (!secrets) return std::unexpected(secrets.error());
  plan.sandbox.engine.secrets = *secrets;
  auto names = PlanNames(options, plan.nested.get());
  if (!names) return std::unexpected(names.error());
  plan.sandbox.names = *std::move(names);
  plan.spec.hide = (*secrets)->files();
  plan.spec.hide.insert(plan.spec.hide.end(), options.hide.begin(), options.hide.end());
  if (!options.ca_key.empty()) {
    auto key = FindAuthorityKey(options.ca_key, SeenTrees(plan.spec));
    if (!key) return std::unexpected(key.error());
    plan.spec.hide.push_back(key->real);
  }
  plan.trust = FindTrust();
  if (auto added = AddTrust(options, plan.trust, **secrets, &plan.spec); !added) return std::unexpected(added.error());
  if (plan.nested) plan.spec.environment.emplace_back(kNestedVariable, plan.nested->path());
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

// Null where nobody asked for one.
Result<std::unique_ptr<RunControl>> StartControl(const RunOptions& options, Plan* plan, const HeldFiles& held,
                                                 policy::CurrentPolicy& policy, Sandbox& sandbox, audit::Writer& writer,
                                                 DecisionStream& stream, std::vector<supervisor::PublishedPort> published) {
  if (!plan->control.wanted()) return nullptr;
  RunControlParts parts;
  parts.compile = [&options](const PolicyText& text) { return CompileText(options, text); };
  parts.own_text = [&options, &held]() -> Result<PolicyText> {
    if (auto own = held.CheckHeld(); !own) return std::unexpected(own.error());
    return OwnPolicyText(options);
  };
  parts.own = policy.Get();
  parts.own_source = options.policy_text ? kPolicyTextName : options.policy.empty() ? "the command line" : options.policy;
  parts.command = options.command.front();
  parts.published = std::move(published);
  parts.on_disconnect = plan->spec.on_disconnect;
  parts.policy_changed = [nested = plan->nested.get()] {
    if (nested != nullptr) nested->PolicyChanged();
  };
  return RunControl::Start(std::move(plan->control), std::move(parts), policy, sandbox, writer, stream);
}

std::string_view EndText(supervisor::PublishedConnection::End end) {
  using End = supervisor::PublishedConnection::End;
  switch (end) {
    case End::kBoth:
      return "";
    case End::kBroken:
      return "one side broke it off";
    case End::kNobody:
      return "nobody listens there in the sandbox";
    case End::kRunEnded:
      return "the run ended";
  }
  return "";
}

// Nothing was decided about it, and it came in: the record says whence, and what it carried.
policy::ExchangeEvent RecordOf(const supervisor::PublishedConnection& connection) {
  policy::ExchangeEvent event;
  event.time = SystemClock().Wall();
  event.target.scheme = "tcp";
  event.target.method = audit::kPublishMethod;
  event.target.address = connection.from.address;
  event.target.port = connection.from.port;
  event.target.path = fmt::format("{}:{}", connection.port.outside.ToString(), connection.port.inside);
  event.bytes_up = connection.octets_out;
  event.bytes_down = connection.octets_in;
  event.duration = connection.duration;
  event.error = EndText(connection.end);
  return event;
}

// Who is told how the run goes; either may be null.
struct Onlookers {
  NestedRuns* nested = nullptr;
  RunControl* control = nullptr;
};

// From here on the workload may run. The watcher goes before the sandbox it tells.
std::expected<supervisor::ExitStatus, int> Supervise(const RunOptions& options, const Plan& plan, const HeldFiles& held,
                                                     proxy::SecretStore& secrets, Sandbox& sandbox, policy::CurrentPolicy& policy,
                                                     const Onlookers& onlookers, RunResult* result) {
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
  StartStderr();
  auto watcher = PolicyWatcher::Start(
      plan.snapshot, load,
      [&options, &sandbox, &policy, &onlookers](policy::SnapshotPtr next) -> Result<uint64_t> {
        TellHere(*next, options);
        if (onlookers.control != nullptr) return onlookers.control->SetOwnPolicy(std::move(next));
        policy.Set(std::move(next));
        sandbox.PolicyChanged();
        if (onlookers.nested != nullptr) onlookers.nested->PolicyChanged();
        return policy.generation();
      },
      ReloadNotice::kNone, kUnwatched);
  if (!watcher) {
    result->error = watcher.error().message;
    return std::unexpected(Report(watcher.error()));
  }
  result->limits = sandbox.workload().limits();
  auto released = onlookers.control != nullptr ? onlookers.control->AwaitHold() : Result<void>();
  if (released) released = sandbox.Prepare();
  if (released) released = onlookers.control != nullptr ? onlookers.control->Release() : sandbox.Release();
  if (!released) {
    result->error = released.error().message;
    return std::unexpected(LaunchExitCode(released.error()));
  }
  Announce(options, plan.spec, *policy.Get());
  AnnounceLimits(options, plan.spec, result->limits, result->published);
  return sandbox.Wait();
}

// The end of a run, to whoever started it: the result first and whole, so that it is there on the word of anything else.
class Ending {
 public:
  /// `file`, null where nobody asked for a result, and `tally` outlive it.
  Ending(const ResultFile* file, const RunTally& tally, SteadyTime begin) : file_(file), tally_(tally), begin_(begin) {}

  /// Gives the exit code: `code`, unless the result cannot be written. `tell` gets it, once: when the result is written, or has
  /// to wait for a reader, who may come on that word alone.
  int Tell(RunResult* result, int code, std::function<void(int)> tell = nullptr) const {
    const auto once = [&tell](int told) {
      if (const auto say = std::exchange(tell, nullptr)) say(told);
    };
    result->exit_code = code;
    result->duration = std::chrono::duration_cast<std::chrono::milliseconds>(SystemClock().Steady() - begin_);
    if (file_ != nullptr) {
      const std::string text = RunResultJson(*result, result->status ? &tally_ : nullptr);
      if (auto written = file_->Write(text, [&] { once(code); }); !written) {
        LogError("{}", written.error().message);
        if (code == kExitOk) code = kExitFault;
      }
    }
    once(code);
    return code;
  }

 private:
  const ResultFile* const file_;
  const RunTally& tally_;
  const SteadyTime begin_;
};

// Everything is recorded and every denial line is out by now.
int Conclude(const RunOptions& options, const supervisor::ExitStatus& status, std::unique_ptr<audit::Writer> writer,
             RunControl* control, const Ending& ending, RunResult* result) {
  const audit::Totals totals = writer->totals();
  const bool recorded = writer->healthy();
  writer.reset();
  result->status = status;
  result->totals = totals;
  result->audit_complete = recorded;
  const int code = !recorded ? kExitFault : options.fail_on_deny && totals.denied > 0 ? kExitDenied : status.code;
  return ending.Tell(result, code, [&](int told) {
    if (!options.quiet) LogInfo("{} · {} allowed · {} denied", DescribeExit(status), totals.allowed, totals.denied);
    if (!recorded) LogError("audit records could not be written to {}; traffic was refused from then on", options.audit);
    if (control != nullptr) control->Finish(status, totals, told);
  });
}

// To who reads the outer run's decisions, where this one is in its sandbox.
Result<void> AddSender(const RunOptions& options, std::optional<RecordSender>* sender, TapList* taps) {
  if (options.records_fd < 0) return {};
  auto records = TakeChannel(options.records_fd);
  if (!records) return std::unexpected(records.error());
  taps->Add(sender->emplace(*std::move(records)));
  return {};
}

// A policy that is given by a descriptor.
Result<void> TakePolicy(RunOptions* options) {
  if (options->policy_fd < 0) return {};
  auto text = ReadPolicyDescriptor(options->policy_fd);
  if (!text) return std::unexpected(text.error());
  options->policy_text = *std::move(text);
  return {};
}

}  // namespace

namespace {

// Ends the run at its first denial, from the thread that writes records, which outlives the sandbox.
class KillSwitch {
 public:
  void Arm(supervisor::Workload* workload) {
    const std::lock_guard lock(mutex_);
    workload_ = workload;
  }
  void Pull() {
    const std::lock_guard lock(mutex_);
    if (workload_ != nullptr) workload_->Kill(supervisor::EndedBy::kPolicy);
  }

 private:
  std::mutex mutex_;
  supervisor::Workload* workload_ = nullptr;
};

// One run, from its plan to its exit code. `result` learns what the launcher is told by `ending`.
int RunOnce(const RunOptions& options, const std::optional<ResultFile>& result_file, const Ending& ending, RunResult* result,
            RunTally* tally, KillSwitch* kill_switch) {
  const auto failed = [result, &ending](const Error& error, int (*tell)(const Error&) = Report) {
    result->error = error.message;
    return ending.Tell(result, tell(error));
  };
  const auto room = RaiseDescriptorLimit();
  if (!room) return failed(room.error());
  std::vector<supervisor::PublishedPort> ports;
  for (const std::string& text : options.publish) {
    auto port = supervisor::ParsePublishedPort(text);
    if (!port) return failed(port.error());
    ports.push_back(*port);
  }

  // The order hides what takes long behind what is needed anyway. Whatever forks comes before the first thread.
  auto begun = supervisor::CaptureInProgress::Begin();
  if (!begun) return failed(begun.error());
  std::unique_ptr<supervisor::Publisher> publisher;  // before a secret is read
  if (!ports.empty()) {
    auto made = supervisor::Publisher::Begin(ports);
    if (!made) return failed(made.error());
    publisher = *std::move(made);
    result->published = publisher->ports();
  }
  auto plan = MakePlan(options, result_file);
  if (!plan) return failed(plan.error());
  result->policy_digest = plan->snapshot->digest();
  result->labels = plan->labels;
  result->wall_time = plan->spec.timeout;
  plan->sandbox.engine.descriptors = {room->limit, room->ceiling};
  // Before the launch locks them: a file that is replaced meanwhile is not the one that was read.
  const HeldFiles held(plan->snapshot->files(), plan->spec);
  auto prepared = supervisor::PrepareLaunch(plan->spec);
  // While the capture is being built. The sandbox waits for an authority, whose key is made once it is begun.
  if (auto loaded = LoadLateLibrary("libcrypto.so"); !loaded) return failed(loaded.error());
  auto capture = begun->Finish();
  if (!capture) return failed(capture.error());
  if (!prepared) return failed(prepared.error(), LaunchExitCode);
  auto workload = supervisor::BeginLaunch(*std::move(prepared), *capture);
  if (!workload) return failed(workload.error(), LaunchExitCode);
  // From here on the supervisor works while the sandbox is being built.
  if (auto made = ProvideAuthority(options, **workload, &*plan); !made) return failed(made.error(), LaunchExitCode);
  if (auto loaded = LoadLateLibraries(); !loaded) return failed(loaded.error());
  begun->End();
  if (publisher)
    if (auto serving = publisher->Serve(*capture); !serving) return failed(serving.error());

  policy::CurrentPolicy policy(plan->snapshot);
  audit::Options audit_options = MakeAuditOptions(options, std::move(plan->labels), result->name);
  DecisionStream stream;
  TapList taps;
  if (tally != nullptr) taps.Add(*tally);
  if (plan->control.wanted()) taps.Add(stream);
  std::optional<RecordSender> sender;
  if (auto added = AddSender(options, &sender, &taps); !added) return failed(added.error());
  audit_options.tap = taps.tap();
  auto writer = audit::Writer::Start(audit_options, std::move(plan->audit_file));
  if (!writer) return failed(writer.error());
  // Its records end before the writer does, however this is left.
  const std::unique_ptr<supervisor::Publisher> published = std::move(publisher);
  if (published) published->Tell([&sink = **writer](const auto& connection) { (void)sink.Record(RecordOf(connection)); });
  const std::shared_ptr<proxy::SecretStore> secrets = plan->sandbox.engine.secrets;
  auto sandbox = Sandbox::Create(std::move(plan->sandbox), *std::move(capture), *std::move(workload), policy, **writer);
  if (!sandbox) return failed(sandbox.error());
  kill_switch->Arm(&(*sandbox)->workload());
  if (plan->nested) {
    (*sandbox)->workload().OnFreeze([nested = plan->nested.get()](bool frozen) { frozen ? nested->Freeze() : nested->Thaw(); });
    if (auto serving = plan->nested->Serve(options, plan->spec, policy, plan->control.wanted() ? &stream : nullptr); !serving)
      return failed(serving.error());
  }
  const auto control = StartControl(options, &*plan, held, policy, **sandbox, **writer, stream, result->published);
  if (!control) return failed(control.error());
  const auto status = Supervise(options, *plan, held, *secrets, **sandbox, policy, {plan->nested.get(), control->get()}, result);
  if (*control) (*control)->CommandEnded();
  plan->nested.reset();
  kill_switch->Arm(nullptr);
  sandbox->reset();
  if (published) published->Finish();
  if (status) return Conclude(options, *status, *std::move(writer), control->get(), ending, result);
  return ending.Tell(result, status.error(), [&](int told) {
    if (*control) (*control)->Failed(result->error, told);
  });
}

}  // namespace

int Run(const RunOptions& given) {
  RunOptions options = given;
  if (auto read = ReadLaunchFile(&options); !read) return Report(read.error());
  if (options.verbose) SetLogLevel(LogLevel::kDebug);
  ChooseLogLevel(options);
  if (auto taken = TakePolicy(&options); !taken) return Report(taken.error());
  options.check_executables = !options.nested;
  if (options.command.empty())
    return Report(Error{Code::kInvalid, "no command; write: sluice run [OPTIONS] -- COMMAND [ARGUMENT...]"});
  if (InSandbox()) return RunInside(options);
  if (auto named = CheckPolicyNamed(options); !named) return Report(named.error());
  // While the outer run has it stopped it would not see its lifeline end.
  if (options.nested) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Before any thread exists, so that all inherit it: the watcher alone takes SIGHUP.
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  signal(SIGPIPE, SIG_IGN);
  if (auto checked = CheckOutputs(options); !checked) return Report(checked.error());
  std::optional<ResultFile> result_file;
  if (!options.result.empty()) {
    auto opened = ResultFile::Open(options.result);
    if (!opened) return Report(Error{Code::kInvalid, "--result: " + opened.error().message, 0, std::nullopt});
    result_file.emplace(*std::move(opened));
  }
  RunResult result;
  result.command = options.command;
  result.name = options.name.empty() ? std::filesystem::path(options.command.front()).filename().string() : options.name;
  result.transcript = options.transcript;
  result.started = SystemClock().Wall();
  const SteadyTime begin = SystemClock().Steady();
  KillSwitch kill_switch;
  RunTally tally(result_file.has_value(),
                 options.kill_on_deny ? std::function<void()>([&kill_switch] { kill_switch.Pull(); }) : nullptr);
  const bool counted = result_file || options.kill_on_deny;
  const Ending ending(result_file ? &*result_file : nullptr, tally, begin);
  return RunOnce(options, result_file, ending, &result, counted ? &tally : nullptr, &kill_switch);
}

}  // namespace sluice::app
