#pragma once

// One container under supervision, in a process of its own that the agent forks: what goes wrong with one, or is done to it, is
// no other's. It ends with its container. The order is the safety argument: the container's first call waits until the namespace
// is captured, a connection without approval was seen to end at the listener, and everything behind it answers.

#include <memory>
#include <string>

#include "app/agent.h"
#include "base/unique_fd.h"
#include "proxy/io/tls.h"
#include "supervisor/io/container_process.h"
#include "supervisor/io/listener_handoff.h"
#include "supervisor/oci_state.h"

namespace sluice::app {

struct ContainerJob {
  AgentOptions options;  ///< its `policy` is this container's
  supervisor::OciState state;
  supervisor::ContainerProcess process;  ///< the container's first
  supervisor::ListenerHandoff listener;
  UniqueFd control;  ///< gives further listeners, gets kReady; its end is the agent's
  std::shared_ptr<proxy::TlsAuthority> authority;
};

/// What the process says once the container's program may run.
inline constexpr char kContainerReady = 'R';

/// In a fresh child of the agent that has one thread. Blocks until the container has ended. Exit code: 0 when it ended by itself,
/// anything else when it can no longer be supervised; its first call has been refused then, or is with the descriptor's end.
[[nodiscard]] int SuperviseContainer(ContainerJob job);

}  // namespace sluice::app
