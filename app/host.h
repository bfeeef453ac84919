#pragma once

// What `run` asks of this machine.

#include <string>
#include <vector>

#include "base/ip.h"
#include "base/result.h"

namespace sluice::app {

/// Every address of this network namespace's interfaces: special to the address guard.
[[nodiscard]] Result<std::vector<IpAddress>> HostAddresses();

/// Descriptors without which a run does not start.
inline constexpr int kMinDescriptors = 256;

/// Where connections end, so that the supervisor can still read who calls, and look up, and write records.
struct DescriptorRoom {
  int limit = 0;    ///< RLIMIT_NOFILE
  int ceiling = 0;  ///< of the numbers that connections may have
};

/// An error that says how many are needed where there are too few. Pure.
[[nodiscard]] Result<DescriptorRoom> RoomFor(uint64_t limit);

/// Raises the soft limit on descriptors to the hard one; each connection takes up to six.
[[nodiscard]] Result<DescriptorRoom> RaiseDescriptorLimit();

}  // namespace sluice::app
