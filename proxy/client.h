#pragma once

// A client of the explicit proxy, as its listener takes it: connected, and nothing read of it yet.

#include <cstdint>
#include <optional>

#include "base/ip.h"
#include "base/unique_fd.h"
#include "policy/query.h"

namespace sluice::proxy {

struct Client {
  uint64_t id = 0;                 ///< connection id, unique in this engine
  UniqueFd socket;                 ///< TCP, without delay (TCP_NODELAY), or UNIX; non-blocking
  std::optional<Endpoint> source;  ///< the client's end; absent for a UNIX socket
  policy::ProcessPtr process;      ///< whose socket it is, where that could be seen
};

}  // namespace sluice::proxy
