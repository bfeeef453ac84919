#include "supervisor/io/launch_child.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>
#include <string>

#include "supervisor/io/handshake.h"
#include "supervisor/io/launch_command.h"
#include "supervisor/io/launch_terminal.h"
#include "supervisor/io/launch_view.h"
#include "supervisor/io/privileges.h"
#include "supervisor/io/small_file.h"
#include "supervisor/io/user_namespace.h"

namespace sluice::supervisor {
namespace {

constexpr uint64_t kNamespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;

Result<void> JoinCapture(const Capture& capture) {
  if (::setns(capture.user_namespace.get(), CLONE_NEWUSER) != 0)
    return FailErrno("cannot enter the capture's user namespace", errno);
  if (::setns(capture.network_namespace.get(), CLONE_NEWNET) != 0)
    return FailErrno("cannot enter the capture's network namespace", errno);
  return {};
}

// Descriptor use of process 1 from here on: the status pipe alone.
void CloseAllBut(int keep) {
  if (keep > 0) ::close_range(0, static_cast<unsigned>(keep) - 1, 0);
  ::close_range(static_cast<unsigned>(keep) + 1, ~0U, 0);
}

// The supervisor's arguments would show in /proc/1/cmdline, which anyone may read. This memory is init's own copy.
void HideCommandLine() {
  constexpr int kArgumentsStart = 48 - 3;  // proc(5), counted from the state, field 3
  ::prctl(PR_SET_NAME, "sluice-init");
  const auto stat = ReadSmallFile("/proc/self/stat");
  if (!stat) return;
  std::istringstream fields(stat->substr(stat->rfind(')') + 1));
  std::string skipped;
  for (int i = 0; i < kArgumentsStart; ++i) fields >> skipped;
  uintptr_t start = 0;
  uintptr_t end = 0;
  if (!(fields >> start >> end) || start == 0 || end <= start) return;
  std::memset(reinterpret_cast<void*>(start), 0, end - start);
}

void Report(int status_pipe, int status) {
  const CommandStatus message{.status = status};
  [[maybe_unused]] const ssize_t written = ::write(status_pipe, &message, sizeof message);
}

// Process 1: everything in the namespace dies with it, and it dies with the supervisor.
[[noreturn]] void ReapUntilDone(pid_t command, int status_pipe) {
  while (true) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, WUNTRACED);
    if (ended < 0 && errno != EINTR) ::_exit(1);
    if (ended != command) continue;
    Report(status_pipe, status);
    if (!WIFSTOPPED(status)) ::_exit(0);
  }
}

Result<void> PrepareInit(const SandboxPlan& plan) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return FailErrno("prctl(PR_SET_PDEATHSIG)", errno);
  // Its own session: kill(0, …) of the workload must not reach the supervisor's process group.
  if (::setsid() < 0) return FailErrno("setsid", errno);
  if (::sethostname(plan.spec->hostname.data(), plan.spec->hostname.size()) != 0)
    return FailErrno("cannot set the host name", errno);
  const mode_t mask = ::umask(022);
  auto entered = EnterView(*plan.mounts, plan.spec->overlays);
  ::umask(mask);
  return entered;
}

Result<void> StartCommand(const SandboxPlan& plan) {
  if (auto prepared = PrepareInit(plan); !prepared) return prepared;
  std::array<int, 3> standard = plan.standard;
  if (auto opened = OpenTerminal(plan.handshake, standard); !opened) return opened;
  const pid_t command = ::fork();
  if (command < 0) return FailErrno("cannot fork", errno);
  if (command == 0) RunCommand(plan, standard);
  ::close(plan.handshake);
  HideCommandLine();
  if (auto dropped = DropCapabilities(); !dropped) ::_exit(1);  // the command dies with the sandbox
  ::prctl(PR_SET_DUMPABLE, 0);
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  CloseAllBut(plan.status_pipe);
  ReapUntilDone(command, plan.status_pipe);
}

[[noreturn]] void RunInit(const SandboxPlan& plan, int mapped) {
  char go = 0;
  if (::read(mapped, &go, 1) != 1) ::_exit(1);
  ::close(mapped);
  if (auto started = StartCommand(plan); !started) SendFailure(plan.handshake, started.error());
  ::_exit(1);
}

Result<void> StartInit(const SandboxPlan& plan) {
  // The maps in /proc/<pid> of a process that is not dumpable are root's alone. Where the supervisor is not, this is a copy of
  // it.
  if (::prctl(PR_GET_DUMPABLE) != 1 && ::prctl(PR_SET_DUMPABLE, 1) != 0) return FailErrno("prctl(PR_SET_DUMPABLE)", errno);
  if (auto joined = JoinCapture(*plan.capture); !joined) return joined;
  std::array<int, 2> mapped{};
  if (::pipe2(mapped.data(), O_CLOEXEC) != 0) return FailErrno("cannot create a pipe", errno);
  // CLONE_PARENT makes init the supervisor's child, so that the supervisor waits for it and its death signal is the supervisor's.
  const auto init =
      static_cast<pid_t>(::syscall(SYS_clone, kNamespaces | CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (init < 0) return std::unexpected(NamespaceError("the workload's namespaces", errno));
  if (init == 0) {
    ::close(mapped[1]);
    RunInit(plan, mapped[0]);
  }
  if (auto sent = Send(plan.handshake, Step::kInit, init); !sent) return sent;
  if (auto written = WriteIdentityMaps(init); !written) return written;
  if (::write(mapped[1], "", 1) != 1) return FailErrno("cannot start the sandbox's first process", errno);
  return {};
}

}  // namespace

void RunEntry(const SandboxPlan& plan) {
  if (auto started = StartInit(plan); !started) SendFailure(plan.handshake, started.error());
  ::_exit(0);
}

}  // namespace sluice::supervisor
