#include "supervisor/io/own_networks.h"

#include <linux/nsfs.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/unique_fd.h"

namespace sluice::supervisor {
namespace {

constexpr int kMaxDepth = 33;  // user_namespaces(7): 32 levels

}  // namespace

OwnNetworks::OwnNetworks(int user_namespace) {
  struct stat about{};
  if (user_namespace < 0 || ::fstat(user_namespace, &about) != 0) return;
  none_ = false;
  device_ = about.st_dev;
  inode_ = about.st_ino;
}

bool OwnNetworks::Hold(int socket, uint64_t netns_cookie) {
  if (none_) return false;
  {
    const std::lock_guard lock(mutex_);
    if (known_.contains(netns_cookie)) return true;
  }
  if (!Find(socket)) return false;
  const std::lock_guard lock(mutex_);
  if (known_.size() >= kMaxOwnNetworks) known_.clear();
  known_.insert(netns_cookie);
  return true;
}

// The kernel gives away the namespace of a socket to those alone who have rights over it, and the parents of a user namespace up
// to the caller's own.
bool OwnNetworks::Find(int socket) const {
  const UniqueFd network(::ioctl(socket, SIOCGSKNS));
  if (!network) return false;
  UniqueFd users(::ioctl(network.get(), NS_GET_USERNS));
  for (int depth = 0; users && depth < kMaxDepth; ++depth) {
    struct stat about{};
    if (::fstat(users.get(), &about) != 0) return false;
    if (about.st_dev == device_ && about.st_ino == inode_) return true;
    users.Reset(::ioctl(users.get(), NS_GET_PARENT));
  }
  return false;
}

}  // namespace sluice::supervisor
