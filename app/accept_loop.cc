#include "app/accept_loop.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace sluice::app {
namespace {

constexpr int kAcceptedPerTurn = 64;
constexpr int kExhaustedPauseMs = 20;  // out of descriptors: what is queued waits

}  // namespace

Result<std::unique_ptr<AcceptLoop>> AcceptLoop::Create(std::vector<UniqueFd> listeners) {
  std::unique_ptr<AcceptLoop> loop(new AcceptLoop);
  loop->listeners_ = std::move(listeners);
  loop->stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  if (!loop->stop_) return FailErrno("cannot make an event descriptor", errno);
  return loop;
}

void AcceptLoop::Start(Take take) {
  take_ = std::move(take);
  thread_ = std::thread([this] { Loop(); });
}

void AcceptLoop::Stop() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(stop_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
  listeners_.clear();
}

void AcceptLoop::Loop() {
  std::vector<pollfd> waits{{stop_.get(), POLLIN, 0}};
  for (const UniqueFd& listener : listeners_) waits.push_back({listener.get(), POLLIN, 0});
  for (;;) {
    if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) return;
    if (waits.front().revents != 0) return;
    for (size_t i = 0; i < listeners_.size(); ++i)
      if (waits[i + 1].revents != 0) AcceptSome(listeners_[i]);
  }
}

void AcceptLoop::AcceptSome(const UniqueFd& listener) {
  for (int turn = 0; turn < kAcceptedPerTurn; ++turn) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    UniqueFd socket(accept4(listener.get(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      take_(std::move(socket), from, size);
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      pollfd stop{stop_.get(), POLLIN, 0};
      poll(&stop, 1, kExhaustedPauseMs);
    }
    if (errno != EINTR && errno != ECONNABORTED) return;
  }
}

}  // namespace sluice::app
