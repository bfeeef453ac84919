#pragma once

// What a container runtime sends to the agent, received by a process of its own for each connection. A message may hold any
// descriptors, and whoever has received one has to close it: the last close of a socket that lingers waits for its peer, and that
// of a file waits for its file system, which may be a program of the sender's (FUSE); no signal ends that. The agent itself gets
// the text and one notification descriptor, neither of which makes anybody wait.

#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"
#include "supervisor/oci_state.h"

namespace sluice::app {

struct RuntimeMessage {
  supervisor::OciState state;
  UniqueFd listener;  ///< a seccomp notification descriptor
};

/// In a fresh child of `parent` with one thread: receives from `runtime`, tells `agent`, a socket that keeps message boundaries,
/// and ends. Nothing bounds how long it takes: whoever made it kills it.
[[noreturn]] void ServeRuntime(pid_t parent, UniqueFd runtime, UniqueFd agent);

/// What it told, once it is there to be read. An error is for the log: kInvalid is the runtime's, or its user's.
[[nodiscard]] Result<RuntimeMessage> ReceiveRuntimeMessage(int child);

}  // namespace sluice::app
