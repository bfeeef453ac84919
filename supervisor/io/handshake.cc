#include "supervisor/io/handshake.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/fault.h"
#include "base/send_descriptors.h"

namespace sluice::supervisor {
namespace {

struct Wire {
  uint32_t step = 0;
  uint32_t code = 0;
  int64_t number = 0;
  int32_t sys_errno = 0;
  uint32_t text_size = 0;
  std::array<char, kMaxFailureText> text{};
};

constexpr size_t kControlSize = CMSG_SPACE(sizeof(int) * kMaxPassed) + CMSG_SPACE(sizeof(ucred));

// 0: it is not told.
pid_t SenderOf(msghdr& header) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_CREDENTIALS) continue;
    if (control->cmsg_len < CMSG_LEN(sizeof(ucred))) continue;
    ucred credentials{};
    std::memcpy(&credentials, CMSG_DATA(control), sizeof credentials);
    return credentials.pid;
  }
  return 0;
}

Message Decode(const Wire& wire) {
  Message message;
  message.step = static_cast<Step>(wire.step);
  message.number = wire.number;
  if (message.step == Step::kFailed)
    message.error =
        Error{static_cast<Code>(wire.code), std::string(wire.text.data(), std::min<size_t>(wire.text_size, wire.text.size())),
              wire.sys_errno, std::nullopt};
  return message;
}

}  // namespace

Result<std::pair<UniqueFd, UniqueFd>> MakeHandshake() {
  std::array<int, 2> ends{};
  if (Faulty("handshake.pair", [&] { return ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()); }) != 0)
    return FailErrno("cannot create a socket pair", errno);
  std::pair<UniqueFd, UniqueFd> pair{UniqueFd(ends[0]), UniqueFd(ends[1])};
  const int on = 1;
  const auto ask = [&] { return ::setsockopt(pair.first.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on); };
  if (Faulty("handshake.credentials", ask) != 0) return FailErrno("cannot ask for credentials on a socket pair", errno);
  return pair;
}

Result<void> Send(int socket, Step step, int64_t number, const std::vector<int>& fds) {
  Wire wire;
  wire.step = static_cast<uint32_t>(step);
  wire.number = number;
  if (fds.empty()) {
    if (Faulty("handshake.send", [&] { return ::write(socket, &wire, sizeof wire); }) < 0)
      return FailErrno("cannot send a start-up message", errno);
    return {};
  }
  if (fds.size() > kMaxPassed) return Fail(Code::kInternal, "too many descriptors in a start-up message");
  if (SendDescriptors(socket, std::as_bytes(std::span(&wire, 1)), fds) < 0)
    return FailErrno("cannot send start-up descriptors", errno);
  return {};
}

void SendFailure(int socket, const Error& error) {
  Wire wire;
  wire.step = static_cast<uint32_t>(Step::kFailed);
  wire.code = static_cast<uint32_t>(error.code);
  wire.sys_errno = error.sys_errno;
  const size_t size = std::min(error.message.size(), wire.text.size());
  std::memcpy(wire.text.data(), error.message.data(), size);
  wire.text_size = static_cast<uint32_t>(size);
  [[maybe_unused]] const ssize_t sent = ::write(socket, &wire, sizeof wire);
}

Result<Message> Receive(int socket, int timeout_ms, std::vector<UniqueFd>* stray) {
  pollfd ready{.fd = socket, .events = POLLIN, .revents = 0};
  int polled = 0;
  do {
    polled = Faulty("handshake.wait", [&] { return ::poll(&ready, 1, timeout_ms); });
  } while (polled < 0 && errno == EINTR);
  if (polled < 0) return FailErrno("cannot wait for a start-up process", errno);
  if (polled == 0) return Fail(Code::kTimeout, "a start-up process did not answer");
  Wire wire;
  alignas(cmsghdr) std::array<uint8_t, kControlSize> control{};
  iovec data{.iov_base = &wire, .iov_len = sizeof wire};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t received = 0;
  do {
    received = Faulty("handshake.receive", [&] { return ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC); });
  } while (received < 0 && errno == EINTR);
  if (received < 0) return FailErrno("cannot receive a start-up message", errno);
  if (received == 0) return Fail(Code::kInternal, "a start-up process ended early");
  Message message = received == sizeof wire ? Decode(wire) : Message{};
  message.sender = SenderOf(header);
  TakeDescriptors(header, &message.fds);
  if (received != sizeof wire) {
    if (stray != nullptr) *stray = std::move(message.fds);
    return Fail(Code::kInternal, "a start-up message was cut short");
  }
  return message;
}

Result<Message> Expect(int socket, Step expected, int timeout_ms) {
  auto message = Receive(socket, timeout_ms);
  if (!message) return message;
  if (message->step == Step::kFailed) return std::unexpected(message->error);
  if (message->step != expected)
    return Fail(Code::kInternal, fmt::format("start-up step {} where {} belongs", static_cast<uint32_t>(message->step),
                                             static_cast<uint32_t>(expected)));
  return message;
}

}  // namespace sluice::supervisor
