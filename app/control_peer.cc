#include "app/control_peer.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "app/file.h"
#include "base/unique_fd.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace sluice::app {
namespace {

// "NSpid:\t17\t4": one number for each process namespace from that of this /proc on down. 0: no such line, or the process is
// gone.
size_t NamespacesDeep(const std::string& text) {
  constexpr std::string_view kName = "NSpid:";
  for (const std::string& line : SplitLines(text))
    if (line.starts_with(kName)) return line.contains('-') ? 0 : static_cast<size_t>(std::ranges::count(line, '\t'));
  return 0;
}

bool IsBelow(int socket) {
  int number = -1;
  socklen_t size = sizeof number;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &number, &size) != 0) return true;
  const UniqueFd peer(number);
  // fdinfo of a pidfd, as pidfd_show_fdinfo of the kernel writes it. A process that is not to be seen from here has the one
  // number 0; one that is gone has -1, and somebody else its end of the socket.
  const auto about = ReadFile(fmt::format("/proc/self/fdinfo/{}", peer.get()), 4096);
  const auto own = ReadFile("/proc/self/status", 64 * 1024);
  if (!about || !own) return true;
  const size_t depth = NamespacesDeep(*about);
  return depth == 0 || depth > NamespacesDeep(*own);
}

}  // namespace

bool MayAdminister(int socket, PeerPlace place) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  if (peer.uid != geteuid() && peer.uid != 0) return false;
  return place == PeerPlace::kAnywhere || !IsBelow(socket);
}

}  // namespace sluice::app
