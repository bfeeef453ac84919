#include "base/send_descriptors.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/fault.h"

namespace sluice {

ssize_t SendDescriptors(int socket, std::span<const std::byte> bytes, std::span<const int> fds, int flags) {
  if (fds.empty() || fds.size() > kMostPassed) {
    errno = EINVAL;
    return -1;
  }
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kMostPassed)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  return Faulty("descriptors.send", [&] { return ::sendmsg(socket, &message, MSG_NOSIGNAL | flags); });
}

}  // namespace sluice
