#include "base/stderr_lines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/patient_poll.h"
#include "base/start_thread.h"
#include "base/terminal_line.h"

namespace sluice {
namespace {

// May wait for ever. What fails is lost: there is nowhere to say so.
void WriteSlowly(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    // Up to PIPE_BUF a line stays in one piece beside what the workload writes.
    const ssize_t written = ::write(fd, bytes.data(), std::min<size_t>(bytes.size(), PIPE_BUF));
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {  // the workload has made the shared descriptor non-blocking
      pollfd ready{fd, POLLOUT, 0};
      (void)PatientPoll({&ready, 1}, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

// Signals are for other threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t saved_{};
};

}  // namespace

struct LineOutput::State {
  explicit State(int output) : fd(output) {}

  void Put(LineKind kind, std::string lines) {
    {
      const std::lock_guard lock(mutex);
      const size_t limit = kind == LineKind::kDenial ? kMaxQueuedDenials : kMaxQueuedStderr;
      if (octets + lines.size() > limit) {
        lost += static_cast<uint64_t>(std::ranges::count(lines, '\n'));
        return;
      }
      if (lost != 0) Append(Notice());
      Append(std::move(lines));
    }
    ready.notify_one();
  }

  // What is to be written next; nothing at the end.
  std::optional<std::string> Next() {
    std::unique_lock lock(mutex);
    writing = false;
    if (queue.empty() && lost == 0) drained.notify_all();
    ready.wait(lock, [this] { return closed || !queue.empty() || lost != 0; });
    if (closed) return std::nullopt;
    writing = true;
    if (queue.empty()) return Notice();
    std::string lines = std::move(queue.front());
    queue.pop_front();
    octets -= lines.size();
    return lines;
  }

  void Append(std::string lines) {
    octets += lines.size();
    queue.push_back(std::move(lines));
  }

  std::string Notice() {
    return ForStderr(fmt::format("sluice: … {} lines not shown: nobody reads standard error\n", std::exchange(lost, 0)));
  }

  const int fd;
  std::mutex mutex;
  std::condition_variable ready;
  std::condition_variable drained;
  std::deque<std::string> queue;
  size_t octets = 0;
  uint64_t lost = 0;  // lines
  bool writing = false;
  bool closed = false;
  bool threaded = false;
};

LineOutput::LineOutput(int fd) : state_(std::make_shared<State>(fd)) {
  const SignalsBlocked blocked;
  std::thread writer;
  const auto write = [state = state_] {
    while (const auto lines = state->Next()) WriteSlowly(state->fd, *lines);
  };
  // Without a thread it is a plain write: there is nothing yet that it could hold up.
  if (StartThread(&writer, write) != 0) return;
  writer.detach();
  state_->threaded = true;
}

LineOutput::~LineOutput() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
  }
  state_->ready.notify_all();
}

void LineOutput::Put(LineKind kind, std::string lines) {
  if (state_->threaded) {
    state_->Put(kind, std::move(lines));
  } else {
    WriteSlowly(state_->fd, lines);
  }
}

bool LineOutput::Flush(std::chrono::milliseconds bound) {
  if (!state_->threaded) return true;
  std::unique_lock lock(state_->mutex);
  return state_->drained.wait_for(lock, bound, [this] { return state_->queue.empty() && !state_->writing && state_->lost == 0; });
}

namespace {

std::atomic<LineOutput*> g_stderr{nullptr};
std::atomic<LineOutput*> g_before_fork{nullptr};  // its thread is the parent's
std::atomic<int> g_descriptor{STDERR_FILENO};

// Never destroyed: its thread may be waiting in write(2) when the program ends.
LineOutput& Stderr() {
  if (LineOutput* const output = g_stderr.load(std::memory_order_acquire)) return *output;
  static std::mutex making;
  const std::lock_guard lock(making);
  if (g_stderr.load(std::memory_order_acquire) == nullptr)
    g_stderr.store(new LineOutput(g_descriptor.load()), std::memory_order_release);
  return *g_stderr.load(std::memory_order_acquire);
}

}  // namespace

Result<void> SendLinesTo(int fd) {
  if (fd <= STDERR_FILENO) return Fail(Code::kInvalid, "descriptors 0 to 2 are the command's");
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return FailErrno(fmt::format("descriptor {}", fd), errno);
  g_descriptor.store(fd);
  return {};
}

int LinesDescriptor() { return g_descriptor.load(); }

void QueueStderr(LineKind kind, std::string lines) {
  Stderr().Put(kind, LinesDescriptor() == STDERR_FILENO ? ForStderr(std::move(lines)) : std::move(lines));
}

void StartStderr() { (void)Stderr(); }

void RenewStderr() { g_before_fork.store(g_stderr.exchange(nullptr, std::memory_order_acq_rel)); }

bool FlushStderr(std::chrono::milliseconds bound) {
  LineOutput* const output = g_stderr.load(std::memory_order_acquire);
  return output == nullptr || output->Flush(bound);
}

}  // namespace sluice
