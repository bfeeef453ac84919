#include "app/passed_sockets.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "base/send_descriptors.h"

namespace sluice::app {
namespace {

bool IsUnix(int fd, int wanted_type) {
  int domain = 0;
  int type = 0;
  socklen_t size = sizeof domain;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) return false;
  size = sizeof type;
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && domain == AF_UNIX && type == wanted_type;
}

// One message, one descriptor; invalid where the channel has ended.
Result<UniqueFd> ReceiveOne(int channel) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_LEN(sizeof(int));  // more is closed by the kernel
  const ssize_t got = recvmsg(channel, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) return FailErrno("cannot take a connection over", errno);
  std::vector<UniqueFd> passed;
  TakeDescriptors(message, &passed);
  return passed.empty() ? UniqueFd() : std::move(passed.front());
}

}  // namespace

Result<std::unique_ptr<PassedSockets>> PassedSockets::Start(UniqueFd channel, std::function<void(UniqueFd)> take,
                                                            std::function<void()> ended) {
  std::unique_ptr<PassedSockets> sockets(new PassedSockets);
  sockets->channel_ = std::move(channel);
  sockets->take_ = std::move(take);
  sockets->ended_ = std::move(ended);
  sockets->stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  if (!sockets->stop_) return FailErrno("cannot make an event descriptor", errno);
  sockets->thread_ = std::thread([self = sockets.get()] { self->Loop(); });
  return sockets;
}

PassedSockets::~PassedSockets() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(stop_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void PassedSockets::Loop() {
  for (;;) {
    pollfd waits[] = {{stop_.get(), POLLIN, 0}, {channel_.get(), POLLIN, 0}};
    if (poll(waits, 2, -1) < 0 && errno != EINTR) break;
    if (waits[0].revents != 0) return;
    if (waits[1].revents == 0) continue;
    auto passed = ReceiveOne(channel_.get());
    if (!passed && (passed.error().sys_errno == EAGAIN || passed.error().sys_errno == EINTR)) continue;
    if (!passed || !*passed || !IsUnix(passed->get(), SOCK_STREAM)) break;
    const int flags = fcntl(passed->get(), F_GETFL);
    if (flags < 0 || fcntl(passed->get(), F_SETFL, flags | O_NONBLOCK) != 0) break;
    take_(*std::move(passed));
  }
  ended_();
}

Result<UniqueFd> TakeChannel(int number) {
  if (number < 3 || !IsUnix(number, SOCK_SEQPACKET))
    return Fail(Code::kInvalid,
                fmt::format("--control fd:{}: it is no SOCK_SEQPACKET UNIX socket that was left open for it", number));
  if (fcntl(number, F_SETFD, FD_CLOEXEC) != 0) return FailErrno(fmt::format("--control fd:{}", number), errno);
  return UniqueFd(number);
}

}  // namespace sluice::app
