#include "base/pinned_closer.h"

#include <sys/socket.h>

#include "base/log.h"
#include "base/wake_timer.h"

namespace sluice {
namespace {

// Whether its last close may wait, as far as the kernel tells.
bool Lingers(int fd) {
  linger value{};
  socklen_t size = sizeof value;
  return getsockopt(fd, SOL_SOCKET, SO_LINGER, &value, &size) != 0 || (value.l_onoff != 0 && value.l_linger != 0);
}

void CloseAll(BoundedQueue<UniqueFd>& queue) {
  WakeTimer timer;
  if (const auto opened = timer.Open(); !opened) LogError("{}", opened.error().message);
  while (auto batch = queue.PopAll()) {
    for (UniqueFd& fd : *batch) {
      timer.Arm();
      fd.Reset();
    }
    timer.Disarm();
  }
}

}  // namespace

PinnedCloser::PinnedCloser(size_t most) : queue_(most) {
  for (unsigned i = 0; i < kCloserThreads; ++i) threads_.emplace_back([this] { CloseAll(queue_); });
}

PinnedCloser::~PinnedCloser() {
  queue_.Close();
  for (std::thread& thread : threads_) thread.join();
}

void PinnedCloser::Drop(UniqueFd fd, Kind kind) {
  if (!fd) return;
  if (kind == Kind::kFresh && !Lingers(fd.get())) return;
  if (queue_.TryPush(std::move(fd))) return;
  const BriefCloses brief;
  fd.Reset();
}

}  // namespace sluice
