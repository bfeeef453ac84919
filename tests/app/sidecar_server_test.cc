// A running sidecar whose kernel does not always take the rules.

#include "app/sidecar_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <initializer_list>
#include <string_view>
#include <thread>
#include <vector>

#include "audit/audit.h"
#include "base/socket_seal.h"
#include "policy/io/load.h"
#include "tests/nft/in_namespace.h"

namespace sluice::app {
namespace {

using namespace std::chrono_literals;

// The kernel's fence, but for rules that it is told not to take.
class UnwillingFence final : public supervisor::Fence {
 public:
  explicit UnwillingFence(std::unique_ptr<supervisor::Fence> fence) : fence_(std::move(fence)) {}

  Result<void> Replace(const supervisor::FencePlan& plan, const StillAllowed& still) override {
    if (plan.proxy_port == 0 ? stays_open_.load() : refusals_ > 0) {
      if (plan.proxy_port != 0) --refusals_;
      return Fail(Code::kIo, "no buffer space");
    }
    return fence_->Replace(plan, still);
  }
  Result<std::chrono::steady_clock::duration> Publish(std::span<const supervisor::FenceElement> elements,
                                                      std::chrono::milliseconds lifetime) override {
    return fence_->Publish(elements, lifetime);
  }
  Result<void> Withdraw(const std::function<bool(const supervisor::FenceElement&)>& gone) override {
    return fence_->Withdraw(gone);
  }
  Result<void> Check() override { return fence_->Check(); }
  Result<void> Watch(std::function<void(const supervisor::FenceChange&)> on_change) override {
    return fence_->Watch(std::move(on_change));
  }
  Result<std::vector<supervisor::FenceCounter>> Counters() override { return fence_->Counters(); }
  Result<std::vector<Held>> Elements() override { return fence_->Elements(); }
  [[nodiscard]] supervisor::FenceHold hold() const override { return fence_->hold(); }
  [[nodiscard]] std::vector<std::string> Weaknesses() const override { return fence_->Weaknesses(); }
  [[nodiscard]] bool OpenToNetRaw() const override { return open_to_net_raw_ || fence_->OpenToNetRaw(); }
  void Release() override { fence_->Release(); }

  void RefuseNext(int times) { refusals_ = times; }
  void StayOpen() { stays_open_ = true; }
  void OpenToNetRaw(bool open) { open_to_net_raw_ = open; }

 private:
  std::unique_ptr<supervisor::Fence> fence_;
  std::atomic<int> refusals_{0};
  std::atomic<bool> stays_open_{false};
  std::atomic<bool> open_to_net_raw_{false};
};

policy::SnapshotPtr PolicyOf(const std::string& rule) {
  auto snapshot = policy::LoadText("version: 1\nrules:\n  - allow: " + rule + "\n", "p.yaml", {});
  return snapshot ? *snapshot : nullptr;
}

ReadinessCheck CheckOf(const SidecarServer& server, std::string_view name) {
  for (ReadinessCheck& check : server.Readiness())
    if (check.name == name) return std::move(check);
  return {std::string(name), false, "no such check"};
}
std::string FenceFault(const SidecarServer& server) { return CheckOf(server, "fence").detail; }

// Until it says that, and what it says instead.
std::string AwaitCheck(const SidecarServer& server, std::string_view name, bool ok, std::string_view words) {
  ReadinessCheck check;
  for (const auto until = std::chrono::steady_clock::now() + 60s; std::chrono::steady_clock::now() < until;) {
    check = CheckOf(server, name);
    if (check.ok == ok && check.detail.find(words) != std::string::npos) return "";
    std::this_thread::sleep_for(50ms);
  }
  return std::string(name) + (check.ok ? " holds: " : " does not hold: ") + check.detail;
}

constexpr const char* kRules = "/usr/sbin/nft list table inet sluice";
bool IsOpen() { return nft::Command(kRules).find("redirect to") != std::string::npos; }

// Several who change what they looked at, beside the operator's file, which changes whatever there is. Each change is of the
// revision that it was made for, and what is said of the policy in force is true of it.
std::string TryRacing(SidecarServer& server) {
  constexpr int kEach = 15;
  std::atomic<uint64_t> set{0};
  std::atomic<bool> wrong{false};
  const uint64_t before = server.Policy().revision;
  const auto change = [&](int port) {
    for (int i = 0; i < kEach; ++i) {
      const ServedPolicy served = server.Policy();
      const auto next = PolicyOf("tcp 203.0.113.0/24:" + std::to_string(port));
      const PolicyOutcome outcome = server.SetPolicy(next, std::to_string(port), served.revision);
      if (outcome.kind == PolicyOutcome::Kind::kConflict) continue;
      ++set;
      if (outcome.kind != PolicyOutcome::Kind::kSet || outcome.revision != served.revision + 1) wrong = true;
    }
  };
  const auto reload = [&] {
    for (int i = 0; i < kEach; ++i) {
      if (!server.SetOwnPolicy(PolicyOf("tcp 203.0.113.0/24:90"), "90")) wrong = true;
      ++set;
    }
  };
  std::vector<std::thread> threads;
  for (const int port : {91, 92}) threads.emplace_back(change, port);
  threads.emplace_back(reload);
  std::atomic<bool> done{false};
  std::thread looker([&] {
    while (!done) {
      const ServedPolicy served = server.Policy();
      if (served.revision > before && !served.snapshot->rules().front().text.ends_with(":" + served.source)) wrong = true;
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  looker.join();
  if (wrong) return "a change was of another revision, or was said to be somebody else's";
  return server.Policy().revision == before + set ? "" : "a change is missing";
}

// A network that a sidecar may fence.
std::string MakeNetwork() {
  return nft::Command(
      "PATH=/usr/sbin:$PATH; exec 2>&1; ip link set lo up && ip link add eth0 type veth peer name out0 && ip link set out0 up && "
      "ip link set eth0 up && ip addr add 10.77.0.2/24 dev eth0 && ip route add default via 10.77.0.1");
}

// A server whose canary has not looked yet, and what it stands on.
struct Bed {
  std::unique_ptr<audit::Writer> writer;
  policy::CurrentPolicy policy{PolicyOf("tcp 203.0.113.0/24:443")};
  std::unique_ptr<SidecarServer> server;
  UnwillingFence* fence = nullptr;  ///< the server's

  // What went wrong.
  std::string Start(ProcessSight processes, WorkloadRights rights = WorkloadRights::kRefused) {
    auto canary = CanaryProbe::Begin();
    if (!canary) return canary.error().message;
    SidecarPlan plan;
    plan.processes = processes;
    plan.workload_rights = rights;
    plan.look_again = 200ms;
    plan.engine.lookups.servers = {*dns::ParseUpstreamServer("127.0.0.1")};
    plan.fence.seal = plan.engine.lookups.seal = DrawSeal();
    plan.fence.passage = DrawSeal();
    auto kernel = supervisor::Fence::Install(supervisor::ClosedPlan(plan.fence));
    if (!kernel) return kernel.error().message;
    auto owned = std::make_unique<UnwillingFence>(*std::move(kernel));
    fence = owned.get();
    auto sockets = supervisor::OpenRedirectSockets(0, 0);
    if (!sockets) return sockets.error().message;
    plan.sockets = *std::move(sockets);
    audit::Options quiet;
    quiet.console = false;
    auto started = audit::Writer::Start(quiet);
    if (!started) return started.error().message;
    writer = *std::move(started);
    auto served = SidecarServer::Start(std::move(plan), std::move(owned), *std::move(canary), policy, "first", *writer);
    if (!served) return served.error().message;
    server = *std::move(served);
    return "";
  }
};

// What went wrong; empty where all is as it should be.
std::string TryUnwilling() {
  if (std::string made = MakeNetwork(); !made.empty()) return made;
  Bed bed;
  if (std::string fault = bed.Start(ProcessSight::kUnseen); !fault.empty()) return fault;
  UnwillingFence& fence = *bed.fence;
  policy::CurrentPolicy& policy = bed.policy;
  const auto first = policy.Get();
  SidecarServer* const server = bed.server.get();
  if (auto proved = server->Prove(); !proved) return proved.error().message;
  if (!IsOpen()) return "not open at first";

  const supervisor::FenceElement leased{*IpAddress::Parse("198.51.100.7"), nft::Protocol::kTcp, 443};
  if (auto published = fence.Publish(std::vector{leased}, 300s); !published) return published.error().message;
  fence.RefuseNext(1000);  // of the new policy, and of the one before, however often it is tried
  const PolicyOutcome outcome = server->SetPolicy(PolicyOf("tcp 203.0.113.0/24:80"), "second", std::nullopt);
  if (outcome.kind != PolicyOutcome::Kind::kFailed) return "it was said to be set";
  if (outcome.error.message.find("no buffer space") == std::string::npos) return "no reason: " + outcome.error.message;
  if (policy.Get() != first || server->Policy().source != "first") return "the old policy did not stay";
  if (FenceFault(*server).empty()) return "ready, though shut";
  if (IsOpen()) return "open under rules that nobody knows";
  if (const auto left = fence.Elements(); !left || !left->empty()) return "the kernel goes on with leases";
  fence.RefuseNext(0);
  const auto until = std::chrono::steady_clock::now() + 15s;
  while (!IsOpen() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(50ms);
  if (!IsOpen() || !FenceFault(*server).empty()) return "not put right: " + FenceFault(*server);
  if (nft::Command(kRules).find("203.0.113.0/24 . tcp . 443") == std::string::npos) return "not the old policy's rules";

  fence.RefuseNext(1);
  if (server->SetOwnPolicy(PolicyOf("tcp 203.0.113.0/24:80"), "file")) return "a reload was said to be done";
  if (policy.Get() != first) return "the old policy did not stay after a reload";
  const PolicyOutcome good = server->SetPolicy(PolicyOf("tcp 203.0.113.0/24:80"), "third", std::nullopt);
  if (good.kind != PolicyOutcome::Kind::kSet || server->Policy().source != "third") return "a good one was not set";
  if (std::string raced = TryRacing(*server); !raced.empty()) return raced;
  if (fence.Publish(std::vector{leased}, 300s); fence.Elements()->size() != 1) return "nothing is published any more";
  bed.server.reset();
  const std::string shut = nft::Command(kRules);
  if (shut.find("redirect to") != std::string::npos || shut.find("198.51.100.7") != std::string::npos)
    return "not shut at the end: " + shut;

  if (std::string fault = bed.Start(ProcessSight::kUnseen); !fault.empty()) return fault;
  if (auto published = bed.fence->Publish(std::vector{leased}, 300s); !published) return published.error().message;
  bed.fence->StayOpen();
  bed.server.reset();
  if (nft::Command(kRules).find("198.51.100.7") != std::string::npos) return "leases stay where the rules do";
  return "";
}

// Somebody in the namespace who listens on a port of lo: accepts and keeps, or accepts and resets.
class Stranger {
 public:
  enum class Does : uint8_t { kKeep, kReset };
  explicit Stranger(Does does) : does_(does) {
    sockaddr_in any{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
    ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any);
    ::listen(listener_.get(), 16);
    socklen_t size = sizeof any;
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&any), &size);
    port_ = ntohs(any.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~Stranger() {
    stop_ = true;
    thread_.join();
  }
  [[nodiscard]] std::string port() const { return std::to_string(port_); }

 private:
  void Serve() {
    std::vector<UniqueFd> kept;
    while (!stop_) {
      pollfd ready{.fd = listener_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&ready, 1, 20) != 1) continue;
      UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      const linger abort{.l_onoff = 1, .l_linger = 0};
      if (does_ == Does::kReset) ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
      if (does_ == Does::kKeep) kept.push_back(std::move(socket));
    }
  }

  const Does does_;
  UniqueFd listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// What somebody else does to the canary's packets, and what readiness says of it.
struct Meddling {
  const char* what;
  std::string begin;
  std::string end;
  const char* words;
};

std::string Table(const std::string& chain) { return "/usr/sbin/nft 'table inet meddler { chain c { " + chain + "; }; }' 2>&1"; }
constexpr const char* kNoTable = "/usr/sbin/nft delete table inet meddler 2>&1";

std::string TryMeddling() {
  if (std::string made = MakeNetwork(); !made.empty()) return made;
  const Stranger keeps(Stranger::Does::kKeep);
  const Stranger resets(Stranger::Does::kReset);
  const std::string before_us = "type nat hook output priority -102; ";
  const std::string first = "type filter hook output priority -500; ";
  const std::string stranger_port = keeps.port();
  const std::vector<Meddling> all = {
      {"TCP that somebody else answers",
       Table(before_us + "ip daddr 240.0.0.1 tcp dport 9 dnat ip to 127.0.0.1:" + stranger_port), kNoTable,
       "was not: TCP answered by somebody else"},
      {"TCP that somebody else resets", Table(before_us + "ip daddr 240.0.0.1 tcp dport 9 dnat ip to 127.0.0.1:" + resets.port()),
       kNoTable, "reset by somebody else"},
      {"TCP that nobody answers", Table(first + "ip daddr 240.0.0.1 tcp dport 9 drop"), kNoTable, "was not: TCP unanswered"},
      {"lookups that are lost", Table(first + "udp dport 53 drop"), kNoTable, "a lookup did not reach the resolver"},
      {"what the proxy should answer", Table(before_us + "ip daddr 240.0.0.1 tcp dport 10 dnat ip to 127.0.0.1:" + resets.port()),
       kNoTable, "a connection did not reach the proxy"},
      {"a route into nothing", "/usr/sbin/ip route add blackhole 240.0.0.0/4 2>&1",
       "/usr/sbin/ip route del blackhole 240.0.0.0/4 2>&1", "a lookup did not reach the resolver"},
  };
  for (const Meddling& one : all) {  // at the start
    if (std::string out = nft::Command(one.begin); !out.empty()) return std::string(one.what) + ": " + out;
    Bed bed;
    if (std::string fault = bed.Start(ProcessSight::kUnseen); !fault.empty()) return fault;
    const auto proved = bed.server->Prove();
    if (proved) return std::string("ready with ") + one.what;
    if (proved.error().message.find(one.words) == std::string::npos)
      return std::string(one.what) + " is told as: " + proved.error().message;
    if (CheckOf(*bed.server, "canary").ok) return std::string("the canary holds with ") + one.what;
    nft::Command(one.end);
  }
  Bed bed;
  if (std::string fault = bed.Start(ProcessSight::kUnseen); !fault.empty()) return fault;
  if (auto proved = bed.server->Prove(); !proved) return proved.error().message;
  for (const Meddling& one : {all[0], all[3]}) {  // while it runs
    nft::Command(one.begin);
    if (std::string fault = AwaitCheck(*bed.server, "canary", false, one.words); !fault.empty()) return fault;
    nft::Command(one.end);
    if (std::string fault = AwaitCheck(*bed.server, "canary", true, ""); !fault.empty()) return fault;
  }
  return "";
}

// A process with a mount namespace of its own, as another container's.
pid_t Neighbour(std::initializer_list<cap_value_t> held) {
  std::array<int, 2> ready{};
  if (::pipe2(ready.data(), O_CLOEXEC) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const cap_t rights = ::cap_init();
    for (const cap_value_t one : held) ::cap_set_flag(rights, CAP_PERMITTED, 1, &one, CAP_SET);
    if (::unshare(CLONE_NEWNS) != 0 || ::cap_set_proc(rights) != 0 || ::write(ready[1], "x", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  ::close(ready[1]);
  char byte = 0;
  const bool up = ::read(ready[0], &byte, 1) == 1;
  ::close(ready[0]);
  return up ? child : -1;
}
void End(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// Until a look is over that began after this: each begins with the network's mesh, whose end is seen one look after its coming.
std::string AwaitWholeLook(const SidecarServer& server) {
  nft::Command("/usr/sbin/nft 'table ip nat { chain ISTIO_OUTPUT { return; }; }' 2>&1");
  std::string fault = AwaitCheck(server, "mesh", true, "");
  nft::Command("/usr/sbin/nft delete table ip nat 2>&1");
  return fault.empty() ? AwaitCheck(server, "mesh", false, "no such check") : fault;
}

std::string TryWorkloads() {
  if (std::string made = MakeNetwork(); !made.empty()) return made;
  {
    Bed bed;
    if (std::string fault = bed.Start(ProcessSight::kSeen); !fault.empty()) return fault;
    if (auto proved = bed.server->Prove(); !proved) return proved.error().message;
    if (!CheckOf(*bed.server, "workload").ok) return "nobody else is here";
    const pid_t plain = Neighbour({CAP_CHOWN});
    const pid_t raw = Neighbour({CAP_NET_RAW});
    if (raw < 0 || plain < 0) return "no neighbour";
    if (std::string fault = AwaitWholeLook(*bed.server); !fault.empty()) return fault;
    if (const auto check = CheckOf(*bed.server, "workload"); !check.ok) return "though every queue is guarded: " + check.detail;
    bed.fence->OpenToNetRaw(true);
    if (std::string fault = AwaitCheck(*bed.server, "workload", false, std::to_string(raw)); !fault.empty()) return fault;
    End(raw);
    if (std::string fault = AwaitCheck(*bed.server, "workload", true, ""); !fault.empty()) return fault;
    bed.fence->OpenToNetRaw(false);
    const pid_t admin = Neighbour({CAP_NET_ADMIN});
    if (std::string fault = AwaitCheck(*bed.server, "workload", false, "holds CAP_NET_ADMIN"); !fault.empty()) return fault;
    End(admin);
    End(plain);
  }
  const pid_t admin = Neighbour({CAP_NET_ADMIN});
  {
    Bed accepted;
    if (std::string fault = accepted.Start(ProcessSight::kSeen, WorkloadRights::kUnsafeAccepted); !fault.empty()) return fault;
    if (auto proved = accepted.server->Prove(); !proved) return proved.error().message;
    const auto check = CheckOf(*accepted.server, "workload");
    if (!check.ok || check.detail.find("--unsafe-workload-rights") == std::string::npos) return "not accepted: " + check.detail;
  }
  Bed unseen;
  if (std::string fault = unseen.Start(ProcessSight::kUnseen); !fault.empty()) return fault;
  if (auto proved = unseen.server->Prove(); !proved) return proved.error().message;
  const auto check = CheckOf(*unseen.server, "workload");
  End(admin);
  return check.ok && check.detail.find("cannot be seen") != std::string::npos ? "" : "of what nobody sees: " + check.detail;
}

TEST(SidecarServer, IsNotReadyWhereTheCanaryIsNotRefusedOrNotAnsweredByItself) {
  EXPECT_EQ(nft::InNewNamespace(TryMeddling), "");
}

TEST(SidecarServer, IsNotReadyBesideAWorkloadThatCouldGoAroundIt) { EXPECT_EQ(nft::InNewNamespace(TryWorkloads), ""); }

UniqueFd ListenOn(uint16_t port) {
  UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in any{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {}, .sin_zero = {}};
  const bool listens =
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0 && ::listen(listener.get(), 1) == 0;
  return listens ? std::move(listener) : UniqueFd();
}

std::string TryMesh() {
  if (std::string made = MakeNetwork(); !made.empty()) return made;
  // As iptables-nft writes it, and Istio's first container before the sidecar's starts.
  nft::Command(
      "/usr/sbin/nft 'table ip nat { chain OUTPUT { type nat hook output priority -100; }; chain ISTIO_OUTPUT { return; }; }' "
      "2>&1");
  Bed bed;
  if (std::string fault = bed.Start(ProcessSight::kUnseen); !fault.empty()) return fault;
  if (auto proved = bed.server->Prove(); !proved) return proved.error().message;
  const auto check = CheckOf(*bed.server, "mesh");
  if (!check.ok || check.detail.find("excludeOutboundIPRanges") == std::string::npos) return "not told: " + check.detail;
  nft::Command("/usr/sbin/nft delete table ip nat 2>&1");
  if (std::string fault = AwaitCheck(*bed.server, "mesh", false, "no such check"); !fault.empty()) return fault;
  const UniqueFd outbound = ListenOn(4140);
  const UniqueFd inbound = ListenOn(4143);
  if (!outbound || !inbound) return "cannot listen";
  return AwaitCheck(*bed.server, "mesh", true, "Linkerd");
}

TEST(SidecarServer, TellsOfAServiceMeshInItsNetworkAndWhatToDo) { EXPECT_EQ(nft::InNewNamespace(TryMesh), ""); }

TEST(SidecarPolicy, MoreRulesByAddressThanASetHoldsAreAnErrorAtLoad) {
  // Every second port, so that none can be joined: 1,024 entries each.
  std::string ports;
  for (int port = 1; port < 2048; port += 2) ports += (ports.empty() ? "" : ",") + std::to_string(port);
  const auto policy_of = [&](size_t addresses) {
    std::string text = "version: 1\nrules:\n";
    for (size_t i = 0; i < addresses; ++i) text += "  - allow: tcp 203.0.113." + std::to_string(2 * i) + ":" + ports + "\n";
    return policy::LoadText(text, "p.yaml", {});
  };
  const auto fitting = policy_of(supervisor::kFenceStaticElements / 1024);
  ASSERT_TRUE(fitting) << fitting.error().message;
  EXPECT_TRUE(CheckSidecarPolicy(**fitting, ProcessSight::kUnseen));
  const auto over = policy_of(supervisor::kFenceStaticElements / 1024 + 1);
  ASSERT_TRUE(over);
  const auto refused = CheckSidecarPolicy(**over, ProcessSight::kUnseen);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_NE(refused.error().message.find("more than 65536 entries"), std::string::npos) << refused.error().message;
}

TEST(SidecarServer, KeepsTheOldPolicyAndShutsWhereTheKernelDoesNotTakeTheNewOne) {
  EXPECT_EQ(nft::InNewNamespace(TryUnwilling), "");
}

}  // namespace
}  // namespace sluice::app
