#include "app/accept_loop.h"

#include <poll.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "base/fault.h"
#include "base/patient_poll.h"

namespace sluice::app {
namespace {

constexpr int kAcceptedPerTurn = 64;

}  // namespace

Result<std::unique_ptr<AcceptLoop>> AcceptLoop::Create(std::vector<UniqueFd> listeners) {
  std::unique_ptr<AcceptLoop> loop(new AcceptLoop);
  loop->listeners_ = std::move(listeners);
  if (Faulty("accept.stop", [&] { return loop->stop_.Open(); }) != 0) return FailErrno("cannot make an event descriptor", errno);
  return loop;
}

void AcceptLoop::Start(Take take) {
  take_ = std::move(take);
  thread_ = std::thread([this] { Loop(); });
}

void AcceptLoop::Stop() {
  stop_.Call();
  if (thread_.joinable()) thread_.join();
  listeners_.clear();
}

void AcceptLoop::Loop() {
  std::vector<pollfd> waits{{stop_.fd(), POLLIN, 0}};
  for (const UniqueFd& listener : listeners_) waits.push_back({listener.get(), POLLIN, 0});
  for (;;) {
    const int ready = Faulty("accept.wait", [&] { return poll(waits.data(), waits.size(), -1); });
    // Out of memory: whoever connects waits, and must not for ever.
    if (ready < 0 && errno != EINTR) Rest("wait for connections", errno);
    if (stop_.called()) return;
    if (ready < 0) continue;
    for (size_t i = 0; i < listeners_.size(); ++i)
      if (waits[i + 1].revents != 0) AcceptSome(listeners_[i]);
  }
}

// Not without a word: what waits in a listener's queue is in no record.
void AcceptLoop::Rest(const char* what, int error) {
  complaint_.Tell(what, error, "clients wait");
  (void)stop_.Rest(kPollRest);
}

void AcceptLoop::AcceptSome(const UniqueFd& listener) {
  for (int turn = 0; turn < kAcceptedPerTurn; ++turn) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    UniqueFd socket(Faulty("accept.take", [&] {
      return accept4(listener.get(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    }));
    if (socket) {
      take_(std::move(socket), from, size);
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN) Rest("accept connections", errno);
    return;
  }
}

}  // namespace sluice::app
