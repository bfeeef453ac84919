#pragma once

// Writes to a descriptor that other programs may share, so that it cannot be made non-blocking: whoever reads at its other end,
// or does not, must not hold up the supervisor, which has a deadline to keep.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace sluice::supervisor {

class SharedSink {
 public:
  /// Borrowed; -1 for none.
  explicit SharedSink(int fd);
  [[nodiscard]] int fd() const { return fd_; }
  /// As write(2), but never waits for a reader: EAGAIN, and poll says when there is room again. A file on a disk is written to
  /// as always.
  [[nodiscard]] ssize_t Write(const char* data, size_t size) const;

 private:
  enum class Kind : uint8_t { kSocket, kPipe, kTerminal, kOther };
  [[nodiscard]] ssize_t WriteToPipe(const char* data, size_t size) const;

  int fd_;
  Kind kind_ = Kind::kOther;
};

}  // namespace sluice::supervisor
