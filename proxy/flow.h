#pragma once

// A downstream connection that was approved, as the proxy takes it over.

#include <cstdint>
#include <string>
#include <vector>

#include "base/ip.h"
#include "base/unique_fd.h"
#include "policy/event.h"

namespace sluice::proxy {

/// What was approved. `host` is empty for a literal address.
struct FlowTarget {
  std::string host;
  Endpoint destination;  ///< as the workload dialled it (a synthetic address where host is set, unless it was told)
  policy::ProcessPtr process;
  /// The destination is a true address that the workload was told for `host` (`dns: real`): that one is dialled, and no other.
  bool told = false;
};

struct Flow {
  uint64_t id = 0;      ///< connection id, unique in this sandbox; also keys a prepared upstream
  UniqueFd downstream;  ///< connected, non-blocking
  Endpoint source;      ///< the workload's end
  FlowTarget target;
  /// All names that the workload was told this address for, where there are several: `target.host` among them, the newest first.
  /// What the client says first (SNI, Host) tells which it means.
  std::vector<std::string> names{};
};

}  // namespace sluice::proxy
