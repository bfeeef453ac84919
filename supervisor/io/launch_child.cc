#include "supervisor/io/launch_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/fault.h"
#include "supervisor/io/empty_process.h"
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
  if (Faulty("launch.user", [&] { return ::setns(capture.user_namespace.get(), CLONE_NEWUSER); }) != 0)
    return FailErrno("cannot enter the capture's user namespace", errno);
  if (Faulty("launch.network", [&] { return ::setns(capture.network_namespace.get(), CLONE_NEWNET); }) != 0)
    return FailErrno("cannot enter the capture's network namespace", errno);
  return {};
}

// Descriptor use of process 1 from here on: the status pipe alone. False: something else is open still.
bool CloseAllBut(int keep) {
  if (Faulty("launch.close", [&] { return ::close_range(static_cast<unsigned>(keep) + 1, ~0U, 0); }) != 0) return false;
  return keep == 0 || ::close_range(0, static_cast<unsigned>(keep) - 1, 0) == 0;
}

// The supervisor's arguments would show in /proc/1/cmdline, which anyone may read. This memory is init's own copy.
void HideCommandLine() {
  constexpr int kArgumentsStart = 48 - 3;  // proc(5), counted from the state, field 3
  ::prctl(PR_SET_NAME, "sluice-init");
  const auto stat = ReadSmallFile("/proc/self/stat");
  if (!stat) return;
  size_t at = stat->rfind(')') + 1;
  for (int i = 0; i < kArgumentsStart && at != std::string::npos; ++i) at = stat->find(' ', at + 1);
  uintptr_t start = 0;
  uintptr_t end = 0;
  if (at == std::string::npos || std::sscanf(stat->c_str() + at, " %" SCNuPTR " %" SCNuPTR, &start, &end) != 2) return;
  if (start == 0 || end <= start) return;
  std::memset(reinterpret_cast<void*>(start), 0, end - start);
}

// What the plan's overlays hold. What the supervisor provides is waited for when it is needed: by then the rest of the view
// stands.
class OverlayContents {
 public:
  explicit OverlayContents(const SandboxPlan& plan) : plan_(plan) {}

  Result<void> Fill(size_t overlay, int file) {
    const FileOverlay& wanted = plan_.spec->overlays.at(overlay);
    if (wanted.source == OverlayContent::kHere) {
      if (::write(file, wanted.content.data(), wanted.content.size()) == static_cast<ssize_t>(wanted.content.size())) return {};
      return FailErrno(fmt::format("cannot write the overlay of {} ({} bytes)", wanted.path, wanted.content.size()), errno);
    }
    // Overlays are filled in their order, which is the order of what is provided.
    const auto message = Expect(plan_.handshake, Step::kContent, kStartTimeoutMs);
    if (!message) return std::unexpected(message.error());
    if (message->fds.empty()) return Fail(Code::kInternal, fmt::format("the content of {} was not provided", wanted.path));
    return Copy(message->fds.front().get(), file, wanted.path);
  }

 private:
  static Result<void> Copy(int from, int to, const std::string& path) {
    struct stat about{};
    if (::fstat(from, &about) != 0) return FailErrno(path, errno);
    for (off_t done = 0; done < about.st_size;) {
      const ssize_t copied = ::sendfile(to, from, &done, static_cast<size_t>(about.st_size - done));
      if (copied == 0) break;
      if (copied < 0 && errno != EINTR)
        return FailErrno(fmt::format("cannot write the overlay of {} ({} bytes)", path, about.st_size), errno);
    }
    return {};
  }

  const SandboxPlan& plan_;
};

Result<void> PrepareInit(const SandboxPlan& plan) {
  if (Faulty("launch.death-signal", [] { return ::prctl(PR_SET_PDEATHSIG, SIGKILL); }) != 0)
    return FailErrno("prctl(PR_SET_PDEATHSIG)", errno);
  // Its own session: kill(0, …) of the workload must not reach the supervisor's process group.
  if (Faulty("launch.session", [] { return ::setsid(); }) < 0) return FailErrno("setsid", errno);
  if (::sethostname(plan.spec->hostname.data(), plan.spec->hostname.size()) != 0)
    return FailErrno("cannot set the host name", errno);
  const mode_t mask = ::umask(022);
  OverlayContents contents(plan);
  auto entered =
      EnterView(*plan.mounts, *plan.bare, [&contents](size_t overlay, int file) { return contents.Fill(overlay, file); });
  ::umask(mask);
  return entered;
}

// Process 1: everything in the namespace dies with it, and it dies with the supervisor. It holds nothing, and nobody inside may
// look into it: not dumpable while it still has capabilities that the command lacks.
void SealInit(const SandboxPlan& plan) {
  if (Faulty("launch.undumpable", [] { return ::prctl(PR_SET_DUMPABLE, 0); }) != 0) ::_exit(1);
  HideCommandLine();
  if (auto dropped = DropCapabilities(); !dropped) ::_exit(1);  // the command dies with the sandbox
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  if (!CloseAllBut(plan.status_pipe)) ::_exit(1);
}

Result<void> StartCommand(const SandboxPlan& plan) {
  if (auto prepared = PrepareInit(plan); !prepared) return prepared;
  std::array<int, 3> standard = plan.standard;
  if (auto opened = OpenTerminal(plan.handshake, standard); !opened) return opened;
  const pid_t command = Faulty("launch.fork", [] { return ::fork(); });
  if (command < 0) return FailErrno("cannot fork", errno);
  if (command == 0) RunCommand(plan, standard);
  // Beside the command's process, which passes its gate only after the seal.
  if (auto sealed = SealView(*plan.mounts); !sealed) return sealed;
  SealInit(plan);
  ReapWithEmptyMemory({.command = command, .status_pipe = plan.status_pipe});
}

[[noreturn]] void RunInit(const SandboxPlan& plan, int mapped) {
  char go = 0;
  if (Faulty("launch.mapped", [&] { return ::read(mapped, &go, 1); }) != 1) ::_exit(1);
  ::close(mapped);
  auto started = StartCommand(plan);
  if (!started) {
    // Only the command itself is looked for with this answer; a part of its view that is not there is a fault of the view.
    if (started.error().code == Code::kNotFound) started.error().code = Code::kInvalid;
    SendFailure(plan.handshake, started.error());
  }
  ::_exit(1);
}

Result<void> JoinGroups(const SandboxPlan& plan) {
  for (const int entrance : plan.entrances)
    if (::write(entrance, "0", 1) != 1) return FailErrno("cannot enter the run's control group", errno);
  return {};
}

Result<void> StartInit(const SandboxPlan& plan) {
  // The maps in /proc/<pid> of a process that is not dumpable are root's alone. Where the supervisor is not, this is a copy of
  // it.
  if (::prctl(PR_GET_DUMPABLE) != 1 && ::prctl(PR_SET_DUMPABLE, 1) != 0) return FailErrno("prctl(PR_SET_DUMPABLE)", errno);
  if (auto joined = JoinCapture(*plan.capture); !joined) return joined;
  std::array<int, 2> mapped{};
  if (Faulty("launch.map-pipe", [&] { return ::pipe2(mapped.data(), O_CLOEXEC); }) != 0)
    return FailErrno("cannot create a pipe", errno);
  // CLONE_PARENT makes init the supervisor's child, so that the supervisor waits for it and its death signal is the supervisor's.
  const auto clone = [] {
    return ::syscall(SYS_clone, kNamespaces | CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  };
  const auto init = static_cast<pid_t>(Faulty("launch.clone", clone));
  if (init < 0) return std::unexpected(NamespaceError("the workload's namespaces", errno));
  if (init == 0) {
    ::close(mapped[1]);
    // The kernel forgets a death signal while the user changes (prctl(2), PR_SET_PDEATHSIG): whoever waits at the gate must see
    // the supervisor's end hang up.
    ::close(plan.supervisors_end);
    RunInit(plan, mapped[0]);
  }
  if (auto sent = Send(plan.handshake, Step::kInit, init); !sent) return sent;
  if (auto written = WriteIdentityMaps(init); !written) return written;
  if (Faulty("launch.go-on", [&] { return ::write(mapped[1], "", 1); }) != 1)
    return FailErrno("cannot start the sandbox's first process", errno);
  return {};
}

}  // namespace

void RunEntry(const SandboxPlan& plan) {
  // Before anything else, and so before what is to be held by the groups exists.
  auto started = JoinGroups(plan);
  if (started) started = StartInit(plan);
  if (!started) SendFailure(plan.handshake, started.error());
  ::_exit(0);
}

}  // namespace sluice::supervisor
