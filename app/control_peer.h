#pragma once

// Who is at the other end of a UNIX socket of the administration.

#include <cstdint>

namespace sluice::app {

/// Where a caller may be. The workload of an ordinary user's run has his user id, and lives in a process namespace below his.
enum class PeerPlace : uint8_t { kAnywhere, kNotBelow };

/// Whether its user id (SO_PEERCRED, unix(7)) is this process's own, or root's, and it is where it may be. For kNotBelow it must
/// still live (SO_PEERPIDFD, Linux 6.5): a number alone could be another's by now.
[[nodiscard]] bool MayAdminister(int socket, PeerPlace place);

}  // namespace sluice::app
