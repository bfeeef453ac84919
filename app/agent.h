#pragma once

// `sluice agent`: the seccomp agent of container runtimes (OCI runtime specification, `linux.seccomp.listenerPath`).
// docs/containers.md says how runtimes are set up, and what holds.

#include <cstdint>
#include <string>
#include <vector>

#include "app/served_policy.h"

namespace sluice::app {

struct AgentOptions : ServedOptions {
  std::string listen;                    ///< path of the socket that runtimes connect to
  std::string policy_dir;                ///< files to choose from (agent_policy.h)
  std::string ca_out;                    ///< where the authority's certificate goes; empty: nowhere
  std::string bundle_out;                ///< the same with the system's roots before it
  std::string state_dir;                 ///< empty: /run/sluice-agent, or below $XDG_RUNTIME_DIR
  std::string on_restart = "kill";       ///< kill or freeze: what becomes of containers without a supervisor
  std::vector<uint32_t> peers;           ///< users whose runtimes are served, beside root and this process's own
  std::vector<std::string> annotations;  ///< further ones that records show
};

/// The process's exit code. Blocks until SIGTERM or SIGINT.
[[nodiscard]] int RunAgent(const AgentOptions& options);

}  // namespace sluice::app
