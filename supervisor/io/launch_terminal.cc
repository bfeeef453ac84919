#include "supervisor/io/launch_terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>

#include "base/unique_fd.h"
#include "supervisor/io/handshake.h"
#include "supervisor/io/launch_child.h"

namespace sluice::supervisor {

Result<void> OpenTerminal(int handshake, std::array<int, 3>& standard) {
  if (std::ranges::find(standard, SandboxPlan::kTerminal) == standard.end()) return {};
  const UniqueFd master(::open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!master) return FailErrno("cannot open a terminal for the workload", errno);
  const int unlock = 0;
  int number = 0;
  if (::ioctl(master.get(), TIOCSPTLCK, &unlock) != 0 || ::ioctl(master.get(), TIOCGPTN, &number) != 0)
    return FailErrno("cannot set up the workload's terminal", errno);
  // Opened by a session leader without a terminal: it becomes the session's.
  const int slave = ::open(fmt::format("/dev/pts/{}", number).c_str(), O_RDWR | O_CLOEXEC);
  if (slave < 0) return FailErrno("cannot open the workload's terminal", errno);
  std::ranges::replace(standard, SandboxPlan::kTerminal, slave);
  return Send(handshake, Step::kTerminal, 0, {master.get()});
}

void TakeForeground() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::isatty(fd) != 1) continue;
    // A background group that sets the foreground is stopped by SIGTTOU unless it blocks it.
    sigset_t ttou;
    sigemptyset(&ttou);
    sigaddset(&ttou, SIGTTOU);
    ::sigprocmask(SIG_BLOCK, &ttou, nullptr);
    ::tcsetpgrp(fd, ::getpgrp());
    return;
  }
}

}  // namespace sluice::supervisor
