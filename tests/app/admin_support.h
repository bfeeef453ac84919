#pragma once

// A sidecar without a namespace: its policy is real, its fence a list.

#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "app/admin_api.h"
#include "app/decision_stream.h"
#include "app/served_control.h"
#include "policy/io/load.h"

namespace sluice::app {

class ListFence final : public supervisor::Fence {
 public:
  Result<void> Replace(const supervisor::FencePlan&, const StillAllowed&) override { return {}; }
  Result<std::chrono::steady_clock::duration> Publish(std::span<const supervisor::FenceElement>,
                                                      std::chrono::milliseconds) override {
    return {};
  }
  Result<void> Withdraw(const std::function<bool(const supervisor::FenceElement&)>&) override { return {}; }
  Result<void> Check() override { return {}; }
  Result<void> Watch(std::function<void(const supervisor::FenceChange&)>) override { return {}; }
  Result<std::vector<supervisor::FenceCounter>> Counters() override { return counters; }
  Result<std::vector<Held>> Elements() override { return elements; }
  [[nodiscard]] supervisor::FenceHold hold() const override { return supervisor::FenceHold::kPlain; }
  [[nodiscard]] std::vector<std::string> Weaknesses() const override { return {"the kernel is older than 6.9"}; }
  [[nodiscard]] bool OpenToNetRaw() const override { return false; }
  void Release() override {}

  std::vector<supervisor::FenceCounter> counters{{"dropped", 7, 420}};
  std::vector<Held> elements{{{*IpAddress::Parse("192.0.2.1"), nft::Protocol::kTcp, 443}, std::chrono::milliseconds(60'000)},
                             {{*IpAddress::Parse("2001:db8::1"), nft::Protocol::kUdp, 123}, std::chrono::milliseconds(1)}};
};

class ListControl final : public ServedControl, public RunSteering {
 public:
  explicit ListControl(policy::SnapshotPtr first) : snapshot_(std::move(first)) {}

  [[nodiscard]] std::vector<ReadinessCheck> Readiness() const override {
    const std::lock_guard lock(mutex_);
    return checks_;
  }
  [[nodiscard]] ServedPolicy Policy() const override {
    const std::lock_guard lock(mutex_);
    return {snapshot_, revision_, source_};
  }
  [[nodiscard]] PolicyOutcome SetPolicy(policy::SnapshotPtr next, std::string source,
                                        std::optional<uint64_t> if_revision) override {
    const std::lock_guard lock(mutex_);
    if (if_revision && *if_revision != revision_) return {PolicyOutcome::Kind::kConflict, revision_, {}};
    if (!next->UdpRules().empty())
      return {PolicyOutcome::Kind::kRefused, revision_,
              Error{Code::kInvalid, "no UDP here", 0, next->rule(next->UdpRules().front())->span}};
    snapshot_ = std::move(next);
    source_ = std::move(source);
    return {PolicyOutcome::Kind::kSet, ++revision_, {}};
  }
  [[nodiscard]] supervisor::Fence* fence() override { return is_run_ ? nullptr : &fence_; }
  [[nodiscard]] RunSteering* run() override { return is_run_ ? this : nullptr; }
  [[nodiscard]] RunStatus Status() const override {
    RunStatus status;
    status.state = RunStatus::State::kRunning;
    status.command = "make";
    status.pid = 7;
    return status;
  }
  void Stop(std::chrono::milliseconds grace) override {
    const std::lock_guard lock(mutex_);
    stops_.push_back(grace);
  }
  [[nodiscard]] size_t OpenConnections() const override { return 3; }
  [[nodiscard]] std::vector<std::string> NamesOf(const IpAddress& address) const override {
    return address == *IpAddress::Parse("192.0.2.1") ? std::vector<std::string>{"a.test"} : std::vector<std::string>{};
  }
  [[nodiscard]] size_t ToldAddresses() const override { return 1; }
  [[nodiscard]] Result<dns::CachePage> ResolverCache(const std::string& after, size_t limit) override {
    dns::CachePage page{.entries = {}, .count = cached.size(), .more = false};
    for (const dns::CachedEntry& entry : cached) {
      if (entry.Key() <= after) continue;
      page.more = page.entries.size() == limit;
      if (page.more) break;
      page.entries.push_back(entry);
    }
    return page;
  }
  [[nodiscard]] std::chrono::seconds Uptime() const override { return std::chrono::seconds(12); }

  void SetChecks(std::vector<ReadinessCheck> checks) {
    const std::lock_guard lock(mutex_);
    checks_ = std::move(checks);
  }
  ListFence& list() { return fence_; }
  /// A run's state in a sidecar's place.
  void BecomeRun() { is_run_ = true; }
  [[nodiscard]] std::vector<std::chrono::milliseconds> stops() const {
    const std::lock_guard lock(mutex_);
    return stops_;
  }

  std::vector<dns::CachedEntry> cached{
      {.name = "a.test",
       .types = {"A"},
       .status = "found",
       .addresses = {*IpAddress::Parse("192.0.2.1")},
       .aliases = {"b.test"},
       .left = std::chrono::seconds(9),
       .leases = dns::PublishedLeases{4, std::chrono::seconds(69)}},
      {.name = "gone.test", .types = {"A", "AAAA"}, .status = "no_such_name", .left = std::chrono::seconds(2)}};

 private:
  mutable std::mutex mutex_;
  policy::SnapshotPtr snapshot_;
  uint64_t revision_ = 1;
  std::string source_ = "policy.yaml";
  std::vector<ReadinessCheck> checks_{{"fence", true, ""}, {"canary", true, ""}};
  ListFence fence_;
  bool is_run_ = false;
  std::vector<std::chrono::milliseconds> stops_;
};

/// A control, a stream and an API around one text.
struct AdminBed {
  explicit AdminBed(const std::string& text = "version: 1\nrules:\n  - allow: GET a.test\n    id: first\n",
                    PolicyOwner owner = PolicyOwner::kFileOrApi, std::optional<PolicyState> state = {})
      : own(*policy::LoadText(text, "policy.yaml")), control(own), api(Options(text, owner, std::move(state)), control, stream) {}

  AdminApiOptions Options(const std::string& text, PolicyOwner owner, std::optional<PolicyState> state) const {
    AdminApiOptions options;
    options.owner = owner;
    options.compile = [](const PolicyText& policy) { return policy::LoadText(policy.text, policy.name); };
    options.own_text = [text]() -> Result<PolicyText> { return PolicyText{text, "policy.yaml"}; };
    options.state = std::move(state);
    options.version = "9.9";
    options.own = own;
    return options;
  }

  AdminResponse Ask(const std::string& method, const std::string& target, std::string body = "",
                    std::vector<std::pair<std::string, std::string>> fields = {}) {
    AdminRequest request;
    request.method = method;
    if (auto read = ReadTarget(target, &request); !read) return Problem(400, "bad_request", read.error().message);
    request.body = std::move(body);
    request.fields = std::move(fields);
    return api.Handle(request);
  }

  policy::SnapshotPtr own;
  ListControl control;
  DecisionStream stream;
  AdminApi api;
};

}  // namespace sluice::app
