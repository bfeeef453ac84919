#include "base/send_descriptors.h"

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

void TakeDescriptors(msghdr& message, std::vector<UniqueFd>* fds) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr; control = CMSG_NXTHDR(&message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    fds->reserve(fds->size() + count);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof fd, sizeof fd);
      fds->emplace_back(fd);
    }
  }
}

}  // namespace sluice
