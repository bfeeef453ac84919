// A running sidecar whose kernel does not always take the rules.

#include "app/sidecar_server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
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
    if (plan.proxy_port != 0 && refusals_ > 0) {
      --refusals_;
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
  [[nodiscard]] bool OpenToNetRaw() const override { return fence_->OpenToNetRaw(); }
  void Release() override { fence_->Release(); }

  void RefuseNext(int times) { refusals_ = times; }

 private:
  std::unique_ptr<supervisor::Fence> fence_;
  std::atomic<int> refusals_{0};
};

policy::SnapshotPtr PolicyOf(const std::string& rule) {
  auto snapshot = policy::LoadText("version: 1\nrules:\n  - allow: " + rule + "\n", "p.yaml", {});
  return snapshot ? *snapshot : nullptr;
}

std::string FenceFault(const SidecarServer& server) {
  for (const ReadinessCheck& check : server.Readiness())
    if (check.name == "fence") return check.detail;
  return "no such check";
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

// What went wrong; empty where all is as it should be.
std::string TryUnwilling() {
  if (const std::string made =
          nft::Command("PATH=/usr/sbin:$PATH; exec 2>&1; ip link set lo up && ip link add eth0 type veth peer name out0 && ip "
                       "link set out0 up && "
                       "ip link set eth0 up && ip addr add 10.77.0.2/24 dev eth0 && ip route add default via 10.77.0.1");
      !made.empty())
    return made;
  auto canary = CanaryProbe::Begin();
  if (!canary) return canary.error().message;
  SidecarPlan plan;
  plan.engine.lookups.servers = {*dns::ParseUpstreamServer("127.0.0.1")};
  plan.fence.seal = plan.engine.lookups.seal = DrawSeal();
  plan.fence.passage = DrawSeal();
  auto kernel = supervisor::Fence::Install(supervisor::ClosedPlan(plan.fence));
  if (!kernel) return kernel.error().message;
  auto owned = std::make_unique<UnwillingFence>(*std::move(kernel));
  UnwillingFence& fence = *owned;
  auto sockets = supervisor::OpenRedirectSockets(0, 0);
  if (!sockets) return sockets.error().message;
  plan.sockets = *std::move(sockets);
  audit::Options quiet;
  quiet.console = false;
  auto writer = audit::Writer::Start(quiet);
  if (!writer) return writer.error().message;
  policy::CurrentPolicy policy(PolicyOf("tcp 203.0.113.0/24:443"));
  const auto first = policy.Get();
  auto server = SidecarServer::Start(std::move(plan), std::move(owned), *std::move(canary), policy, "first", **writer);
  if (!server) return server.error().message;
  if (auto proved = (*server)->Prove(); !proved) return proved.error().message;
  if (!IsOpen()) return "not open at first";

  const supervisor::FenceElement leased{*IpAddress::Parse("198.51.100.7"), nft::Protocol::kTcp, 443};
  if (auto published = fence.Publish(std::vector{leased}, 300s); !published) return published.error().message;
  fence.RefuseNext(2);  // of the new policy, and of the one before
  const PolicyOutcome outcome = (*server)->SetPolicy(PolicyOf("tcp 203.0.113.0/24:80"), "second", std::nullopt);
  if (outcome.kind != PolicyOutcome::Kind::kFailed) return "it was said to be set";
  if (outcome.error.message.find("no buffer space") == std::string::npos) return "no reason: " + outcome.error.message;
  if (policy.Get() != first || (*server)->Policy().source != "first") return "the old policy did not stay";
  if (FenceFault(**server).empty()) return "ready, though shut";
  if (IsOpen()) return "open under rules that nobody knows";
  if (const auto left = fence.Elements(); !left || !left->empty()) return "the kernel goes on with leases";
  const auto until = std::chrono::steady_clock::now() + 15s;
  while (!IsOpen() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(50ms);
  if (!IsOpen() || !FenceFault(**server).empty()) return "not put right: " + FenceFault(**server);
  if (nft::Command(kRules).find("203.0.113.0/24 . tcp . 443") == std::string::npos) return "not the old policy's rules";

  fence.RefuseNext(1);
  if ((*server)->SetOwnPolicy(PolicyOf("tcp 203.0.113.0/24:80"), "file")) return "a reload was said to be done";
  if (policy.Get() != first) return "the old policy did not stay after a reload";
  const PolicyOutcome good = (*server)->SetPolicy(PolicyOf("tcp 203.0.113.0/24:80"), "third", std::nullopt);
  if (good.kind != PolicyOutcome::Kind::kSet || (*server)->Policy().source != "third") return "a good one was not set";
  if (std::string raced = TryRacing(**server); !raced.empty()) return raced;
  if (fence.Publish(std::vector{leased}, 300s); fence.Elements()->size() != 1) return "nothing is published any more";
  server->reset();
  const std::string shut = nft::Command(kRules);
  if (shut.find("redirect to") != std::string::npos || shut.find("198.51.100.7") != std::string::npos)
    return "not shut at the end: " + shut;
  return "";
}

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
