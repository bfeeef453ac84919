// A user at a terminal: the supervisor runs in a session of its own on a pseudo-terminal, the test types and reads.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>

#include "supervisor/io/launch.h"
#include "tests/supervisor/sandbox.h"

namespace sluice::supervisor {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr winsize kSize{.ws_row = 33, .ws_col = 77, .ws_xpixel = 0, .ws_ypixel = 0};

class Session {
 public:
  // `redirect`: shell-like changes to descriptors before the launch.
  explicit Session(std::vector<std::string> argv, const std::function<void()>& redirect = {}) {
    int master = -1;
    pid_ = ::forkpty(&master, nullptr, nullptr, &kSize);
    if (pid_ == 0) Supervise(std::move(argv), redirect);
    master_ = UniqueFd(master);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  void Type(const std::string& keys) const {
    ASSERT_EQ(::write(master_.get(), keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  // Reads until the screen shows `text`.
  bool Shows(const std::string& text, std::chrono::milliseconds patience = std::chrono::seconds(10)) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (screen_.find(text) == std::string::npos) {
      pollfd ready{.fd = master_.get(), .events = POLLIN, .revents = 0};
      if (std::chrono::steady_clock::now() > until) return false;
      if (::poll(&ready, 1, 100) <= 0) continue;
      std::array<char, 4096> piece{};
      const ssize_t got = ::read(master_.get(), piece.data(), piece.size());
      if (got <= 0) return screen_.find(text) != std::string::npos;
      screen_.append(piece.data(), static_cast<size_t>(got));
    }
    return true;
  }
  int WaitStopped() const {
    int status = 0;
    return ::waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
  }
  int ExitCode() {
    Shows("\x01 never \x01");  // to the end, so that the supervisor can write what it has
    int status = 0;
    if (::waitpid(std::exchange(pid_, 0), &status, 0) < 0) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] int master() const { return master_.get(); }
  [[nodiscard]] const std::string& screen() const { return screen_; }

 private:
  [[noreturn]] static void Supervise(std::vector<std::string> argv, const std::function<void()>& redirect) {
    if (redirect) redirect();
    termios before{};
    const bool typed = ::tcgetattr(0, &before) == 0;
    auto capture = CreateCapture();
    auto workload = capture ? LaunchFiltered(SpecFor(std::move(argv), "/usr/share"), *capture, kSmallFilter)
                            : Result<std::unique_ptr<Workload>>(std::unexpected(capture.error()));
    if (!workload || !(*workload)->Release()) ::_exit(200);
    const ExitStatus status = (*workload)->Wait();
    termios after{};
    const bool restored =
        !typed || (::tcgetattr(0, &after) == 0 && after.c_lflag == before.c_lflag && after.c_oflag == before.c_oflag);
    ::_exit(restored ? status.code : 201);
  }

  pid_t pid_ = 0;
  UniqueFd master_;
  std::string screen_;
};

TEST(Terminal, TheWorkloadHasOneOfItsOwnWithTheUsersSize) {
  Session session(
      {"sh", "-c", "tty; stty size; test -t 0 -a -t 1 -a -t 2 && echo all; ls -l /proc/self/fd | grep -c /dev/pts/0"});
  EXPECT_TRUE(session.Shows("/dev/pts/0\r\n33 77\r\nall\r\n2\r\n")) << session.screen();
  EXPECT_EQ(session.ExitCode(), 0);
}

TEST(Terminal, KeysReachTheWorkloadAndAreEchoedOnce) {
  Session session({"sh", "-c", "echo ready; read line; echo \"<$line>\"; exit 4"});
  ASSERT_TRUE(session.Shows("ready")) << session.screen();
  session.Type("hello\r");
  EXPECT_TRUE(session.Shows("<hello>")) << session.screen();
  EXPECT_THAT(session.screen(), Not(HasSubstr("hellohello")));
  EXPECT_EQ(session.ExitCode(), 4);
}

TEST(Terminal, ControlCInterruptsTheWorkloadNotTheSupervisor) {
  Session session({"sh", "-c", "trap 'echo caught; exit 6' INT; echo ready; while :; do sleep 0.05; done"});
  ASSERT_TRUE(session.Shows("ready")) << session.screen();
  session.Type("\x03");
  EXPECT_TRUE(session.Shows("caught")) << session.screen();
  EXPECT_EQ(session.ExitCode(), 6);
}

TEST(Terminal, ControlZStopsTheJobAndItGoesOn) {
  Session session({"sh", "-c", "echo ready; read line; echo \"<$line>\""});
  ASSERT_TRUE(session.Shows("ready")) << session.screen();
  session.Type("\x1a");
  EXPECT_EQ(session.WaitStopped(), SIGSTOP);
  termios settings{};
  ASSERT_EQ(::tcgetattr(session.master(), &settings), 0);
  EXPECT_NE(settings.c_lflag & ICANON, 0U) << "the shell gets its terminal back as it was";
  ::kill(session.pid(), SIGCONT);
  session.Type("again\r");
  EXPECT_TRUE(session.Shows("<again>")) << session.screen();
  EXPECT_EQ(session.ExitCode(), 0);
}

TEST(Terminal, AResizedWindowIsPassedOn) {
  Session session({"sh", "-c", "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done"});
  ASSERT_TRUE(session.Shows("ready")) << session.screen();
  const winsize size{.ws_row = 10, .ws_col = 20, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::ioctl(session.master(), TIOCSWINSZ, &size), 0);
  EXPECT_TRUE(session.Shows("10 20")) << session.screen();
  EXPECT_EQ(session.ExitCode(), 0);
}

TEST(Terminal, ATerminalOnOutputAloneCannotBeReadByTheWorkload) {
  Session session({"sh", "-c", "test -t 1 && echo colours; read key <&1; echo \"<$key>\""}, [] {
    const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    ::dup2(null.get(), 0);
  });
  ASSERT_TRUE(session.Shows("colours\r\n")) << session.screen();
  session.Type("secret\r");
  EXPECT_FALSE(session.Shows("<secret>", std::chrono::milliseconds(400))) << session.screen();
}

TEST(Terminal, WhatTheWorkloadInjectsDoesNotOutliveIt) {
  // TIOCSTI is refused by the supervisor's filter; here it is let through, and still reaches only the workload's own terminal.
  Session session({"python3", "-c",
                   "import fcntl,termios\nfor c in b'evil\\n':\n  try: fcntl.ioctl(0, termios.TIOCSTI, bytes([c]))\n  except "
                   "OSError as e: print(e)\nprint('done')"});
  EXPECT_TRUE(session.Shows("done")) << session.screen();
  EXPECT_EQ(session.ExitCode(), 0);
  int waiting = -1;
  ASSERT_EQ(::ioctl(session.master(), TIOCOUTQ, &waiting), 0);
  EXPECT_EQ(waiting, 0);
}

TEST(Terminal, LongOutputArrivesWhole) {
  Session session({"sh", "-c", "seq 1 20000; echo end"});
  EXPECT_TRUE(session.Shows("20000\r\nend\r\n"));
  EXPECT_EQ(session.ExitCode(), 0);
}

}  // namespace
}  // namespace sluice::supervisor
