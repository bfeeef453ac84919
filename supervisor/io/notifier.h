#pragma once

// Answers the workload's connect, sendto and related calls, and accepts the captured connections they become.
// seccomp_unotify(2); docs/architecture.md, "One connection". Never CONTINUEs what the capture namespace does not decide.

#include <linux/seccomp.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ip.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/event.h"
#include "supervisor/io/capture.h"

namespace sluice::supervisor {

/// An approved connection attempt: the same id names it in Prepare and Start.
struct ApprovedConnect {
  uint64_t id = 0;
  std::string host;      ///< empty: a literal
  Endpoint destination;  ///< as dialled
  policy::ProcessPtr process;
};

/// What the supervisor needs of the rest. Called on notification threads: nothing may block.
class FlowHandler {
 public:
  virtual ~FlowHandler() = default;
  /// The name a synthetic address stands for.
  [[nodiscard]] virtual std::optional<std::string> NameOf(const IpAddress& address) = 0;
  /// Whether the address lies in the synthetic ranges.
  [[nodiscard]] virtual bool IsSynthetic(const IpAddress& address) = 0;
  /// A blocking connect waits: dial the upstream, then call done once, from any thread, with 0 or an errno.
  virtual void Prepare(ApprovedConnect connect, std::function<void(int)> done) = 0;
  /// The captured connection. Its approval was matched.
  virtual void Start(ApprovedConnect connect, Endpoint source, UniqueFd accepted) = 0;
  /// Connections open now.
  [[nodiscard]] virtual size_t Open() const = 0;
};

/// Whether a notification wakes its receiver on the caller's own CPU (Linux 6.6): lower latency when the machine is busy.
enum class NotifyWakeUp : uint8_t { kSynchronous, kFree };

struct NotifierOptions {
  int workload_pid = 0;
  uint64_t pid_namespace = 0;  ///< inode of the workload's, where its processes have ancestors outside; 0: they have none
  int view = -1;               ///< borrowed: as ProcessTable::Options has it
  int owner_of_networks = -1;  ///< borrowed: as OwnNetworks has it
  std::vector<std::string> writable_trees;  ///< path sockets below these need no rule: they are the workload's own
  std::vector<std::string> shared_trees{};  ///< below those, but the host's (as well): path sockets there need a rule
  /// But these of the host, bound into the view, always do: from the path there to the path that the policy names.
  std::map<std::string, std::string> host_sockets{};
  std::vector<IpAddress> host_addresses{};  ///< of the supervisor's own host: special to the address guard
  /// Of the whole process. From the ceiling on no connect is let through: what is left is for reading who calls.
  int descriptor_limit = std::numeric_limits<int>::max();
  int descriptor_ceiling = std::numeric_limits<int>::max();
  unsigned threads = 0;  ///< parked in RECV; 0: four
  NotifyWakeUp wake_up = NotifyWakeUp::kSynchronous;
};

class Notifier {
 public:
  /// `capture` and the references outlive the notifier. `notify_fd` may be none yet: Watch gives one then.
  static Result<std::unique_ptr<Notifier>> Start(UniqueFd notify_fd, const Capture& capture, NotifierOptions options,
                                                 FlowHandler& handler, const policy::CurrentPolicy& policy,
                                                 policy::EventSink& sink);
  virtual ~Notifier() = default;

  /// Watches the processes of another filter too, of the same namespaces and under the same policy. `first`: a call that was
  /// received from there already and waits for its answer. One thread, which Prune belongs to as well.
  [[nodiscard]] virtual Result<void> Watch(UniqueFd notify_fd, const std::optional<seccomp_notif>& first) = 0;
  /// Lets go of filters that no process is left of. How many are watched still.
  [[nodiscard]] virtual size_t Prune() = 0;

  /// Who owns this socket of the capture namespace: what was notified, else sock_diag and /proc. Any thread.
  [[nodiscard]] virtual policy::ProcessPtr Attribute(policy::Transport transport, const Endpoint& client,
                                                     const Endpoint& server) = 0;
  /// The process that was last notified to send from there, without asking the kernel; 0: none. Any thread.
  [[nodiscard]] virtual int GuessSender(policy::Transport transport, const Endpoint& client) = 0;
};

}  // namespace sluice::supervisor
