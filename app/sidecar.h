#pragma once

// `sluice sidecar`: fences every other process of the network namespace it runs in, as a pod's sidecar does. Needs CAP_NET_ADMIN
// and nothing else. docs/sidecar.md says what holds it together.

#include <cstdint>
#include <string>
#include <vector>

#include "app/administration.h"
#include "app/served_policy.h"

namespace sluice::app {

struct SidecarOptions : ServedOptions {
  std::string ca_out;              ///< where the authority's certificate goes; empty: nowhere
  std::string bundle_out;          ///< the same with the system's roots before it
  AdminOptions admin;              ///< its API, health and other sources of the policy
  std::string drain;               ///< duration; empty: 10 s
  std::string processes = "auto";  ///< auto, seen or unseen: whether other processes can be told apart
  uint16_t proxy_port = 0;         ///< 0: the kernel's choice
  uint16_t dns_port = 0;
  bool no_inbound = false;              ///< new connections from outside are dropped
  bool host_network = false;            ///< a machine's own network is meant
  bool unsafe_workload_rights = false;  ///< a workload that holds CAP_NET_ADMIN or CAP_NET_RAW is no reason not to be ready
  bool dry_run = false;                 ///< print the rules and end
};

/// The process's exit code. Blocks until SIGTERM or SIGINT.
[[nodiscard]] int RunSidecar(const SidecarOptions& options);

}  // namespace sluice::app
