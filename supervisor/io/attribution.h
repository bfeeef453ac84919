#pragma once

// Which process sends from which local port, for lookups: filled by what was notified, checked against the kernel's view, and
// found through sock_diag where nothing was notified. Any thread.

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>

#include "base/ip.h"
#include "policy/query.h"
#include "supervisor/io/process_identity.h"
#include "supervisor/io/socket_owner.h"

namespace sluice::supervisor {

inline constexpr size_t kMaxRememberedSenders = 4096;

class Attribution {
 public:
  Attribution(SocketOwner owner, ProcessTable& processes) : owner_(std::move(owner)), processes_(processes) {}

  /// `local` may have the unspecified address: an unconnected socket.
  void Remember(policy::Transport transport, const Endpoint& local, uint64_t cookie, policy::ProcessPtr process);
  /// Null: nobody of the workload's holds such a socket.
  [[nodiscard]] policy::ProcessPtr Of(policy::Transport transport, const Endpoint& client, const Endpoint& server);
  /// Whose this local end was when it was last remembered; 0: unknown. Never to decide by: it may be somebody else's by now.
  [[nodiscard]] pid_t Guess(policy::Transport transport, const Endpoint& client);
  [[nodiscard]] Result<std::vector<IpAddress>> Addresses() { return owner_.Addresses(); }

 private:
  struct Sender {
    uint64_t cookie = 0;
    policy::ProcessPtr process;
  };
  using Key = std::pair<policy::Transport, Endpoint>;
  [[nodiscard]] std::optional<Sender> Recall(policy::Transport transport, const Endpoint& client);

  SocketOwner owner_;
  ProcessTable& processes_;
  std::mutex mutex_;
  std::map<Key, Sender> senders_;
  std::deque<Key> order_;
};

}  // namespace sluice::supervisor
