#include "supervisor/io/client_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/fault.h"
#include "base/unique_fd.h"

namespace sluice::supervisor {
namespace {

constexpr int kPeerPidfd = 77;   // SO_PEERPIDFD, Linux 6.5
constexpr size_t kFewLooks = 8;  // at descriptors of one process

// Whether the process that connected has ended: its number may be another's by now. A kernel that does not know the option tells
// nothing. One that does, and is older than 6.16, gives an error in place of a process that was waited for; what else fails here
// is not taken for a process that lives.
bool HasEnded(int socket) {
  int pidfd = -1;
  socklen_t size = sizeof pidfd;
  if (Faulty("client.pidfd", [&] { return getsockopt(socket, SOL_SOCKET, kPeerPidfd, &pidfd, &size); }) != 0)
    return errno != ENOPROTOOPT;
  const UniqueFd owned(pidfd);
  pollfd ended{pidfd, POLLIN, 0};
  return poll(&ended, 1, 0) != 0;
}

}  // namespace

Result<std::unique_ptr<ClientProcesses>> ClientProcesses::Open() {
  auto owner = SocketOwner::OpenHere();
  if (!owner) return std::unexpected(owner.error());
  return std::unique_ptr<ClientProcesses>(new ClientProcesses(*std::move(owner)));
}

policy::ProcessPtr ClientProcesses::Identify(pid_t pid, Digests digests) {
  // One that was remembered may have ended since; then the number is looked up anew.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const CallerThreadPtr thread = processes_.Find(pid);
    if (!thread) return nullptr;
    if (policy::ProcessPtr process = processes_.Identify(*thread, digests)) return process;
    processes_.Forget(thread);
  }
  return processes_.Glimpse(pid);
}

policy::ProcessPtr ClientProcesses::OfUnixPeer(int socket, Digests digests) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const auto ask = [&] { return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size); };
  if (Faulty("client.credentials", ask) != 0 || peer.pid <= 0) return nullptr;
  policy::ProcessPtr process = Identify(peer.pid, digests);
  // Read first, then asked whether it still lives: what was read is then its own.
  return HasEnded(socket) ? nullptr : process;
}

bool ClientProcesses::Recent::Holds(uint64_t inode) {
  if (process == nullptr) return false;
  if (SocketOwner::Holds(process->proc_fd(), inode, &descriptors)) return true;
  if (faccessat(process->proc_fd(), "stat", F_OK, 0) != 0) *this = {};
  return false;
}

std::optional<ClientProcesses::Recent> ClientProcesses::Search(uint64_t inode) {
  const pid_t pid = owner_.Holder(inode);
  // One that is remembered under this number may have ended since.
  for (int attempt = 0; attempt < 2 && pid != 0; ++attempt) {
    Recent found{processes_.Find(pid)};
    if (found.process == nullptr) break;
    const CallerThreadPtr process = found.process;
    if (found.Holds(inode)) return found;
    processes_.Forget(process);
  }
  return std::nullopt;
}

ClientProcesses::Recent* ClientProcesses::Holder(uint64_t inode) {
  // A few looks at each before all descriptors of any: clients that take turns have thousands, perhaps.
  const auto as_before = [&](Recent& recent) {
    return recent.process != nullptr &&
           SocketOwner::HoldsAsBefore(recent.process->proc_fd(), inode, &recent.descriptors, kFewLooks);
  };
  auto known = std::ranges::find_if(recent_, as_before);
  if (known == recent_.end()) known = std::ranges::find_if(recent_, [&](Recent& recent) { return recent.Holds(inode); });
  if (known != recent_.end()) {
    std::rotate(recent_.begin(), known, known + 1);
    return &recent_.front();
  }
  auto found = Search(inode);
  if (!found) return nullptr;
  std::shift_right(recent_.begin(), recent_.end(), 1);
  recent_.front() = *std::move(found);
  return &recent_.front();
}

policy::ProcessPtr ClientProcesses::OfTcpPeer(const Endpoint& client, const Endpoint& server, Digests digests) {
  return OfSocket(owner_.Find(policy::Transport::kTcp, client, server), digests);
}

policy::ProcessPtr ClientProcesses::OfSender(policy::Transport transport, const Endpoint& client, Digests digests) {
  return OfSocket(owner_.FindSender(transport, client), digests);
}

policy::ProcessPtr ClientProcesses::OfSocket(const std::optional<SocketIdentity>& socket, Digests digests) {
  if (!socket) return nullptr;
  Recent* const holder = Holder(socket->inode);
  if (holder == nullptr) return nullptr;
  policy::ProcessPtr process = processes_.Identify(*holder->process, digests);
  if (process == nullptr) process = processes_.Glimpse(holder->process->tid());
  // Looked at again after it was identified: the socket was still its own then.
  if (process == nullptr) return nullptr;
  const bool still = SocketOwner::HoldsAt(holder->process->proc_fd(), socket->inode, holder->descriptors.numbers.front());
  return still || holder->Holds(socket->inode) ? process : nullptr;
}

}  // namespace sluice::supervisor
