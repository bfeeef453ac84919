#pragma once

// Whose a connection from this machine is: the process at the other end of a UNIX socket, or of a TCP connection within this
// network namespace. For servers of processes that Sluice did not start; what cannot be seen (another user's process, unless we
// may read it) is unknown. Attribution, not a boundary: a process may hand its socket to another. One thread.

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/ip.h"
#include "base/result.h"
#include "policy/query.h"
#include "supervisor/io/process_identity.h"
#include "supervisor/io/socket_owner.h"

namespace sluice::supervisor {

class ClientProcesses {
 public:
  static Result<std::unique_ptr<ClientProcesses>> Open();

  /// Null where there is none to be seen. With an empty executable where only its number and name may be.
  [[nodiscard]] policy::ProcessPtr OfUnixPeer(int socket, Digests digests);
  /// `client` and `server` are the connection's ends as its socket names them. Null as above. May take some milliseconds for a
  /// process that has not connected before, since /proc is searched.
  [[nodiscard]] policy::ProcessPtr OfTcpPeer(const Endpoint& client, const Endpoint& server, Digests digests);
  /// Whoever sends from there, for what was redirected on its way: what its socket is connected to is not known.
  [[nodiscard]] policy::ProcessPtr OfSender(policy::Transport transport, const Endpoint& client, Digests digests);

 private:
  [[nodiscard]] policy::ProcessPtr OfSocket(const std::optional<SocketIdentity>& socket, Digests digests);
  explicit ClientProcesses(SocketOwner owner) : owner_(std::move(owner)), processes_({}) {}
  [[nodiscard]] policy::ProcessPtr Identify(pid_t pid, Digests digests);
  struct Recent {
    CallerThreadPtr process;  ///< null: none
    DescriptorHints descriptors{};
    /// Its folder in /proc is held open, and is nobody else's: once it has ended, there is nothing in it, and it is forgotten.
    [[nodiscard]] bool Holds(uint64_t inode);
  };
  [[nodiscard]] std::optional<Recent> Search(uint64_t inode);
  /// The process that holds the socket; null where none is seen. Valid until the next call.
  [[nodiscard]] Recent* Holder(uint64_t inode);

  SocketOwner owner_;
  ProcessTable processes_;
  std::array<Recent, 8> recent_{};  ///< holders found last, the latest first
};

}  // namespace sluice::supervisor
