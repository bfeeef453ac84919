#pragma once

// Where connections arrive that the fence redirected: finds out where each was going, for which name its address was told and
// whose it is, judges it, and hands what is allowed to the proxy. What is not is recorded and reset.

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/accept_loop.h"
#include "base/ip.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "dns/name_history.h"
#include "dns/synthetic.h"
#include "policy/event.h"
#include "proxy/io/engine.h"
#include "supervisor/io/client_process.h"
#include "supervisor/io/decision_journal.h"

namespace sluice::app {

/// What outlives a transparent listener.
struct TransparentSetup {
  const dns::SyntheticPool& pool;
  const dns::NameHistory& history;
  proxy::Engine& engine;
  const policy::CurrentPolicy& policy;
  policy::EventSink& sink;
  std::string canary{};  ///< the name that is said to who dials the canary's answered port; empty: nothing is
};

class TransparentListener {
 public:
  /// Takes the listening sockets of supervisor::RedirectSockets. `processes` null: no other process can be seen from here.
  static Result<std::unique_ptr<TransparentListener>> Start(TransparentSetup setup, std::vector<UniqueFd> listeners,
                                                            std::unique_ptr<supervisor::ClientProcesses> processes,
                                                            std::vector<IpAddress> host_addresses);
  ~TransparentListener() { Stop(); }

  /// Accepts no more. Once; the thread has ended afterwards.
  void Stop() { loop_->Stop(); }
  /// Connections to supervisor::kCanary and kCanary6 that came here and were reset. Any thread.
  [[nodiscard]] uint64_t canaries() const { return canaries_.load(std::memory_order_acquire); }

 private:
  TransparentListener(TransparentSetup setup, std::unique_ptr<supervisor::ClientProcesses> processes,
                      std::vector<IpAddress> host_addresses)
      : setup_(setup), processes_(std::move(processes)), host_addresses_(std::move(host_addresses)), journal_(setup.sink) {}
  void Take(UniqueFd socket, const sockaddr_storage& from, socklen_t size);
  [[nodiscard]] bool AnswersCanary(int socket, const Endpoint& destination) const;
  struct Arrival;
  [[nodiscard]] static policy::EventTarget TargetOf(const Arrival& arrival);
  /// The names that the address stands for, if any; nothing where it is a synthetic one that was never given.
  [[nodiscard]] std::optional<std::vector<std::string>> NamesOf(const IpAddress& address) const;
  [[nodiscard]] policy::ConnectQuery QueryFor(const Arrival& arrival, const std::string& host) const;
  [[nodiscard]] bool Judge(Arrival& arrival);
  void Refuse(const Arrival& arrival, policy::Decision decision, policy::Advice advice, std::string detail);

  TransparentSetup setup_;
  std::unique_ptr<supervisor::ClientProcesses> processes_;
  const std::vector<IpAddress> host_addresses_;
  supervisor::DecisionJournal journal_;
  std::unique_ptr<AcceptLoop> loop_;
  std::atomic<uint64_t> canaries_{0};
  uint64_t next_id_ = 0;  // the loop's thread
};

}  // namespace sluice::app
