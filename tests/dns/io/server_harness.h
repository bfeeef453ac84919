#pragma once

// A policy resolver on loopback sockets, run on its own thread, with the real policy compiler behind it.

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dns/io/server.h"
#include "dns/message.h"
#include "policy/event.h"

namespace sluice::dns {

/// Keeps decisions, or refuses to.
class KeptEvents final : public policy::EventSink {
 public:
  bool Record(policy::DecisionEvent event) noexcept override;
  bool Record(policy::ExchangeEvent) noexcept override { return true; }
  std::string NextDenialId() override { return "d-" + std::to_string(++next_); }
  [[nodiscard]] std::vector<policy::DecisionEvent> decisions() const;
  void RefuseAll() { refusing_ = true; }
  void RefuseDenials() { refusing_denials_ = true; }

 private:
  mutable std::mutex mutex_;
  std::vector<policy::DecisionEvent> decisions_;
  std::atomic<int> next_{0};
  std::atomic<bool> refusing_{false};
  std::atomic<bool> refusing_denials_{false};
};

enum class Bind : uint8_t { kV4, kDualStack };

struct HarnessOptions {
  std::vector<std::string> allows;
  std::string yaml{};                ///< a policy file's text, for what an allow text cannot say; then `allows` is not used
  std::vector<Endpoint> upstream{};  ///< plain servers
  Bind bind = Bind::kV4;
  size_t pool = 0;
  uint16_t port = 0;
  Limits limits{};
  std::chrono::milliseconds tcp_idle{10'000};
  std::vector<IpAddress> host_addresses{};
  FloodLimits flood{};
  UpstreamOptions more{};  ///< further servers, stub domains, seal
  DenialForm denial = DenialForm::kNxDomain;
  Ipv6Egress ipv6 = Ipv6Egress::kPresent;
  std::shared_ptr<NameHistory> history{};
  Publish publish{};
};

class ResolverHarness {
 public:
  explicit ResolverHarness(HarnessOptions options);
  ~ResolverHarness();

  [[nodiscard]] uint16_t port() const { return port_; }
  /// One exchange by UDP from an IPv4 loopback socket; nothing when no answer came within two seconds.
  [[nodiscard]] std::optional<Message> Ask(const Message& query) const;
  [[nodiscard]] std::vector<uint8_t> AskRaw(std::span<const uint8_t> query, int wait_ms = 2000) const;
  [[nodiscard]] UniqueFd ConnectTcp() const;
  void SetPolicy(const std::vector<std::string>& allows) { policy_.Set(Load(allows)); }
  void SetYaml(const std::string& yaml) { policy_.Set(LoadYaml(yaml)); }
  [[nodiscard]] policy::CurrentPolicy& policy() { return policy_; }
  void ForgetLeases() { server_->ForgetLeases(); }

  [[nodiscard]] KeptEvents& events() { return events_; }
  [[nodiscard]] SyntheticPool& pool() { return pool_; }
  [[nodiscard]] static policy::SnapshotPtr Load(const std::vector<std::string>& allows);
  [[nodiscard]] static policy::SnapshotPtr LoadYaml(const std::string& yaml);

 private:
  KeptEvents events_;
  SyntheticPool pool_;
  policy::CurrentPolicy policy_;
  boost::asio::io_context context_{1};
  std::unique_ptr<UpstreamClient> upstream_;
  std::unique_ptr<Server> server_;
  uint16_t port_ = 0;
  std::thread thread_;
};

/// Writes and reads length-prefixed messages.
void SendFrame(int fd, std::span<const uint8_t> message);
[[nodiscard]] std::optional<std::vector<uint8_t>> ReceiveFrame(int fd);

}  // namespace sluice::dns
