#include "base/pinned_closer.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/start_thread.h"
#include "base/wake_timer.h"

namespace sluice {
namespace {

// Whether its last close may wait, as far as the kernel tells.
bool Lingers(int fd) {
  linger value{};
  socklen_t size = sizeof value;
  return getsockopt(fd, SOL_SOCKET, SO_LINGER, &value, &size) != 0 || (value.l_onoff != 0 && value.l_linger != 0);
}

void CloseAll(BoundedQueue<UniqueFd>& queue, std::promise<Result<void>> made) {
  WakeTimer timer;
  made.set_value(timer.Open());
  while (auto batch = queue.PopAll()) {
    for (UniqueFd& fd : *batch) {
      timer.Arm();
      fd.Reset();
    }
    timer.Disarm();
  }
}

}  // namespace

PinnedCloser::PinnedCloser(size_t most) : queue_(most), threads_(kCloserThreads) {
  for (std::thread& thread : threads_) {
    std::promise<Result<void>> made;
    made_.push_back(made.get_future());
    if (StartThread(&thread, [this, said = std::move(made)]() mutable { CloseAll(queue_, std::move(said)); }) == 0) continue;
    std::promise<Result<void>> none;
    made_.back() = none.get_future();
    none.set_value(FailErrno("cannot start a thread", errno));
  }
}

Result<void> PinnedCloser::Ready() {
  Result<void> all;
  for (auto& made : std::exchange(made_, {}))
    if (auto one = made.get(); !one) all = std::move(one);
  return all;
}

PinnedCloser::~PinnedCloser() {
  queue_.Close();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

void PinnedCloser::Drop(UniqueFd fd, Kind kind) {
  if (!fd) return;
  if (kind == Kind::kFresh && !Lingers(fd.get())) return;
  if (queue_.TryPush(std::move(fd))) return;
  const BriefCloses brief;
  fd.Reset();  // NOLINT(bugprone-use-after-move): a full queue has left it untouched
}

}  // namespace sluice
