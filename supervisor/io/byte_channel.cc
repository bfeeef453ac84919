#include "supervisor/io/byte_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "supervisor/io/output_meter.h"

namespace sluice::supervisor {
namespace {

// A terminal says it is writable when this many bytes fit, so that writing no more does not block on a stopped one.
constexpr size_t kTerminalPiece = 256;

int SocketType(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 ? type : 0;
}

}  // namespace

ByteChannel::ByteChannel(int from, int to, OutputMeter* meter)
    : from_(from),
      to_(to),
      from_datagrams_(SocketType(from) == SOCK_DGRAM),
      to_socket_(SocketType(to) != 0),
      to_terminal_(::isatty(to) == 1),
      meter_(meter) {}

pollfd ByteChannel::Interest() const {
  if (start_ < end_) return {.fd = to_, .events = POLLOUT, .revents = 0};
  return {.fd = from_, .events = POLLIN, .revents = 0};
}

bool ByteChannel::Move(short revents) {
  if (revents == 0) return true;
  return start_ < end_ ? Empty() : Fill(revents);
}

bool ByteChannel::Fill(short revents) {
  const ssize_t got = ::read(from_, buffer_.data(), buffer_.size());
  if (got < 0) return errno == EAGAIN || errno == EINTR;             // EIO: the last holder of a terminal is gone
  if (got == 0) return from_datagrams_ && (revents & POLLHUP) == 0;  // an empty datagram is no end
  start_ = 0;
  end_ = static_cast<size_t>(got);
  if (meter_ != nullptr) end_ = meter_->Take(buffer_.data(), end_);
  return true;
}

bool ByteChannel::Empty() {
  size_t piece = end_ - start_;
  if (to_terminal_) piece = std::min(piece, kTerminalPiece);
  const ssize_t put = to_socket_ ? ::send(to_, buffer_.data() + start_, piece, MSG_DONTWAIT | MSG_NOSIGNAL)
                                 : ::write(to_, buffer_.data() + start_, piece);
  if (put < 0) return errno == EAGAIN || errno == EINTR;
  start_ += static_cast<size_t>(put);
  return true;
}

}  // namespace sluice::supervisor
