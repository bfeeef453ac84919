#include "supervisor/io/output_meter.h"

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
  if (transcript_.fd() < 0 || !complete_) return size;
  waiting_.append(data, size);
  WriteWaiting();
  return size;
}

void OutputMeter::WriteWaiting() {
  size_t done = 0;
  while (done < waiting_.size()) {
    const ssize_t put = transcript_.Write(waiting_.data() + done, waiting_.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) break;
    if (put < 0) return Break(std::strerror(errno));
    done += static_cast<size_t>(put);
  }
  waiting_.erase(0, done);
}

void OutputMeter::GiveUp() {
  if (behind()) Break("nobody reads it");
}

void OutputMeter::Break(const char* why) {
  LogError("the transcript cannot be written ({}); it ends here, and the command goes on", why);
  complete_ = false;
  waiting_.clear();
}

}  // namespace sluice::supervisor
