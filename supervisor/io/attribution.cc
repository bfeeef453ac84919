#include "supervisor/io/attribution.h"

#include <utility>

namespace sluice::supervisor {

void Attribution::Remember(policy::Transport transport, const Endpoint& local, uint64_t cookie, policy::ProcessPtr process) {
  if (local.port == 0) return;
  const Key key{transport, local};
  const std::lock_guard lock(mutex_);
  if (senders_.insert_or_assign(key, Sender{cookie, std::move(process)}).second) order_.push_back(key);
  while (order_.size() > kMaxRememberedSenders) {
    senders_.erase(order_.front());
    order_.pop_front();
  }
}

std::optional<Attribution::Sender> Attribution::Recall(policy::Transport transport, const Endpoint& client) {
  const Endpoint anywhere[] = {client, {IpAddress::FromV4(0), client.port}, {IpAddress{}, client.port}};
  const std::lock_guard lock(mutex_);
  for (const Endpoint& local : anywhere) {
    if (const auto it = senders_.find({transport, local}); it != senders_.end()) return it->second;
  }
  return std::nullopt;
}

pid_t Attribution::Guess(policy::Transport transport, const Endpoint& client) {
  const auto known = Recall(transport, client);
  return known && known->process ? known->process->pid : 0;
}

policy::ProcessPtr Attribution::Of(policy::Transport transport, const Endpoint& client, const Endpoint& server) {
  const auto known = Recall(transport, client);
  const auto socket = owner_.Find(transport, client, server);
  // A closed socket leaves only what was remembered; a live one must be the one that was.
  if (known && (!socket || socket->cookie == known->cookie)) return known->process;
  if (!socket) return nullptr;
  const pid_t holder = owner_.Holder(socket->inode);
  if (holder == 0) return nullptr;
  const CallerThreadPtr thread = processes_.Find(holder);
  if (!thread) return nullptr;
  policy::ProcessPtr process = processes_.Identify(*thread, Digests::kNone);
  if (process) Remember(transport, client, socket->cookie, process);
  return process;
}

}  // namespace sluice::supervisor
