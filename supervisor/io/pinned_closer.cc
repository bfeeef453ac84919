#include "supervisor/io/pinned_closer.h"

#include "base/log.h"
#include "supervisor/io/socket_facts.h"
#include "supervisor/io/wake_timer.h"

namespace sluice::supervisor {
namespace {

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

PinnedCloser::PinnedCloser() {
  for (unsigned i = 0; i < kCloserThreads; ++i) threads_.emplace_back([this] { CloseAll(queue_); });
}

PinnedCloser::~PinnedCloser() {
  queue_.Close();
  for (std::thread& thread : threads_) thread.join();
}

void PinnedCloser::Drop(UniqueFd fd, Kind kind) {
  if (!fd) return;
  if (kind == Kind::kFresh && !Lingers(fd.get())) return;
  (void)queue_.TryPush(std::move(fd));
}

}  // namespace sluice::supervisor
