#pragma once

// What becomes of each notified call. docs/architecture.md, "One connection": pin, copy, check, decide, act on the pinned
// socket from the copy, reply. Any thread; nothing here waits for anybody but the kernel, and that for kWakeInterval at most.

#include <linux/seccomp.h>
#include <sys/types.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/pinned_closer.h"
#include "supervisor/io/attribution.h"
#include "supervisor/io/capture_gate.h"
#include "supervisor/io/decision_journal.h"
#include "supervisor/io/host_socket_table.h"
#include "supervisor/io/in_flight.h"
#include "supervisor/io/notifier.h"
#include "supervisor/io/own_networks.h"
#include "supervisor/io/process_identity.h"
#include "supervisor/io/seccomp_channel.h"
#include "supervisor/io/waiting_connects.h"
#include "supervisor/io/watched_call.h"

namespace sluice::supervisor {

/// AF_UNSPEC calls that wait for a connect of the same socket to be matched.
inline constexpr size_t kMaxPostponed = 1024;

class CallHandler : private CaptureGate::Sink {
 public:
  struct Setup {
    uint64_t netns_cookie = 0;
    uint16_t listener_port = 0;
    int listener = -1;
    pid_t workload_pid = 0;
    std::vector<std::string> writable_trees;
    std::vector<std::string> shared_trees;
    std::map<std::string, std::string> host_sockets;
    int view = -1;  ///< borrowed: as ProcessTable::Options has it
    std::vector<IpAddress> host_addresses;
    int descriptor_limit = 0;
    int descriptor_ceiling = 0;
    OwnAddresses own;
    int owner_of_networks = -1;  ///< borrowed: as OwnNetworks has it
    /// Something was left waiting: Sweep within kSignalProbe, and again while busy().
    std::function<void()> wake_sweeper;
    /// Connect this prepared attempt on a thread of its own (Finish).
    std::function<void(uint64_t cookie, uint64_t id, int error)> finish_later;
  };
  CallHandler(Setup setup, ProcessTable& processes, Attribution& attribution, FlowHandler& flows,
              const policy::CurrentPolicy& policy, policy::EventSink& sink);
  ~CallHandler() override;
  /// Once, before the first call: kinds of failure as PinnedCloser::Ready has them.
  [[nodiscard]] Result<void> Ready() { return closer_.Ready(); }

  /// `channel`: where the call came from and is answered.
  void Handle(const SeccompChannelPtr& channel, const seccomp_notif& notification);
  /// The upstream of a blocking connect was reached (0) or not.
  void Finish(uint64_t cookie, uint64_t id, int error);
  /// Strays, approvals that wait too long, signals and deadlines of waiting callers.
  void Sweep();
  [[nodiscard]] bool busy() const;

 private:
  /// What a decision is made from; `host` empty for a literal.
  struct Question {
    policy::ProcessPtr process;
    policy::SnapshotPtr snapshot;
    std::string host;
    Endpoint destination;
    policy::Transport transport = policy::Transport::kTcp;
  };

  void HandleConnect(PendingCall caller, const seccomp_notif& notification);
  void HandleSendto(PendingCall caller, const seccomp_notif& notification);
  void Refuse(const PendingCall& caller, pid_t tid, NotTaken why);

  void ConnectTcp(WatchedCall call);
  void ConnectUdp(WatchedCall call);
  void ConnectUnix(WatchedCall call);
  void SendtoUdp(WatchedCall call);

  void DissolveSocket(WatchedCall call);
  void ConnectOwn(WatchedCall call);
  void ConnectInside(WatchedCall call);
  void ConnectResolver(WatchedCall call, policy::Transport transport);
  void ConnectCaptured(WatchedCall call);
  void Dial(WatchedCall call, ApprovedConnect approved);
  void WaitForUpstream(WatchedCall call, uint64_t cookie, ApprovedConnect approved);
  void AdmitConnected(Attempt attempt, const Endpoint& destination);

  [[nodiscard]] bool KnownToPolicy(const Question& question);
  [[nodiscard]] Question Ask(WatchedCall& call, policy::Transport transport);
  [[nodiscard]] policy::SnapshotPtr CurrentSnapshot() const;
  [[nodiscard]] policy::ConnectQuery QueryOf(const Question& question) const;
  [[nodiscard]] static policy::EventTarget TargetOf(const Question& question);
  void DenyConnect(WatchedCall call, const Question& question, const policy::ConnectDecision& decision);
  /// A socket that is not of the capture namespace, which does not bound it.
  [[nodiscard]] bool IsForeign(const WatchedCall& call) const;
  /// connect and sendto of one: within a network of the workload's own it reaches what is in there, and nothing else.
  void HandleForeign(WatchedCall call, long number);
  void DenyForeign(WatchedCall call, policy::Transport transport, std::string why);
  void DenyBecause(WatchedCall call, const Question& question, policy::Reason reason, std::string detail, int error);
  void DenyUnresolved(WatchedCall call, const Error& why);
  /// ENOBUFS, and why.
  void DenyExhausted(WatchedCall call, const Question& question);
  void Answer(WatchedCall call, int error, PinnedCloser::Kind kind);
  void ContinueAndDrop(WatchedCall call);
  [[nodiscard]] WaitingConnects::Waiter WaiterOf(const WatchedCall& call) const;

  void Matched(Attempt attempt, const Endpoint& source, UniqueFd accepted) override;
  void Lost(Attempt attempt, int error) override;
  void Stray(const FlowTuple& tuple) override;
  static void ReplyAll(const Attempt& attempt, int error);

  const Setup setup_;
  ProcessTable& processes_;
  Attribution& attribution_;
  FlowHandler& flows_;
  const policy::CurrentPolicy& policy_;
  DecisionJournal journal_;
  PinnedCloser closer_;
  CaptureGate gate_;
  WaitingConnects waiting_;
  InFlight in_flight_;
  OwnNetworks networks_;
  HostSocketTable host_sockets_;
  std::atomic<uint64_t> next_connection_{1};
  std::atomic<bool> probed_{false};  ///< the start-up probe (canary.h) was answered
  std::mutex postponed_mutex_;
  std::vector<WatchedCall> postponed_;
  std::atomic<size_t> postponed_count_{0};
};

}  // namespace sluice::supervisor
