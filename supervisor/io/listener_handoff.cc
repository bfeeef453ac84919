#include "supervisor/io/listener_handoff.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string_view>
#include <utility>

#include "base/fault.h"
#include "base/send_descriptors.h"

namespace sluice::supervisor {
namespace {

constexpr size_t kChunk = 16 * 1024;

struct Received {
  ssize_t size = 0;
  bool cut = false;  // descriptors were lost
};

// At most `room` descriptors; the kernel closes the others, all of them at once.
Result<Received> ReceiveMessage(int socket, iovec data, int flags, size_t room, std::vector<UniqueFd>* fds) {
  alignas(cmsghdr) std::array<uint8_t, CMSG_SPACE(sizeof(int) * kMostPassed)> control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = room == 0 ? 0 : CMSG_LEN(sizeof(int) * std::min(room, kMostPassed));
  ssize_t size = 0;
  do {
    size = Faulty("handoff.receive", [&] { return ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | flags); });
  } while (size < 0 && errno == EINTR);
  if (size < 0 && errno == EAGAIN) return Fail(Code::kTimeout, "nothing has come");
  if (size < 0) return FailErrno("cannot receive", errno);
  TakeDescriptors(header, fds);
  return Received{size, (header.msg_flags & MSG_CTRUNC) != 0};
}

}  // namespace

Result<bool> ReceiveStream(int socket, size_t most_fds, std::string* text, std::vector<UniqueFd>* fds) {
  std::array<char, kChunk> buffer;
  const size_t room = most_fds - std::min(most_fds, fds->size());
  const auto received = ReceiveMessage(socket, {buffer.data(), buffer.size()}, MSG_DONTWAIT, room, fds);
  if (!received) return std::unexpected(received.error());
  if (received->cut && fds->size() >= most_fds) return Fail(Code::kExhausted, "too many descriptors");
  if (received->cut) return Fail(Code::kExhausted, "some of the descriptors found no room in this process");
  text->append(buffer.data(), static_cast<size_t>(received->size));
  return received->size != 0;
}

bool IsNotifyFd(int fd) {
  std::array<char, 64> link;
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t size = Faulty("handoff.kind", [&] { return ::readlink(path.c_str(), link.data(), link.size()); });
  return size > 0 && std::string_view(link.data(), static_cast<size_t>(size)) == "anon_inode:seccomp notify";
}

Result<void> SendListener(int socket, int listener, const seccomp_notif& first) {
  const auto sent = SendDescriptors(socket, std::as_bytes(std::span(&first, 1)), {&listener, 1}, MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(sizeof first)) return FailErrno("cannot hand a container's process to its supervisor", errno);
  return {};
}

Result<ListenerHandoff> ReceiveListener(int socket) {
  ListenerHandoff handoff;
  std::vector<UniqueFd> fds;
  const auto received = ReceiveMessage(socket, {&handoff.first, sizeof handoff.first}, 0, kMostPassed, &fds);
  if (!received) return std::unexpected(received.error());
  if (received->size == 0) return Fail(Code::kNotFound, "the agent is gone");
  if (received->size != static_cast<ssize_t>(sizeof handoff.first) || fds.size() != 1)
    return Fail(Code::kInternal, "a container's process came without its descriptor");
  handoff.listener = std::move(fds.front());
  return handoff;
}

}  // namespace sluice::supervisor
