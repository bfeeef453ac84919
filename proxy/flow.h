#pragma once

// A downstream connection that was approved, as the proxy takes it over.

#include <cstdint>
#include <string>

#include "base/ip.h"
#include "base/unique_fd.h"
#include "policy/event.h"

namespace sluice::proxy {

/// What was approved. `host` is empty for a literal address.
struct FlowTarget {
  std::string host;
  Endpoint destination;  ///< as the workload dialled it (a synthetic address where host is set)
  policy::ProcessPtr process;
};

struct Flow {
  uint64_t id = 0;      ///< connection id, unique in this sandbox; also keys a prepared upstream
  UniqueFd downstream;  ///< connected, non-blocking
  Endpoint source;      ///< the workload's end
  FlowTarget target;
};

}  // namespace sluice::proxy
