#include "supervisor/io/byte_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "supervisor/io/output_meter.h"

namespace sluice::supervisor {
namespace {

int SocketType(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 ? type : 0;
}

}  // namespace

ByteChannel::ByteChannel(int from, int to, OutputMeter* meter)
    : from_(from), to_(to), from_socket_(SocketType(from) != 0), from_datagrams_(SocketType(from) == SOCK_DGRAM), meter_(meter) {}

pollfd ByteChannel::Interest() const {
  if (start_ < end_) return {.fd = to_.fd(), .events = POLLOUT, .revents = 0};
  if (meter_ != nullptr && meter_->behind()) return {.fd = -1, .events = 0, .revents = 0};
  return {.fd = from_, .events = POLLIN, .revents = 0};
}

bool ByteChannel::Move(short revents) {
  if (revents == 0) return true;
  return start_ < end_ ? Empty() : Fill(revents);
}

bool ByteChannel::Fill(short revents) {
  // Somebody else who has the socket may have read what there was.
  const ssize_t got =
      from_socket_ ? ::recv(from_, buffer_.data(), buffer_.size(), MSG_DONTWAIT) : ::read(from_, buffer_.data(), buffer_.size());
  if (got < 0) return errno == EAGAIN || errno == EINTR;             // EIO: the last holder of a terminal is gone
  if (got == 0) return from_datagrams_ && (revents & POLLHUP) == 0;  // an empty datagram is no end
  start_ = 0;
  end_ = static_cast<size_t>(got);
  if (meter_ != nullptr) end_ = meter_->Take(buffer_.data(), end_);
  return true;
}

bool ByteChannel::Empty() {
  const ssize_t put = to_.Write(buffer_.data() + start_, end_ - start_);
  if (put < 0) return errno == EAGAIN || errno == EINTR;
  start_ += static_cast<size_t>(put);
  return true;
}

}  // namespace sluice::supervisor
