#include "library/io/run_session.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/process_mark.h"

namespace sluice::library {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kErrorPrefix = "sluice: error: ";
constexpr int kEndWaitMs = 5000;  // from a supervisor's last word to its end

int LeftMs(steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

// What `sluice run` exits with before its command runs (app/exit_code.h).
Code CodeOfExit(int exit_code) {
  switch (exit_code) {
    case 2:
      return Code::kInvalid;
    case 4:
      return Code::kUnsupported;
    case 126:
      return Code::kPermission;
    case 127:
      return Code::kNotFound;
    default:
      return Code::kInternal;
  }
}

template <class T>
T Number(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<T>() : T{};
}

std::string Text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// In the order of SLUICE_BY_COMMAND and so on.
int EndedBy(std::string_view text) {
  constexpr std::array<std::string_view, 7> kTexts = {"command", "timeout",    "output", "memory",
                                                      "policy",  "disconnect", "stopped"};
  const auto found = std::ranges::find(kTexts, text);
  return found == kTexts.end() ? -1 : static_cast<int>(found - kTexts.begin());
}

bool IsOver(int pidfd) {
  pollfd over{pidfd, POLLIN, 0};
  return ::poll(&over, 1, 0) > 0;
}

}  // namespace

RunSession::RunSession(RunCallbacks callbacks, Loop loop, uint64_t owner)
    : callbacks_(std::move(callbacks)), loop_(loop), owner_(owner) {}

Result<std::unique_ptr<RunSession>> RunSession::Start(const SupervisorPlan& plan, RunCallbacks callbacks, Loop loop) {
  const auto owner = ProcessMark();
  if (!owner) return std::unexpected(owner.error());
  std::unique_ptr<RunSession> session(new RunSession(std::move(callbacks), loop, *owner));
  if (auto begun = session->Begin(plan); !begun) return std::unexpected(begun.error());
  return session;
}

RunSession::~RunSession() {
  if (!is_ours()) {
    // The thread is not here: what stands for it is left as it is.
    if (thread_.joinable()) thread_.detach();
    return;
  }
  if (process_.pidfd && !ended()) ::syscall(SYS_pidfd_send_signal, process_.pidfd.get(), SIGKILL, nullptr, 0);
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }
  if (process_.pidfd && !ended()) (void)Reap(process_.pidfd.get());
}

bool RunSession::is_ours() const { return ProcessMark() == owner_; }

void RunSession::Watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

Result<void> RunSession::Begin(const SupervisorPlan& plan) {
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !stop_) return FailErrno("cannot make an event descriptor", errno);
  auto process = StartSupervisor(plan);
  if (!process) return std::unexpected(process.error());
  process_ = *std::move(process);
  Watch(process_.pidfd.get());
  Watch(process_.log.get());
  const auto deadline = steady_clock::now() + kStartDeadline;
  // Records first: the command starts once the run is held, and none of its decisions is missed.
  if (auto ready = AwaitRecords(deadline); !ready) return ready;
  if (auto runs = AwaitCommand(deadline); !runs) return runs;
  started_ = true;
  if (loop_ == Loop::kCaller) return {};
  Watch(stop_.get());
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { OwnLoop(); });
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return FailErrno("cannot start a thread", error.code().value());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return {};
}

Result<void> RunSession::WaitEvents(steady_clock::time_point deadline) {
  epoll_event event{};
  const int ready = ::epoll_wait(epoll_.get(), &event, 1, LeftMs(deadline));
  if (ready > 0 || (ready < 0 && errno == EINTR)) return {};
  if (ready < 0) return FailErrno("cannot wait for the supervisor", errno);
  return Fail(Code::kTimeout, "the run did not start in time");
}

// The supervisor ended without a word over the administration: its lines say why.
Result<void> RunSession::StartFailure() {
  // It waits for whoever reads the streams.
  records_.reset();
  hold_.reset();
  pollfd over{process_.pidfd.get(), POLLIN, 0};
  if (::poll(&over, 1, kEndWaitMs) <= 0) ::syscall(SYS_pidfd_send_signal, process_.pidfd.get(), SIGKILL, nullptr, 0);
  const auto status = Reap(process_.pidfd.get());
  ReadLog();
  const int exit_code = status && WIFEXITED(*status) ? WEXITSTATUS(*status) : end_.exit_code;
  ended_.store(true, std::memory_order_release);
  if (std::string why = WhyNotStarted(); !why.empty()) return Fail(CodeOfExit(exit_code), std::move(why));
  return Fail(CodeOfExit(exit_code), fmt::format("the supervisor ended before the command ran (exit {})", exit_code));
}

// One that has ended takes no connection either, and what it said is why.
Result<void> RunSession::NotOpened(const Error& error) {
  if (error.sys_errno == EPIPE || error.sys_errno == ECONNRESET) return StartFailure();
  return std::unexpected(error);
}

Result<void> RunSession::AwaitRecords(steady_clock::time_point deadline) {
  auto records = LineStream::Open(process_.channel.get(), callbacks_.exchanges ? "/v1/decisions?exchanges=1" : "/v1/decisions");
  if (!records) return NotOpened(records.error());
  records_.emplace(*std::move(records));
  Watch(records_->fd());
  while (!records_->begun()) {
    if (auto waited = WaitEvents(deadline); !waited) return waited;
    ReadLog();
    const auto going = records_->Read();
    if (records_->begun()) break;
    if (IsOver(process_.pidfd.get())) return StartFailure();
    if (!going) return std::unexpected(going.error());
    if (*going == LineStream::Reading::kOver) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, records_->fd(), nullptr);
  }
  return {};
}

Result<void> RunSession::AwaitCommand(steady_clock::time_point deadline) {
  auto hold = LineStream::Open(process_.channel.get(), "/v1/hold");
  if (!hold) return NotOpened(hold.error());
  hold_.emplace(*std::move(hold));
  Watch(hold_->fd());
  // Records that come meanwhile wait in their socket.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, records_->fd(), nullptr);
  while (state_.empty() || state_ == "waiting") {
    if (auto waited = WaitEvents(deadline); !waited) return waited;
    ReadLog();
    ReadHold();
    if (state_ == "failed" || ((state_.empty() || state_ == "waiting") && IsOver(process_.pidfd.get()))) return StartFailure();
    if (!version_.empty() && version_ != SLUICE_VERSION)
      return Fail(Code::kUnsupported,
                  fmt::format("{} is version {}, and this library {}", "the program sluice", version_, SLUICE_VERSION));
  }
  Watch(records_->fd());
  return {};
}

// One of the caller's functions, unless it has let go of the run.
template <class Call>
void RunSession::CallBack(const Call& call) {
  if (dropped()) return;
  class Within {
   public:
    explicit Within(std::atomic<std::thread::id>& who) : who_(who) { who_ = std::this_thread::get_id(); }
    ~Within() { who_ = std::thread::id(); }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

   private:
    std::atomic<std::thread::id>& who_;
  };
  const Within within(dispatching_);
  call();
}

void RunSession::TakeLogLine(std::string line) {
  if (started_) {
    if (callbacks_.log) CallBack([&] { callbacks_.log(line); });
    return;
  }
  // While it starts nobody is called; where it does not, what it said is the error's text.
  if (start_octets_ + line.size() > kMaxStartLines) return;
  start_octets_ += line.size();
  start_lines_.push_back(std::move(line));
}

// Errors alone, where there are some: the rest is about something else.
std::string RunSession::WhyNotStarted() const {
  std::string errors;
  std::string all;
  for (const std::string& line : start_lines_) {
    all += line + "\n";
    if (line.starts_with(kErrorPrefix)) errors += line.substr(kErrorPrefix.size()) + "\n";
  }
  std::string& why = errors.empty() ? all : errors;
  while (why.ends_with('\n')) why.pop_back();
  return why;
}

void RunSession::ReadLog() {
  if (!log_open_) return;
  std::array<char, 16384> buffer;
  for (;;) {
    const ssize_t n = ::read(process_.log.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {
      log_open_ = false;
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, process_.log.get(), nullptr);
      if (!log_text_.empty()) log_text_ += '\n';
      break;
    }
    log_text_.append(buffer.data(), static_cast<size_t>(n));
    if (log_text_.size() > kMaxLogLine && log_text_.find('\n') == std::string::npos) log_text_ += '\n';
  }
  size_t at = 0;
  for (size_t end = log_text_.find('\n'); end != std::string::npos; end = log_text_.find('\n', at)) {
    TakeLogLine(log_text_.substr(at, end - at));
    at = end + 1;
  }
  log_text_.erase(0, at);
}

bool RunSession::ReadRecords() {
  if (!records_) return false;
  const auto going = records_->Read();
  while (auto line = records_->Next()) {
    if (line->starts_with(R"({"event":"note")")) {
      const json note = json::parse(*line, nullptr, false);
      const std::string text = note.is_object() ? Text(note, "note") : "";
      // "this reader was too slow: N records could not wait for it; …"
      const size_t colon = text.find(": ");
      const std::lock_guard lock(end_mutex_);
      if (colon != std::string::npos) end_.lost_records += std::strtoull(text.c_str() + colon + 2, nullptr, 10);
      continue;
    }
    if (callbacks_.record) CallBack([&] { callbacks_.record(*line); });
  }
  if (going && *going != LineStream::Reading::kOver) return *going == LineStream::Reading::kMore;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, records_->fd(), nullptr);
  records_.reset();
  return false;
}

void RunSession::TakeState(const std::string& line) {
  const json state = json::parse(line, nullptr, false);
  if (!state.is_object()) return;
  version_ = Text(state, "version");
  state_ = Text(state, "state");
  if (state_ != "ended" && state_ != "failed") return;
  const std::lock_guard lock(end_mutex_);
  end_.complete = true;
  end_.exit_code = Number<int>(state, "exit_code");
  end_.allowed = Number<uint64_t>(state, "allowed");
  end_.denied = Number<uint64_t>(state, "denied");
  const auto command = state.find("command_exit");
  if (command == state.end() || !command->is_object()) return;
  end_.signal = Number<int>(*command, "signal");
  end_.ended_by = EndedBy(Text(*command, "ended_by"));
  const auto timed_out = command->find("timed_out");
  end_.timed_out = timed_out != command->end() && *timed_out == true;
}

void RunSession::ReadHold() {
  if (!hold_) return;
  const auto going = hold_->Read();
  while (auto line = hold_->Next()) TakeState(*line);
  if (going && *going != LineStream::Reading::kOver) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, hold_->fd(), nullptr);
  hold_.reset();
}

void RunSession::Dispatch() {
  if (ended()) return;
  for (const std::string& line : std::exchange(start_lines_, {}))
    if (callbacks_.log) CallBack([&] { callbacks_.log(line); });
  // Looked at first: what was said before the end is then read below.
  const bool over = IsOver(process_.pidfd.get());
  ReadLog();
  bool more = ReadRecords();
  ReadHold();
  if (!over) return;
  // Nobody writes any more.
  while (more) more = ReadRecords();
  Conclude();
}

void RunSession::Conclude() {
  // Nothing makes the caller's descriptor readable any more.
  const auto forget = [this](int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); };
  forget(process_.pidfd.get());
  forget(process_.log.get());
  if (records_) forget(records_->fd());
  if (hold_) forget(hold_->fd());
  const auto status = Reap(process_.pidfd.get());
  {
    const std::lock_guard lock(end_mutex_);
    if (!end_.complete && status) end_.exit_code = WIFEXITED(*status) ? WEXITSTATUS(*status) : 128 + WTERMSIG(*status);
  }
  if (callbacks_.ended) CallBack([&] { callbacks_.ended(); });
  {
    const std::lock_guard lock(end_mutex_);
    ended_.store(true, std::memory_order_release);
  }
  end_came_.notify_all();
}

void RunSession::OwnLoop() {
  while (!ended()) {
    std::array<epoll_event, 4> events{};
    const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    if (ready < 0 && errno != EINTR) return;
    for (int i = 0; i < ready; ++i)
      if (events[static_cast<size_t>(i)].data.fd == stop_.get()) return;
    try {
      Dispatch();
    } catch (...) {
      // Out of memory, or a callback that throws. What was read is lost, and what comes next is tried again.
    }
    if (dropped()) {
      thread_.detach();
      const std::function<void()> destroy = std::move(destroy_);
      destroy();  // and with it this
      return;
    }
  }
}

bool RunSession::Wait(std::optional<milliseconds> longest) {
  const auto deadline = longest ? steady_clock::now() + *longest : steady_clock::time_point::max();
  if (loop_ == Loop::kOwn) {
    std::unique_lock lock(end_mutex_);
    const auto has_ended = [this] { return ended(); };
    if (!longest) {
      end_came_.wait(lock, has_ended);
      return true;
    }
    return end_came_.wait_until(lock, deadline, has_ended);
  }
  for (;;) {
    Dispatch();
    if (dropped()) return false;
    if (ended()) return true;
    const int wait = longest ? LeftMs(deadline) : -1;
    if (wait == 0) return false;
    epoll_event event{};
    if (::epoll_wait(epoll_.get(), &event, 1, wait) < 0 && errno != EINTR) return false;
  }
}

RunEnd RunSession::end() const {
  const std::lock_guard lock(end_mutex_);
  return end_;
}

Result<Answer> RunSession::Request(const Question& question) { return Ask(process_.channel.get(), question, kAnswerDeadline); }

Result<void> RunSession::Reload() {
  if (::syscall(SYS_pidfd_send_signal, process_.pidfd.get(), SIGHUP, nullptr, 0) == 0) return {};
  return FailErrno("cannot tell the supervisor to read its policy again", errno);
}

}  // namespace sluice::library
