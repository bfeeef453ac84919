#pragma once

// Notification descriptors on their way to who will answer them: from a container runtime, by a stream with JSON around it, and
// from the agent to the process that supervises the container.

#include <linux/seccomp.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice::supervisor {

/// What of a stream has come, added to `text` and `fds` (close-on-exec). False at its end. Does not block: kTimeout when there is
/// nothing now. kExhausted: more than `most_fds` in all, or descriptors that this process had no room for: they are closed in
/// here, which may wait (BriefCloses).
[[nodiscard]] Result<bool> ReceiveStream(int socket, size_t most_fds, std::string* text, std::vector<UniqueFd>* fds);

/// Whether it is a seccomp notification descriptor, and no other file by that name.
[[nodiscard]] bool IsNotifyFd(int fd);

/// A filter's descriptor with the first call that was received from it and waits for its answer.
struct ListenerHandoff {
  UniqueFd listener;
  seccomp_notif first{};
};

/// Over a socket that keeps message boundaries, between processes of Sluice's own. Both borrow the socket.
[[nodiscard]] Result<void> SendListener(int socket, int listener, const seccomp_notif& first);
/// kNotFound: the other end is gone.
[[nodiscard]] Result<ListenerHandoff> ReceiveListener(int socket);

}  // namespace sluice::supervisor
