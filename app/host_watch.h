#pragma once

// Whether an address is this host's, asked of everybody who connects, before anything is known of him: the addresses are listed
// once, and again where the kernel has told of a change since.
//
//   HostWatch watch;
//   if (watch.Has(peer.address)) …  // it may be whoever is fenced

#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "app/host.h"
#include "base/clock.h"
#include "base/ip.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::app {

/// Of the network namespace that it was made in.
class HostWatch {
 public:
  using List = std::function<Result<std::vector<IpAddress>>()>;
  /// Where the kernel tells nothing, a list is good for so long.
  static constexpr std::chrono::seconds kUntold{1};

  explicit HostWatch(List list = HostAddresses);

  /// True as well where the addresses cannot be listed. One system call where nothing has changed. Any thread.
  [[nodiscard]] bool Has(const IpAddress& address);

 private:
  [[nodiscard]] bool Changed();

  const List list_;
  std::mutex mutex_;
  UniqueFd told_;  ///< a netlink socket; none: the kernel tells nothing
  std::optional<std::vector<IpAddress>> own_;
  SteadyTime listed_{};
};

}  // namespace sluice::app
