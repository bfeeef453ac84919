#include "app/sidecar.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/capability.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "app/canary_probe.h"
#include "app/exit_code.h"
#include "app/fence_allows.h"
#include "app/host.h"
#include "app/opensandbox.h"
#include "app/own_authority.h"
#include "app/own_policy_text.h"
#include "app/reload.h"
#include "app/sd_notify.h"
#include "app/service.h"
#include "app/sidecar_checks.h"
#include "app/sidecar_server.h"
#include "base/log.h"
#include "base/socket_seal.h"
#include "policy/io/load.h"
#include "proxy/io/secret_store.h"
#include "proxy/io/tls.h"
#include "supervisor/io/network_place.h"
#include "supervisor/io/privileges.h"
#include "supervisor/io/redirect_sockets.h"

namespace sluice::app {
namespace {

constexpr std::string_view kCommand = "sluice sidecar";
constexpr const char* kUsualPolicy = "/etc/sluice/policy.yaml";
constexpr std::chrono::seconds kFetchDeadline{25};  // longer than the exchange's own
constexpr std::chrono::milliseconds kEndLook{100};

const char* Environment(const char* name) { return std::getenv(name); }

bool HasCapability(cap_value_t capability) {
  const std::unique_ptr<std::remove_pointer_t<cap_t>, int (*)(void*)> held(cap_get_proc(), cap_free);
  cap_flag_value_t value = CAP_CLEAR;
  return held != nullptr && cap_get_flag(held.get(), capability, CAP_EFFECTIVE, &value) == 0 && value == CAP_SET;
}

// Process 1 of a process namespace of its own sees nobody but itself, and without SYS_PTRACE nobody's descriptors.
ProcessSight FindProcessSight(const std::string& wanted) {
  if (wanted == "seen") return ProcessSight::kSeen;
  if (wanted == "unseen") return ProcessSight::kUnseen;
  return getpid() != 1 && HasCapability(CAP_SYS_PTRACE) ? ProcessSight::kSeen : ProcessSight::kUnseen;
}

// Nothing is sent: connecting a datagram socket looks the route up.
bool HasRoute(const char* address) {
  sockaddr_storage to{};
  const auto size = static_cast<socklen_t>(Endpoint{*IpAddress::Parse(address), 9}.ToSockaddr(&to));
  const UniqueFd probe(socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return probe && connect(probe.get(), reinterpret_cast<const sockaddr*>(&to), size) == 0;
}

// What is decided before anything is bound.
struct Start {
  std::map<std::string, std::string> labels;
  policy::SnapshotPtr snapshot;
  SidecarPlan plan;
  std::shared_ptr<proxy::SecretStore> secrets = std::make_shared<proxy::SecretStore>(proxy::SecretStoreOptions{});
  std::chrono::milliseconds drain{};
  AdminPlan admin;
  policy::SnapshotPtr own;            ///< the command line's policy; null: it names none
  std::optional<PolicyText> first{};  ///< what begins in its place
};

// Whether a bundle or a compatible front gives the policy.
bool IsGivenElsewhere(const SidecarOptions& options) {
  return !options.admin.policy_url.empty() || !options.admin.compat.empty();
}

// Where the command line names no source: what OpenSandbox starts as its own egress sidecar, else the usual file.
SidecarOptions WithUsualSource(SidecarOptions options) {
  if (IsGivenElsewhere(options) || CheckPolicyNamed(options)) return options;
  if (IsOpenSandboxEnvironment(Environment))
    options.admin.compat = "opensandbox";
  else if (std::filesystem::exists(kUsualPolicy))
    options.policy = kUsualPolicy;
  return options;
}

Result<void> CheckPolicyNamedOnce(const SidecarOptions& options) {
  if (!IsGivenElsewhere(options)) {
    auto named = CheckPolicyNamed(options);
    if (!named)
      named.error().message += fmt::format(", or write the policy to {}, which is read where nothing else is said", kUsualPolicy);
    return named;
  }
  if (CheckPolicyNamed(options))
    return Fail(Code::kInvalid,
                "the policy comes from --policy-url or --compat; --policy, --allow and --preset would have no effect");
  return {};
}

Result<policy::SnapshotPtr> Load(const SidecarOptions& options, Start& start) {
  auto snapshot = LoadPolicy(options, kCommand, ServedIn::kSidecar);
  if (!snapshot) return snapshot;
  if (auto checked = CheckSidecarPolicy(**snapshot, start.plan.processes); !checked) return std::unexpected(checked.error());
  if (auto read = start.secrets->Load((*snapshot)->credentials(), (*snapshot)->proxies()); !read)
    return std::unexpected(read.error());
  return snapshot;
}

void Tell(const SidecarOptions& options, const policy::Snapshot& snapshot) {
  TellPolicy(snapshot, options);
  TellSidecarPolicy(snapshot);
}

// A policy as text, under the same options. Secrets of its own are read where its publisher is trusted with them.
Result<policy::SnapshotPtr> Compile(const SidecarOptions& options, proxy::SecretStore& secrets, const PolicyText& text) {
  policy::LoadOptions load;
  load.check_executables = false;
  auto snapshot = CompileText(options, text, std::move(load));
  if (!snapshot || options.admin.policy_url.empty()) return snapshot;
  if (auto read = secrets.Load((*snapshot)->credentials(), (*snapshot)->proxies()); !read) return std::unexpected(read.error());
  return snapshot;
}

Result<policy::SnapshotPtr> CompileChecked(const SidecarOptions& options, const Start& start, const PolicyText& text) {
  auto snapshot = Compile(options, *start.secrets, text);
  if (!snapshot) return snapshot;
  if (auto checked = CheckSidecarPolicy(**snapshot, start.plan.processes); !checked) return std::unexpected(checked.error());
  return snapshot;
}

// A bundle, through the engine: sealed, resolved and verified as upstreams are. Given up where `ending` comes first.
Result<FetchedBundle> FetchBundle(proxy::Engine& engine, const std::atomic<bool>& ending, const std::string& url,
                                  const std::string& tag, size_t most) {
  auto promise = std::make_shared<std::promise<Result<FetchedBundle>>>();
  auto answer = promise->get_future();
  engine.Fetch({url, tag, most}, [promise](Result<proxy::FetchAnswer> fetched) {
    if (!fetched) return promise->set_value(std::unexpected(fetched.error()));
    promise->set_value(FetchedBundle{fetched->status, std::move(fetched->entity_tag), std::move(fetched->body)});
  });
  const auto deadline = std::chrono::steady_clock::now() + kFetchDeadline;
  while (answer.wait_for(kEndLook) != std::future_status::ready)
    if (ending || std::chrono::steady_clock::now() > deadline) return Fail(Code::kTimeout, url + " did not answer in time");
  try {
    return answer.get();
  } catch (const std::future_error&) {
    return Fail(Code::kInternal, "the sidecar is ending");
  }
}

// The policy that is in force first.
Result<void> ChooseFirst(const SidecarOptions& options, Start& start) {
  if (!IsGivenElsewhere(options)) {
    auto own = Load(options, start);
    if (!own) return std::unexpected(own.error());
    start.own = start.snapshot = *std::move(own);
    Tell(options, *start.own);
  }
  auto first = FirstPolicy(start.admin, start.own ? start.own->digest() : "");
  if (!first) return std::unexpected(first.error());
  if (!*first) return {};
  auto compiled = CompileChecked(options, start, **first);
  if (compiled) {
    start.snapshot = *std::move(compiled);
    start.first = *std::move(first);
    TellSidecarPolicy(*start.snapshot);
    return {};
  }
  // What was kept can no longer be carried out. Nothing is let out until the publisher is heard; an operator's own policy stands.
  if (start.admin.front) return std::unexpected(compiled.error());
  LogError("the policy that was kept is not used: {}", compiled.error().message);
  start.admin.stored.reset();
  if (start.own) return {};
  return ChooseFirst(options, start);
}

// Shut, until the ports are known and the policy is.
supervisor::FencePlan SealedPlan(const SidecarOptions& options) {
  supervisor::FencePlan plan;
  plan.seal = DrawSeal();
  plan.passage = DrawSeal();
  plan.inbound = options.no_inbound ? supervisor::FenceInbound::kDrop : supervisor::FenceInbound::kAccept;
  return plan;
}

Result<Start> MakeStart(const SidecarOptions& options) {
  Start start;
  auto drain = ParseDrain(options.drain);
  if (!drain) return std::unexpected(drain.error());
  start.drain = *drain;
  auto labels = ParseLabels(options.labels);
  if (!labels) return std::unexpected(labels.error());
  start.labels = *std::move(labels);
  start.plan.processes = FindProcessSight(options.processes);
  auto admin = PlanAdministration(options.admin);
  if (!admin) return std::unexpected(admin.error());
  start.admin = *std::move(admin);
  if (auto chosen = ChooseFirst(options, start); !chosen) return std::unexpected(chosen.error());
  auto engine = MakeEngineOptions(options);
  if (!engine) return std::unexpected(engine.error());
  start.plan.engine = *std::move(engine);
  start.plan.engine.secrets = start.secrets;
  auto authority = MakeAuthority(options.ca_cert, options.ca_key, {});
  if (!authority) return std::unexpected(authority.error());
  start.plan.engine.authority = *std::move(authority);
  start.plan.fence = SealedPlan(options);
  if (options.unsafe_workload_rights) start.plan.workload_rights = WorkloadRights::kUnsafeAccepted;
  start.plan.engine.lookups.seal = start.plan.fence.seal;
  start.plan.ipv6 = HasRoute("2000::1") ? dns::Ipv6Egress::kPresent : dns::Ipv6Egress::kAbsent;
  return start;
}

// The rules as they would be; the seals, which are secret, are drawn for this alone.
int PrintRules(const Start& start, const SidecarOptions& options) {
  supervisor::FencePlan plan = start.plan.fence;
  constexpr uint16_t kShownProxyPort = 15001;
  constexpr uint16_t kShownDnsPort = 15053;
  plan.proxy_port = options.proxy_port != 0 ? options.proxy_port : kShownProxyPort;
  plan.dns_port = options.dns_port != 0 ? options.dns_port : kShownDnsPort;
  FenceAllows allows = FenceAllowsFor(*start.snapshot, SystemClock().Wall());
  plan.allow = std::move(allows.allow);
  plan.deny = std::move(allows.deny);
  for (const nft::Table& table : supervisor::FenceRuleset(plan)) std::fputs(nft::ToText(table).c_str(), stdout);
  return kExitOk;
}

void Announce(const SidecarOptions& options, const policy::Snapshot& snapshot, SidecarServer& server) {
  const supervisor::Fence& fence = *server.fence();
  for (const std::string& weakness : fence.Weaknesses()) LogWarn("{}", weakness);
  if (!fence.Weaknesses().empty()) LogInfo("`sluice doctor --mode sidecar` tells what this machine would need");
  bool ready = true;
  for (const ReadinessCheck& check : server.Readiness()) {
    if (!check.ok) LogError("not ready: {}: {}", check.name, check.detail);
    ready = ready && check.ok;
  }
  if (options.quiet || !ready) return;
  LogInfo("ready  policy {}  {} rule{}  fence {}  dns {}{}", snapshot.digest().substr(0, 12), snapshot.rules().size(),
          snapshot.rules().size() == 1 ? "" : "s",
          fence.hold() == supervisor::FenceHold::kOwnedPersistent ? "owned and persistent" : "watched",
          snapshot.settings().dns == policy::DnsMode::kReal ? "real" : "synthetic", AuditModeRemark(snapshot));
}

Result<void> Serve(const SidecarOptions& options, Start& start, std::unique_ptr<supervisor::Fence> fence, CanaryProbe canary,
                   audit::Writer& writer, DecisionStream& stream) {
  policy::CurrentPolicy policy(start.snapshot);
  if (auto written = WriteAuthority(options.ca_out, options.bundle_out, start.plan.engine.authority->pem()); !written)
    return written;
  start.secrets->Watch();
  const std::string own = options.policy.empty() ? "the command line" : options.policy;
  const std::string source = start.first ? FirstSource(start.admin) : own;
  auto server = SidecarServer::Start(std::move(start.plan), std::move(fence), std::move(canary), policy, source, writer);
  if (!server) return std::unexpected(server.error());
  if (auto proved = (*server)->Prove(); !proved) return proved;
  AdminParts parts;
  parts.compile = [&](const PolicyText& text) { return Compile(options, *start.secrets, text); };
  parts.own_text = [&] { return OwnPolicyText(options); };
  std::atomic<bool> ending{false};
  parts.fetch = [&engine = (*server)->engine(), &ending](const std::string& url, const std::string& tag, size_t most) {
    return FetchBundle(engine, ending, url, tag, most);
  };
  parts.own = start.own;
  parts.in_force = start.first;
  auto admin = Administration::Start(std::move(start.admin), std::move(parts), **server, stream);
  if (!admin) return std::unexpected(admin.error());
  Result<std::unique_ptr<PolicyWatcher>> watcher = nullptr;
  if (!IsGivenElsewhere(options))
    watcher = PolicyWatcher::Start(
        start.own, [&] { return Load(options, start); },
        [&](policy::SnapshotPtr next) -> Result<uint64_t> {
          Tell(options, *next);
          const auto revision = (*server)->SetOwnPolicy(next, own);
          if (revision) (*admin)->api().OwnPolicyLoaded(std::move(next), *revision);
          return revision;
        },
        ReloadNotice::kService);
  if (!watcher) return std::unexpected(watcher.error());
  Announce(options, *start.snapshot, **server);
  NotifyService("READY=1");
  (void)WaitForEnd(std::nullopt);
  NotifyService("STOPPING=1");
  ending = true;
  (*server)->BeginDrain();
  DrainEngine((*server)->engine(), start.drain, options.quiet);
  return {};
}

// A fence around a machine is nearly always a mistake: whoever is logged in over the network is cut off.
Result<void> CheckNetworkMeant(const SidecarOptions& options) {
  if (options.dry_run || options.host_network) return {};
  const auto why = supervisor::WhyMachinesNetwork();
  if (!why) return {};
  return Fail(
      Code::kInvalid,
      fmt::format("this is a machine's own network ({}), and every process of it would be fenced; start the sidecar in the "
                  "network namespace of the workload (a pod, `ip netns exec NAME`), or say --host-network where the whole "
                  "machine is meant",
                  *why));
}

// Of two, one would end with the other's tables.
Error AnotherRuns() {
  return {Code::kInvalid,
          "a sidecar runs in this network namespace already, and the fence is its own: one is enough for all processes of the "
          "namespace; end it first where this one is to take its place",
          0,
          {}};
}

Result<void> CheckAlone(const SidecarOptions& options) {
  if (options.dry_run) return {};
  const auto standing = supervisor::Fence::Stands();
  // Who may not even look hears of it from the installation.
  if (!standing || *standing != supervisor::Fence::Standing::kHeld) return {};
  return std::unexpected(AnotherRuns());
}

// Why there is no sidecar. Tables that stand already are shut whatever keeps it from starting: what the kernel passed for a
// former one must not go on, and is cut as the fence is let go.
int ReportUnstarted(const SidecarOptions& options, const Error& error) {
  const auto standing = supervisor::Fence::Stands();
  if (options.dry_run || !standing || *standing != supervisor::Fence::Standing::kLeft) return Report(error);
  const auto shut = supervisor::Fence::Install(supervisor::ClosedPlan(SealedPlan(options)));
  if (shut) return Report(LeftShut(error));
  LogError("the fence of a former sidecar is not shut: {}", shut.error().message);
  return Report(error);
}

// An error of the installation, which may have come after the tables did.
int ReportInstall(const Error& error) {
  const auto standing = supervisor::Fence::Stands();
  // Another that was quicker.
  if (standing && *standing == supervisor::Fence::Standing::kHeld) return Report(AnotherRuns());
  const bool left = standing && *standing == supervisor::Fence::Standing::kLeft;
  return ReportMachine(left ? LeftShut(error) : error, "sidecar");
}

// From the installation on, whatever fails leaves the fence shut. Where tables stand already it comes before all that can wait.
int RunFenced(const SidecarOptions& options, Start& start, CanaryProbe canary) {
  const auto standing = supervisor::Fence::Stands();
  const bool first = standing && *standing == supervisor::Fence::Standing::kNone;
  const auto places = [&] { return CheckPlaces(options, start.admin.addresses); };
  if (first)
    if (auto possible = places(); !possible) return Report(possible.error());
  auto fence = supervisor::Fence::Install(supervisor::ClosedPlan(start.plan.fence));
  if (!fence) return ReportInstall(fence.error());
  const auto failed = [](const Error& error) { return Report(LeftShut(error)); };
  if (!first)
    if (auto possible = places(); !possible) return failed(possible.error());
  auto sockets = supervisor::OpenRedirectSockets(options.proxy_port, options.dns_port);
  if (!sockets) return failed(sockets.error());
  start.plan.sockets = *std::move(sockets);
  if (auto kept = supervisor::KeepReadingOnly(supervisor::NetworkRights::kAdministration); !kept) return failed(kept.error());
  if (auto forbidden = supervisor::ForbidDumps(); !forbidden) return failed(forbidden.error());
  DecisionStream stream;
  audit::Options audit = MakeAuditOptions(options, std::move(start.labels), "sidecar");
  audit.tap = &stream;
  auto writer = audit::Writer::Start(audit);
  if (!writer) return failed(writer.error());
  if (auto served = Serve(options, start, *std::move(fence), std::move(canary), **writer, stream); !served)
    return failed(served.error());
  const audit::Totals totals = (*writer)->totals();
  const bool recorded = (*writer)->healthy();
  writer->reset();
  if (!options.quiet) LogInfo("ended, the fence stays shut · {} allowed · {} denied", totals.allowed, totals.denied);
  return recorded ? kExitOk : kExitFault;
}

}  // namespace

int RunSidecar(const SidecarOptions& given) {
  SidecarOptions options = WithUsualSource(given);
  ChooseLogLevel(options);
  if (options.admin.compat == "opensandbox") TakeOpenSandboxSettings(Environment, &options.resolvers, &options.labels);
  const auto unstarted = [&options](const Error& error) { return ReportUnstarted(options, error); };
  if (auto named = CheckPolicyNamedOnce(options); !named) return unstarted(named.error());
  if (auto meant = CheckNetworkMeant(options); !meant) return Report(meant.error());
  if (auto alone = CheckAlone(options); !alone) return Report(alone.error());
  BlockServiceSignals();
  std::optional<CanaryProbe> canary;
  if (!options.dry_run) {
    auto begun = CanaryProbe::Begin();
    if (!begun) return unstarted(begun.error());
    canary.emplace(*std::move(begun));
  }
  auto start = MakeStart(options);
  if (!start) return unstarted(start.error());
  if (options.dry_run) return PrintRules(*start, options);
  const auto room = RaiseDescriptorLimit();
  if (!room) return unstarted(room.error());
  start->plan.engine.descriptors = {room->limit, room->ceiling};
  if (!options.admin.state.empty()) {
    auto names = NameStore::Open(options.admin.state);
    if (!names) return unstarted(names.error());
    start->plan.names = *std::move(names);
  }
  // Shut before anything listens: what a former process left is adopted.
  return RunFenced(options, *start, *std::move(canary));
}

}  // namespace sluice::app
