#pragma once

// Two ends of a UNIX socket that keeps messages whole, with an owner for each; both are closed on exec. socketpair(2).

#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/result.h"
#include "base/unique_fd.h"

namespace sluice {

struct SocketPair {
  UniqueFd mine;
  UniqueFd theirs;
};

[[nodiscard]] inline Result<SocketPair> MakeSocketPair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return FailErrno("cannot make a socket pair", errno);
  return SocketPair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace sluice
