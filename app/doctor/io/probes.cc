#include "app/doctor/io/probes.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <utility>

#include "app/doctor/judge.h"
#include "base/random.h"
#include "base/socket_seal.h"
#include "nft/encode.h"
#include "nft/io/session.h"
#include "nft/io/transaction.h"
#include "supervisor/capture_ruleset.h"
#include "supervisor/fence_ruleset.h"
#include "supervisor/io/capture_network.h"
#include "supervisor/io/flow_purge.h"
#include "supervisor/io/mount_calls.h"
#include "supervisor/io/socket_owner.h"
#include "supervisor/io/throw_away.h"

namespace sluice::app {
namespace {

using supervisor::ThrowAway;
using supervisor::Trial;
using supervisor::Tried;

// Trials and what they stand for, side by side.
struct Plan {
  std::vector<Trial> trials;
  std::vector<TrialInfo> infos;

  void Add(TrialInfo info, std::function<Result<void>()> run) {
    trials.push_back({info.name, std::move(run)});
    infos.push_back(std::move(info));
  }
};

Result<void> MountNew(const char* type) {
  const auto made = supervisor::NewFileSystem(type, {}, 0);
  return made ? Result<void>() : std::unexpected(made.error());
}

// A fresh /proc is of the pid namespace of who mounts it: its first process, then.
Result<void> MountProc() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(MountNew("proc") ? 0 : 1);
  int status = 0;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return Fail(Code::kUnsupported, child < 0 ? "cannot fork" : "no fresh /proc may be mounted in a user namespace");
}

// As the view of a sandbox is made: a tree of the host's, read-only (Linux 5.12).
Result<void> CloneReadOnly() {
  auto tree = supervisor::CloneTree("/usr", supervisor::CloneDepth::kRecursive);
  if (!tree) return std::unexpected(tree.error());
  return supervisor::SetAttributes(tree->get(), MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, "/usr");
}

Result<void> OpenIpv6() {
  const UniqueFd socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return socket ? Result<void>() : FailErrno("this kernel has IPv6 turned off", errno);
}

// A socket of this process is found by its address.
Result<void> DiagnoseSockets() {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  socklen_t size = static_cast<socklen_t>(Endpoint{IpAddress::FromV4(0x7f000001), 0}.ToSockaddr(&address));
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return FailErrno("cannot bind 127.0.0.1", errno);
  const auto local = Endpoint::FromSockaddr(reinterpret_cast<const sockaddr*>(&address), size);
  auto owner = supervisor::SocketOwner::OpenHere();
  if (!owner) return std::unexpected(owner.error());
  if (local && owner->FindSender(policy::Transport::kUdp, *local)) return {};
  return Fail(Code::kUnsupported, "a socket that is there was not found");
}

// One rule in a table of its own, which is left to the namespace's end.
nft::Table OneRule(nft::Hold hold, nft::Rule rule,
                   nft::Chain chain = {"tried", nft::Hook::kOutput, 0, nft::Policy::kAccept, {}}) {
  nft::Table table{nft::Family::kInet, "sluice_try_" + RandomHex(6), {}};
  table.hold = hold;
  chain.rules.push_back(std::move(rule));
  table.chains.push_back(std::move(chain));
  return table;
}

// Adds the table, and takes it away again where it would stay.
Result<void> AddAndForget(const nft::Table& table) {
  if (auto added = nft::Add(table); !added) return added;
  if (table.hold != nft::Hold::kDormant) return {};
  auto session = nft::Session::Open();
  if (!session) return std::unexpected(session.error());
  nft::BatchBuilder builder((*session)->NextSequence());
  builder.DeleteTable(table);
  const auto batch = builder.Finish();
  return batch ? (*session)->Commit(*batch) : Result<void>(std::unexpected(batch.error()));
}

constexpr const char* kNeedsNft =
    "the kernel needs the module: CONFIG_NF_TABLES_INET and the one named (modprobe it where modules are loaded)";

void AddExpressions(Plan* plan, Feature feature, const std::string& prefix, nft::Hold hold) {
  using namespace nft;
  const auto add = [&](const char* name, const char* what, Rule rule,
                       Chain chain = {"tried", Hook::kOutput, 0, Policy::kAccept, {}}) {
    plan->Add({feature, fmt::format("{}.{}", prefix, name), what, "", kNeedsNft},
              [table = OneRule(hold, std::move(rule), std::move(chain))] { return AddAndForget(table); });
  };
  add("reject", "reject (nft_reject_inet)", {ProtocolIs{Protocol::kTcp}, Reject::kTcpReset});
  if (feature == Feature::kCaptureRules) {
    const Chain mangle{"tried", Hook::kPrerouting, -150, Policy::kAccept, {}};
    add("tproxy", "tproxy (nft_tproxy)", {ProtocolIs{Protocol::kTcp}, TproxyTo{supervisor::kListenerPort}}, mangle);
    add("socket", "socket transparent (nft_socket)", {ProtocolIs{Protocol::kTcp}, SocketIsTransparent{}, Verdict::kAccept},
        mangle);
    return;
  }
  const Chain nat{"tried", Hook::kOutput, -100, Policy::kAccept, {}, ChainType::kNat};
  add("redirect", "redirect (nft_redir, nft_chain_nat)", {ProtocolIs{Protocol::kTcp}, RedirectTo{15001}}, nat);
  add("state", "ct state, direction, status (nft_ct)",
      {StateIn{kEstablished}, DirectionIs{Direction::kOriginal}, Rewritten{Test::kNotEqual}, Verdict::kAccept});
  add("flow-mark", "ct mark", {FlowMarkIs{0xff000000, 0x01000000}, SetFlowMark{0xff000000, 0x02000000}});
  add("fib", "fib saddr type (nft_fib_inet)", {SourceIsForeign{}, Counter{}, Verdict::kDrop},
      {"tried", Hook::kPrerouting, -300, Policy::kAccept, {}});
  add("owner-of-socket", "meta skuid", {HasOwner{}, Verdict::kDrop});
  add("limit", "limit, log, counter (nft_limit, nft_log)", {Limit{5, 5}, Log{"sluice "}, Counter{}});
}

// What hooks a device on its way out, and has a table of another family.
Result<void> TryEgress(nft::Hold hold) {
  using namespace nft;
  Table table{Family::kNetdev, "sluice_try_" + RandomHex(6), {}};
  table.hold = hold;
  Chain chain{"tried", Hook::kEgress, 0, Policy::kAccept, {}};
  chain.devices = {"lo"};
  chain.rules.push_back({HasOwner{}, SetMark{0}, SetPriority{0}, Verdict::kAccept});
  table.chains.push_back(std::move(chain));
  return AddAndForget(table);
}

Result<void> TrySets(nft::Hold hold) {
  using namespace nft;
  Table table{Family::kInet, "sluice_try_" + RandomHex(6), {}};
  table.hold = hold;
  table.sets.push_back(
      {.name = "dyn", .key = {KeyType::kAddress4, KeyType::kProtocol, KeyType::kPort}, .size = 16, .timeouts = true});
  table.sets.push_back({.name = "seen",
                        .key = {KeyType::kMark},
                        .size = 16,
                        .timeouts = true,
                        .timeout = std::chrono::seconds(60),
                        .dynamic = true});
  table.sets.push_back(
      {.name = "ranges", .key = {KeyType::kAddress4, KeyType::kProtocol, KeyType::kPort}, .kind = SetKind::kInterval});
  Chain chain{"tried", Hook::kOutput, 0, Policy::kAccept, {}};
  const std::vector<Field> target = {Field::kDestination4, Field::kProtocol, Field::kDestinationPort};
  chain.rules.push_back({InSet{target, "dyn"}, Verdict::kAccept});
  chain.rules.push_back({InSet{target, "ranges"}, Verdict::kAccept});
  chain.rules.push_back({AddTo{{Field::kMark}, "seen"}, Verdict::kAccept});
  table.chains.push_back(std::move(chain));
  return AddAndForget(table);
}

Result<void> TryTraits(std::function<Result<void>(const nft::Session::Traits&)> judge) {
  auto session = nft::Session::Open();
  if (!session) return std::unexpected(session.error());
  auto traits = (*session)->Probe();
  return traits ? judge(*traits) : Result<void>(std::unexpected(traits.error()));
}

// The whole of it, as it would be installed.
Result<void> TryFence(nft::Hold hold) {
  supervisor::FencePlan plan{.seal = DrawSeal(), .passage = DrawSeal(), .proxy_port = 15001, .dns_port = 15053};
  plan.allow.push_back({Cidr::Of(IpAddress::FromV4(0xc0000200), 24), nft::Protocol::kTcp, 443, 443});
  for (nft::Table& table : supervisor::FenceRuleset(plan)) {
    table.hold = hold;
    if (hold == nft::Hold::kDormant) table.name += "_try_" + RandomHex(6);
    if (auto added = AddAndForget(table); !added) return added;
  }
  return {};
}

Plan SandboxPlan() {
  Plan plan;
  plan.Add({Feature::kMounts, "mounts.tmpfs", "tmpfs", "", "the kernel needs Linux 5.2 and CONFIG_TMPFS"},
           [] { return MountNew("tmpfs"); });
  plan.Add({Feature::kMounts, "mounts.proc", "a fresh /proc", "", "unmount what lies over parts of /proc"}, MountProc);
  plan.Add({Feature::kMounts, "mounts.devpts", "a terminal of its own (devpts)", "", "CONFIG_UNIX98_PTYS"},
           [] { return MountNew("devpts"); });
  plan.Add({Feature::kMounts, "mounts.attributes", "read-only copies of trees (mount_setattr)", "", "Linux 5.12 or later"},
           CloneReadOnly);
  plan.Add({Feature::kIpv6, "ipv6", "IPv6", "", "boot without ipv6.disable=1: the capture's sockets serve both families"},
           OpenIpv6);
  plan.Add({Feature::kNetwork, "network.loopback", "every address is local in a namespace of its own", "", ""},
           [] { return supervisor::ConfigureLoopback(supervisor::NamespaceOrigin::kOwn); });
  plan.Add({Feature::kNetwork, "network.sysctls", "tcp_fastopen off, ports below 1024 held back", "",
            "/proc/sys/net is read-only here: mount it writable, or start where it is"},
           [] { return supervisor::ConfigureSysctls(); });
  plan.Add({Feature::kNetwork, "network.sockets", "a transparent listener and a resolver's sockets", "", ""},
           []() -> Result<void> {
             auto opened = supervisor::OpenCaptureSockets();
             return opened ? Result<void>() : std::unexpected(opened.error());
           });
  AddExpressions(&plan, Feature::kCaptureRules, "nft-capture", nft::Hold::kShared);
  plan.Add({Feature::kCaptureRules, "nft-capture.ruleset", "the whole ruleset", "", kNeedsNft},
           [] { return nft::Add(supervisor::CaptureRuleset(supervisor::kListenerPort)); });
  plan.Add(
      {Feature::kSocketDiagnosis, "socket-diagnosis", "who owns a socket (inet_diag)", "", "the kernel needs CONFIG_INET_DIAG"},
      DiagnoseSockets);
  return plan;
}

Plan FencePlanFor(nft::Hold hold) {
  Plan plan;
  AddExpressions(&plan, Feature::kFenceRules, "nft-fence", hold);
  plan.Add({Feature::kFenceRules, "nft-fence.egress", "egress of a device (netdev)", "",
            "Linux 5.16 or later, CONFIG_NETFILTER_EGRESS"},
           [hold] { return TryEgress(hold); });
  plan.Add({Feature::kFenceRules, "nft-fence.sets", "sets with timeouts, concatenations, ranges, and that rules add to", "",
            kNeedsNft},
           [hold] { return TrySets(hold); });
  plan.Add({Feature::kFenceRules, "nft-fence.ruleset", "the whole fence", "", kNeedsNft}, [hold] { return TryFence(hold); });
  plan.Add({Feature::kFenceRules, "nft-fence.owner", "tables that nobody else may change (owner, persist)",
            "the fence is watched and put back instead: Linux 6.9 gives it an owner", ""},
           [] {
             return TryTraits([](const nft::Session::Traits& traits) -> Result<void> {
               if (traits.owned_persistent) return {};
               return Fail(Code::kUnsupported, "no flags owner and persist");
             });
           });
  plan.Add({Feature::kConntrack, "conntrack", "flows are listed and cut (ctnetlink, sock_destroy)", "",
            "the kernel needs CONFIG_NF_CT_NETLINK (modprobe nf_conntrack_netlink)"},
           []() -> Result<void> {
             auto purger = supervisor::FlowPurger::Open();
             if (!purger) return std::unexpected(purger.error());
             const auto flows = (*purger)->Flows(0xff000000);
             return flows ? Result<void>() : std::unexpected(flows.error());
           });
  return plan;
}

}  // namespace

std::vector<Check> ProbeSandbox(const PlaceFacts& place) {
  const Plan plan = SandboxPlan();
  return JudgeSandbox(supervisor::TryThere(ThrowAway::kUser, plan.trials), plan.infos, place);
}

std::vector<Check> ProbeFence(const PlaceFacts& place) {
  const Plan plan = FencePlanFor(nft::Hold::kShared);
  Tried tried = supervisor::TryThere(ThrowAway::kUser, plan.trials);
  if (tried.made) return JudgeFence(tried, plan.infos, place, "in a network namespace of its own");
  tried = supervisor::TryThere(ThrowAway::kNetwork, plan.trials);
  if (tried.made) return JudgeFence(tried, plan.infos, place, "in a network namespace of its own");
  // A pod's sidecar may make no namespace: what is tried in its own sees no packet.
  const Plan dormant = FencePlanFor(nft::Hold::kDormant);
  constexpr unsigned kNetAdmin = 12;
  if (!Holds(place, kNetAdmin)) return JudgeFence(tried, dormant.infos, place, "");
  return JudgeFence(supervisor::TryThere(ThrowAway::kHere, dormant.trials), dormant.infos, place,
                    "in tables that were switched off");
}

}  // namespace sluice::app
