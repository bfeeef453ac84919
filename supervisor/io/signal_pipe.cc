#include "supervisor/io/signal_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/fault.h"

namespace sluice::supervisor {
namespace {

// The one thing a handler can reach.
std::atomic<int> g_writer = -1;
static_assert(std::atomic<int>::is_always_lock_free);

void Handle(int signal) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const ssize_t written = ::write(g_writer.load(), &byte, 1);
  errno = saved;
}

}  // namespace

SignalPipe::~SignalPipe() {
  for (const auto& [signal, action] : replaced_) ::sigaction(signal, &action, nullptr);
  if (writer_.valid()) g_writer.store(-1);
}

Result<void> SignalPipe::Open(std::span<const int> signals) {
  std::array<int, 2> ends{};
  if (Faulty("launch.signals", [&] { return ::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK); }) != 0)
    return FailErrno("cannot create a pipe", errno);
  reader_ = UniqueFd(ends[0]);
  writer_ = UniqueFd(ends[1]);
  g_writer.store(ends[1]);
  for (const int signal : signals) {
    struct sigaction current{};
    if (::sigaction(signal, nullptr, &current) != 0 || current.sa_handler != SIG_DFL) continue;
    struct sigaction action{};
    action.sa_handler = Handle;
    action.sa_flags = SA_RESTART;
    sigfillset(&action.sa_mask);
    if (::sigaction(signal, &action, nullptr) == 0) replaced_.emplace_back(signal, current);
  }
  return {};
}

std::vector<int> SignalPipe::Take() {
  std::vector<int> signals;
  std::array<unsigned char, 64> bytes{};
  while (true) {
    const ssize_t got = ::read(reader_.get(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return signals;
    for (ssize_t i = 0; i < got; ++i) signals.push_back(bytes[static_cast<size_t>(i)]);
  }
}

}  // namespace sluice::supervisor
