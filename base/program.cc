#include "base/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/patient_poll.h"
#include "base/pipe.h"
#include "base/poll_timeout.h"
#include "base/printable.h"
#include "base/unique_fd.h"

namespace sluice {
namespace {

using std::chrono::steady_clock;

struct Child {
  pid_t pid = -1;
  UniqueFd out;
  UniqueFd err;
};

// posix_spawn's error, or 0.
int SpawnHere(std::vector<std::string>& command, int out, int err, pid_t* child) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (std::string& argument : command) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out, 1);
  ::posix_spawn_file_actions_adddup2(&actions, err, 2);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  sigset_t restored;
  sigemptyset(&restored);
  for (const int signal : {SIGPIPE, SIGXFSZ, SIGHUP, SIGINT, SIGTERM}) sigaddset(&restored, signal);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &restored);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int failed = ::posix_spawnp(child, argv.front(), &actions, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  return failed;
}

int SpawnBy(Spawner& spawner, const std::vector<std::string>& command, int out, int err, pid_t* child) {
  const UniqueFd in(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!in) return errno;
  SpawnedProgram program{.path = command.front(), .argv = command, .descriptors = {in.get(), out, err}};
  for (char** entry = environ; *entry != nullptr; ++entry) program.environment.emplace_back(*entry);
  const auto spawned = spawner.Spawn(program);
  if (!spawned) return spawned.error().sys_errno;
  *child = *spawned;
  return 0;
}

Result<Child> Spawn(std::vector<std::string>& command, Spawner* spawner) {
  auto out = MakePipe();
  if (!out) return std::unexpected(out.error());
  auto err = MakePipe();
  if (!err) return std::unexpected(err.error());
  Child child;
  const int failed = spawner != nullptr ? SpawnBy(*spawner, command, out->write.get(), err->write.get(), &child.pid)
                                        : SpawnHere(command, out->write.get(), err->write.get(), &child.pid);
  if (failed != 0) return FailErrno(fmt::format("cannot run {}", Printable(command.front())), failed);
  child.out = std::move(out->read);
  child.err = std::move(err->read);
  return child;
}

enum class Drained : uint8_t { kEnded, kFull, kLate };

// Both streams to their ends, so that neither blocks the other. The texts have their room already: nothing is moved.
Drained Drain(const Child& child, const ProgramBounds& bounds, ProgramRun* run, steady_clock::time_point deadline) {
  std::array<pollfd, 2> polled{{{child.out.get(), POLLIN, 0}, {child.err.get(), POLLIN, 0}}};
  const std::array<std::string*, 2> texts{&run->out, &run->err};
  const std::array<size_t, 2> rooms{bounds.out, bounds.err};
  while (polled[0].fd >= 0 || polled[1].fd >= 0) {
    const int wait = PollTimeout(deadline);
    if (wait == 0) return Drained::kLate;
    if (PatientPoll(polled, wait) <= 0) continue;
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      std::array<char, 16 * 1024> buffer;
      const ssize_t n = ::read(polled[i].fd, buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      const size_t came = n > 0 ? static_cast<size_t>(n) : 0;
      const size_t room = rooms[i] - texts[i]->size();
      texts[i]->append(buffer.data(), std::min(came, room));
      explicit_bzero(buffer.data(), came);
      if (came == 0) polled[i].fd = -1;
      if (i == 0 && came > room) return Drained::kFull;
    }
  }
  return Drained::kEnded;
}

// A program may close its outputs and go on. Leaves it to be reaped. False at the deadline.
bool AwaitEnd(pid_t pid, steady_clock::time_point deadline) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid) return true;
    const int wait = PollTimeout(deadline);
    if (wait == 0) return false;
    pollfd ended{process.get(), POLLIN, 0};
    // Without a descriptor for it, it is looked at now and then.
    (void)PatientPoll({&ended, 1}, process ? wait : std::min(wait, 2));
  }
}

}  // namespace

Result<ProgramRun> RunProgram(std::vector<std::string> command, const ProgramBounds& bounds, Spawner* spawner) {
  auto child = Spawn(command, spawner);
  if (!child) return std::unexpected(child.error());
  const auto deadline = steady_clock::now() + bounds.deadline;
  ProgramRun run;
  run.out.reserve(bounds.out);
  run.err.reserve(bounds.err);
  const Drained drained = Drain(*child, bounds, &run, deadline);
  const bool ended = drained == Drained::kEnded && AwaitEnd(child->pid, deadline);
  // Its session, before its number is free for another.
  ::kill(-child->pid, SIGKILL);
  int status = 0;
  while (::waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (drained == Drained::kFull) {
    run.end = ProgramRun::End::kTooMuch;
  } else if (!ended) {
    run.end = ProgramRun::End::kLate;
  } else if (WIFSIGNALED(status)) {
    run.end = ProgramRun::End::kSignalled;
    run.code = WTERMSIG(status);
  } else {
    run.code = WEXITSTATUS(status);
  }
  return run;
}

}  // namespace sluice
