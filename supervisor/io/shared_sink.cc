#include "supervisor/io/shared_sink.h"

#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace sluice::supervisor {
namespace {

// A terminal says it is writable when this many bytes fit, so that writing no more does not block on a stopped one.
constexpr size_t kTerminalPiece = 256;

}  // namespace

SharedSink::SharedSink(int fd) : fd_(fd) {
  struct stat about{};
  if (fd < 0 || ::fstat(fd, &about) != 0) return;
  if (S_ISSOCK(about.st_mode)) kind_ = Kind::kSocket;
  if (S_ISFIFO(about.st_mode)) kind_ = Kind::kPipe;
  if (S_ISCHR(about.st_mode) && ::isatty(fd) == 1) kind_ = Kind::kTerminal;
}

ssize_t SharedSink::Write(const char* data, size_t size) const {
  switch (kind_) {
    case Kind::kSocket:
      return ::send(fd_, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    case Kind::kPipe:
      return WriteToPipe(data, size);
    case Kind::kTerminal:
      return ::write(fd_, data, std::min(size, kTerminalPiece));
    case Kind::kOther:
      break;
  }
  return ::write(fd_, data, size);
}

// A pipe is writable once it has room for PIPE_BUF bytes: more than that would wait.
ssize_t SharedSink::WriteToPipe(const char* data, size_t size) const {
  const iovec part{const_cast<char*>(data), size};
  const ssize_t put = ::pwritev2(fd_, &part, 1, -1, RWF_NOWAIT);
  if (put >= 0 || errno != EOPNOTSUPP) return put;
  // One with a name, of which the kernel does not take the flag.
  pollfd room{fd_, POLLOUT, 0};
  if (::poll(&room, 1, 0) <= 0) {
    errno = EAGAIN;
    return -1;
  }
  return ::write(fd_, data, std::min(size, size_t{PIPE_BUF}));
}

}  // namespace sluice::supervisor
