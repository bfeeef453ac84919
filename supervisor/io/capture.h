#pragma once

// The capture namespace: only `lo`, every address local, nft hands TCP to one listener and port 53 to the resolver.
// requirements: a user namespace the workload is not in owns it, so that no capability the workload can gain changes it.
// Written against network_namespaces(7), Documentation/networking/tproxy.rst; Linux 5.19 or later.

#include <sys/types.h>

#include <cstdint>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::supervisor {

/// Everything the supervisor holds of a capture namespace. Dropping it closes the way: connects are then refused.
struct Capture {
  UniqueFd user_namespace;  ///< owner of the network namespace
  UniqueFd network_namespace;
  UniqueFd listener;  ///< TCP, dual-stack, IP_TRANSPARENT, non-blocking, never SO_REUSEPORT; its own name of an accepted socket
                      ///< is the destination
  uint16_t listener_port = 0;  ///< below 1024, so that the workload cannot bind beside it
  UniqueFd dns_udp;            ///< [::]:53, packet info on
  UniqueFd dns_tcp;            ///< [::]:53, listening
  UniqueFd socket_diagnosis;   ///< NETLINK_SOCK_DIAG of the namespace: whose a socket is
  UniqueFd routes;             ///< NETLINK_ROUTE of the namespace: its addresses
  uint64_t netns_cookie = 0;   ///< SO_NETNS_COOKIE of its sockets
};

/// A capture that a child of this process is building. Dropping it ends the child.
class CaptureInProgress {
 public:
  /// Forks, so best called while the process is small; returns without waiting.
  [[nodiscard]] static Result<CaptureInProgress> Begin();
  CaptureInProgress(CaptureInProgress&& other) noexcept;
  CaptureInProgress& operator=(CaptureInProgress&&) = delete;
  ~CaptureInProgress();

  /// Waits for the capture. Called once. The child then goes, which takes a while.
  [[nodiscard]] Result<Capture> Finish();
  /// Until the child is gone; the destructor does it too.
  void End();

 private:
  CaptureInProgress(pid_t child, UniqueFd handshake) : child_(child), handshake_(std::move(handshake)) {}

  pid_t child_;
  UniqueFd handshake_;
};

/// Captures the network namespace of a container, which its runtime made and the container lives in already; a capture that an
/// earlier supervisor left there is taken over. Before it returns, a connection that nobody approved, made from inside, has come
/// out at the listener. kUnsupported: another interface than `lo`; kPermission where this user may not; kInternal when something
/// in there holds the supervisor's ports. Forks, so while this process has one thread.
[[nodiscard]] Result<Capture> CaptureNamespace(int network_namespace);

/// Builds one. Works as root and as an ordinary user where user namespaces are on; kUnsupported names the missing feature.
[[nodiscard]] Result<Capture> CreateCapture();

}  // namespace sluice::supervisor
