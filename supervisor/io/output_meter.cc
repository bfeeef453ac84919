#include "supervisor/io/output_meter.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace sluice::supervisor {

size_t OutputMeter::Take(const char* data, size_t size) {
  if (bound_ && size > *bound_ - count_) {
    exceeded_ = true;
    size = static_cast<size_t>(*bound_ - count_);
  }
  count_ += size;
  for (size_t done = 0; transcript_ >= 0 && complete_ && done < size;) {
    const ssize_t put = ::write(transcript_, data + done, size - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      LogError("the transcript cannot be written ({}); it ends here, and the command goes on", std::strerror(errno));
      complete_ = false;
      break;
    }
    done += static_cast<size_t>(put);
  }
  return size;
}

}  // namespace sluice::supervisor
