#include "app/doctor/io/started.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <poll.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

namespace sluice::app {
namespace {

using std::chrono::steady_clock;

struct PipeEnds {
  UniqueFd reader;
  UniqueFd writer;
};

Result<PipeEnds> MakePipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return FailErrno("cannot create a pipe", errno);
  return PipeEnds{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// Every capability that is permitted, for the program that is started next.
void PassRightsOn() {
  cap_t now = cap_get_proc();
  if (now == nullptr) return;
  for (cap_value_t capability = 0; capability <= CAP_LAST_CAP; ++capability) {
    cap_flag_value_t held = CAP_CLEAR;
    if (cap_get_flag(now, capability, CAP_PERMITTED, &held) == 0 && held == CAP_SET)
      cap_set_flag(now, CAP_INHERITABLE, 1, &capability, CAP_SET);
  }
  (void)cap_set_proc(now);
  cap_free(now);
  for (unsigned long capability = 0; capability <= CAP_LAST_CAP; ++capability)
    ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0);
}

[[noreturn]] void Become(const StartOptions& options, int out, int err) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (::dup2(nothing, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0) ::_exit(125);
  if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) ::_exit(125);
  if (options.as_user && (::setgroups(0, nullptr) != 0 || ::setresgid(options.uid, options.uid, options.uid) != 0 ||
                          ::setresuid(options.uid, options.uid, options.uid) != 0))
    ::_exit(125);
  // A change of identity takes the death signal back.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (options.keep_rights) PassRightsOn();
  ::unsetenv("NOTIFY_SOCKET");
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<std::string> words = options.argv;
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  ::_exit(errno == ENOENT ? 127 : 126);
}

void ReadInto(UniqueFd* from, std::string* text) {
  std::array<char, 4096> piece{};
  const ssize_t got = ::read(from->get(), piece.data(), piece.size());
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) return from->Reset();
  if (text->size() < kMaxStartedOutput) text->append(piece.data(), static_cast<size_t>(got));
}

}  // namespace

Result<Started> Started::Start(const StartOptions& options) {
  auto out = MakePipe();
  if (!out) return std::unexpected(out.error());
  auto err = MakePipe();
  if (!err) return std::unexpected(err.error());
  const pid_t pid = ::fork();
  if (pid < 0) return FailErrno("cannot fork", errno);
  if (pid == 0) Become(options, out->writer.get(), err->writer.get());
  return Started(pid, std::move(out->reader), std::move(err->reader));
}

Started::Started(Started&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      out_(std::move(other.out_)),
      err_(std::move(other.err_)),
      output_(std::move(other.output_)),
      errors_(std::move(other.errors_)),
      code_(other.code_) {}

Started::~Started() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  Reap();
}

void Started::Reap() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  pid_ = 0;
}

// Waits once for output, or for `more`; false: time is up.
bool Started::Pump(int more, steady_clock::time_point deadline, bool* more_ready) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
  if (left <= 0) return false;
  std::array<pollfd, 3> waits{{{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}, {more, POLLIN, 0}}};
  if (::poll(waits.data(), waits.size(), static_cast<int>(left)) < 0) return errno == EINTR;
  if (waits[0].revents != 0) ReadInto(&out_, &output_);
  if (waits[1].revents != 0) ReadInto(&err_, &errors_);
  *more_ready = waits[2].revents != 0;
  return true;
}

Result<void> Started::AwaitEnd(std::chrono::milliseconds patience) {
  const auto deadline = steady_clock::now() + patience;
  bool ignored = false;
  while (out_ || err_) {
    if (Pump(-1, deadline, &ignored)) continue;
    ::kill(pid_, SIGKILL);
    Reap();
    return Fail(Code::kTimeout, fmt::format("it did not end within {} s", patience.count() / 1000));
  }
  Reap();
  return {};
}

Result<void> Started::AwaitReady(int notify, std::chrono::milliseconds patience) {
  const auto deadline = steady_clock::now() + patience;
  while (out_ || err_) {
    bool told = false;
    if (!Pump(notify, deadline, &told))
      return Fail(Code::kTimeout, fmt::format("it was not ready within {} s", patience.count() / 1000));
    if (!told) continue;
    std::array<char, 256> state{};
    const ssize_t got = ::recv(notify, state.data(), state.size(), MSG_DONTWAIT);
    if (got > 0 && std::string_view(state.data(), static_cast<size_t>(got)).starts_with("READY=1")) return {};
  }
  Reap();
  return Fail(Code::kInternal, LastWords());
}

std::string Started::LastWords() const {
  std::string_view text = errors_;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  const size_t line = text.rfind('\n');
  if (line != std::string_view::npos) text.remove_prefix(line + 1);
  if (text.starts_with("sluice: ")) text.remove_prefix(8);
  return text.empty() ? fmt::format("exit {}", code_) : std::string(text);
}

}  // namespace sluice::app
