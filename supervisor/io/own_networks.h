#pragma once

// Network namespaces that the workload made. Whoever owns one has rights over it and over others of its own alone, so that it has
// no way out but what the capture's has none of either: nothing that connects in there leaves. A socket of any other namespace
// was made outside, and is bounded by nothing.

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <set>

namespace sluice::supervisor {

/// Namespaces found to be the workload's that are remembered; beyond them all are looked at again.
inline constexpr size_t kMaxOwnNetworks = 256;

/// Any thread.
class OwnNetworks {
 public:
  /// `user_namespace`: the capture's, in which the workload's lies; -1: no network is taken for the workload's.
  explicit OwnNetworks(int user_namespace);

  /// Whether the namespace of `socket`, whose cookie is `netns_cookie`, belongs to a user namespace below that one. Not where it
  /// cannot be told.
  [[nodiscard]] bool Hold(int socket, uint64_t netns_cookie);

 private:
  [[nodiscard]] bool Find(int socket) const;

  bool none_ = true;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::mutex mutex_;
  std::set<uint64_t> known_;  // cookies are never given out twice
};

}  // namespace sluice::supervisor
